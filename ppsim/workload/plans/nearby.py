"""Corrections of predictions by similar measured runs.

Two kinds of runs improve predictions, as the errors of published runs held out of the fit show
(``tests/benchmarks/left_out.py``): a *twin*, a run of the same job that differs only in batch and
number of GPUs; and a run of the user with the same software on the same GPU. Other similar runs
made predictions and rankings of layouts worse. The more measured runs disagree, the weaker is the
correction and the wider its range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ppsim.base import toml
from ppsim.workload.hardware.hardware import LIBRARY, Gpu
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel

SCHEMA = "ppsim.seen/2"
EIGHTY = 1.28  # standard deviations around a mean that hold four values in five
# Standard deviations of log(measured / predicted step) of held-out runs.
JOB = 0.10  # of the error that all runs of a job share
REPEATED = 0.03  # of the rest, among runs of a job with different batches
# By least squares, the error of a held-out run is 0.27 of that of another run of the same source,
# software, GPU and kind of model, so they share 0.27 of the variance (``left_out.shared_part``).
LEVEL = 0.058  # of the error that such runs share
EACH = 0.096  # of the rest, among such runs
ANY_LEVEL = 1.0  # of the shared error for software that is not in the library
# Half-widths of the ranges of uncorrected predictions, in logarithms. Among held-out sources they
# hold four runs in five with equal weight for each run.
KNOWN = 0.115  # for software and GPUs of other sources
UNSEEN = 0.175  # for software or a GPU of which no run is published
UNNAMED = 0.341  # for software without a name
SAME = 1e-3  # relative difference below which two measured steps count as the same run


@dataclass(frozen=True)
class Setting:
    """The properties of a run on which the error of its prediction depends.

    Attributes:
        software: the software's name in the library, or in the user's table.
        release: the software's release, such as 26.6; '' if it is not known.
        gpu: name of the GPU.
        family: family of the GPU.
        experts: whether the model is a mixture of experts.
        job: the properties that twins share, as text: model, sizes of parallelism, microbatch,
            precision, schedule, techniques.
        known: whether the software is in the library.
    """

    software: str
    release: str
    gpu: str
    family: str
    experts: bool
    job: str
    known: bool = True

    def is_twin_of(self, other: Setting) -> bool:
        """Return whether two runs differ only in batch and number of GPUs.

        An unknown release equals any other.
        """
        alike = (self.software, self.gpu, self.job) == (other.software, other.gpu, other.job)
        return alike and (self.release == other.release or not (self.release and other.release))

    def corrects(self, other: Setting) -> bool:
        """Return whether a user's run with this setting corrects a prediction of another.

        Both must have the same GPU, kind of model and software; a run with unknown software
        corrects any software. Errors of dense models and of mixtures of experts are independent:
        the correlation among held-out runs is 0.01, and 0.51 among runs of the same kind.
        """
        alike = (self.gpu, self.experts) == (other.gpu, other.experts)
        return alike and (self.software == other.software or not self.known)


@dataclass(frozen=True)
class Measured:
    """A measured run.

    Attributes:
        name: the run's name.
        setting: the run's model, hardware and sizes.
        seconds: measured seconds of a step.
        error: log(measured / predicted step).
    """

    name: str
    setting: Setting
    seconds: float
    error: float


@dataclass(frozen=True)
class Correction:
    """The correction of a prediction by measured runs.

    Attributes:
        factor: the corrected over the predicted step.
        half: half the width of the corrected step's range, in logarithms.
        runs: number of measured runs behind it.
    """

    factor: float
    half: float
    runs: int = 0

    def range(self, seconds: float) -> tuple[float, float]:
        """Return both ends of the range of a corrected step; four runs in five lie within it."""
        far = math.exp(self.half)
        return seconds / far, seconds * far


def setting_of(
    model: Model,
    gpu: Gpu,
    parallel: Parallel,
    software: str,
    release: Sequence[int] = (),
    known: bool = True,
) -> Setting:
    """Return the setting of a run, by which runs that share its error are found."""
    p = parallel
    sizes = [f"{name}{getattr(p, name)}" for name in ("tp", "cp", "ep", "pp", "vp", "mbs", "zero")]
    words = [p.precision, p.schedule_name if p.pp > 1 else "no pipeline", p.recompute]
    if model.experts:
        words += [
            p.dispatch,
            p.cuda_graphs,
            *["overlap"] * p.overlap_ep,
            *["fused"] * p.fused_experts,
        ]
    name = f"{model.name.strip()} {model.hidden}x{model.layers} of {model.seq}"
    numbers = ".".join(map(str, release))
    return Setting(
        software,
        numbers,
        gpu.name,
        gpu.family,
        bool(model.experts),
        " ".join([name, *sizes, *words]),
        known,
    )


@dataclass(frozen=True)
class Nearby:
    """Measured runs that correct predictions.

    Attributes:
        published: the library's runs.
        anchors: the user's runs.
    """

    published: tuple[Measured, ...] = ()
    anchors: tuple[Measured, ...] = ()

    @property
    def runs(self) -> tuple[Measured, ...]:
        """The published and the user's runs."""
        return self.published + self.anchors

    @cached_property
    def _by_job(self) -> dict[str, list[Measured]]:
        """Published runs by their job."""
        found: dict[str, list[Measured]] = {}
        for run in self.published:
            found.setdefault(run.setting.job, []).append(run)
        return found

    def correction_at(self, setting: Setting, measured: float | None = None) -> Correction:
        """Return the correction of the prediction for a setting.

        It is from the user's twins, else the user's runs with this software on this GPU, else
        published twins.

        Args:
            setting: the setting of the predicted run.
            measured: the run's measured step in seconds, if known; runs of the same job that took
                as long are taken for this run and left out.
        """
        anchors = [run for run in self.anchors if not _is_same_run(run, setting, measured)]
        published = [
            run
            for run in self._by_job.get(setting.job, ())
            if not _is_same_run(run, setting, measured)
        ]
        user_twins = [run for run in anchors if run.setting.is_twin_of(setting)]
        level = [run for run in anchors if run.setting.corrects(setting)]
        twins = [run for run in published if run.setting.is_twin_of(setting)]
        if user_twins or (twins and not level):
            return _correction(user_twins or twins, JOB, REPEATED)
        if level:
            known = all(run.setting.known for run in level)
            return _correction(level, LEVEL if known else ANY_LEVEL, EACH)
        if not setting.known:
            return Correction(1.0, UNNAMED)
        return Correction(1.0, UNSEEN if self._is_strange(setting) else KNOWN)

    def _is_strange(self, setting: Setting) -> bool:
        """Return whether no published run has the GPU, or the software on this family of GPUs.

        False if there are no published runs, as with a measured profile.
        """
        gpus, software = self._published_settings
        return bool(gpus) and (
            setting.gpu not in gpus or (setting.software, setting.family) not in software
        )

    @cached_property
    def _published_settings(self) -> tuple[set[str], set[tuple[str, str]]]:
        """The GPUs, and the pairs of software and family of GPUs, of published runs."""
        settings = [run.setting for run in self.published]
        return {each.gpu for each in settings}, {(each.software, each.family) for each in settings}


def _correction(runs: Sequence[Measured], prior: float, noise: float) -> Correction:
    """Return the correction by the posterior mean of the runs' shared error.

    Shared error and remaining errors are normal in logarithms. The correction is the mean error,
    shrunk towards zero.

    Args:
        runs: one or more measured runs.
        prior: standard deviation of the error that the runs share.
        noise: least standard deviation of the remaining error of a run.
    """
    errors = [run.error for run in runs]
    count = len(errors)
    left = max(noise**2, float(np.var(errors, ddof=1)) if count > 1 else 0.0)
    weight = count * prior**2 / (count * prior**2 + left)
    spread = math.sqrt(prior**2 * (1 - weight) + left)
    return Correction(math.exp(weight * float(np.mean(errors))), EIGHTY * spread, count)


def _is_same_run(run: Measured, setting: Setting, measured: float | None) -> bool:
    return (
        measured is not None
        and run.setting.job == setting.job
        and abs(run.seconds / measured - 1) < SAME
    )


@dataclass(frozen=True)
class Columns:
    """The columns of the library's file of published runs, one value for each run."""

    names: tuple[str, ...] = ()
    software: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    experts: tuple[bool, ...] = ()
    job: tuple[str, ...] = ()
    seconds: tuple[float, ...] = ()
    error: tuple[float, ...] = ()


@lru_cache(maxsize=1)
def published() -> Nearby:
    """Return the library's published runs."""
    found = toml.read(str(LIBRARY / "seen.toml"), Columns, SCHEMA)
    settings = map(
        Setting, found.software, found.release, found.gpu, found.family, found.experts, found.job
    )
    return Nearby(tuple(map(Measured, found.names, settings, found.seconds, found.error)))


def unseen_parts(runs: Nearby, setting: Setting) -> list[str]:
    """Return the parts of a setting that no run covers, as text.

    They are the GPU, the software on its family, and the kind of model on its family.
    """
    seen: Iterable[Setting] = [run.setting for run in runs.runs]
    family = f"{setting.family or setting.gpu} chips"
    kind = "a mixture of experts" if setting.experts else "a dense model"
    here = [each for each in seen if each.family == setting.family]
    checks = {
        f"the GPU {setting.gpu}": any(each.gpu == setting.gpu for each in here),
        f"the software {setting.software} on {family}": any(
            each.software == setting.software for each in here
        ),
        f"{kind} on {family}": any(each.experts == setting.experts for each in here),
    }
    return [part for part, found in checks.items() if not found]
