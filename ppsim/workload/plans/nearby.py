"""Correct a prediction by similar measured runs.

Only two things are worth a correction, by the errors of published runs that were left out of the
fit (``tests/benchmarks/left_out.py``): a *twin*, a run of the same job which differs in batch and
number of GPUs alone, and a run of the user's own with the same software on the same GPU. Runs that
are merely alike made predictions of others worse and ranked their layouts worse. Where runs
disagree, their mean counts the less and the range is the wider.
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
EIGHTY = 1.28  # standard deviations within which four in five lie
# Standard deviations of logarithms of measured over predicted steps. Left-out runs: a job's own
# error, and of runs that are repeated with another batch; what runs of one source, software and GPU
# share, and what is left of each.
JOB, REPEATED = 0.10, 0.03
LEVEL, EACH = 0.09, 0.10
ANY_LEVEL = 1.0  # of software that the library lacks: nothing is known before a run is measured
# Half-widths of ranges without a run to correct by, in logarithms. Of left-out sources three in
# four runs lie within them where each source counts alike, and four in five where each run does.
# The second is of software or GPUs that no other source has, the third of software whose name is
# taken away.
KNOWN, UNSEEN, UNNAMED = 0.130, 0.172, 0.321
SAME = 1e-3  # difference of two measurements that are of the same run


@dataclass(frozen=True)
class Setting:
    """The properties of a run on which errors depend.

    Attributes:
        software: its name in the library, or its name in the table.
        release: its numbers, as 26.6; empty where nobody says it.
        gpu: its GPU.
        family: of the GPU.
        experts: whether the model is a mixture of experts.
        job: the properties that twins share: model, sizes of parallelism, microbatch, precision,
            schedule, techniques.
        known: whether the library has the software.
    """

    software: str
    release: str
    gpu: str
    family: str
    experts: bool
    job: str
    known: bool = True

    def is_twin_of(self, other: Setting) -> bool:
        """Return whether two runs differ in batch and number of GPUs alone, as far as releases are
        known.
        """
        alike = (self.software, self.gpu, self.job) == (other.software, other.gpu, other.job)
        return alike and (self.release == other.release or not (self.release and other.release))

    def corrects(self, other: Setting) -> bool:
        """Return whether a user's run corrects another: of its kind of model, on its GPU, with its
        software or unknown software. What is left of dense models and of mixtures of experts has
        nothing in common (correlation 0.01 of left-out runs, 0.51 of runs of one kind).
        """
        alike = (self.gpu, self.experts) == (other.gpu, other.experts)
        return alike and (self.software == other.software or not self.known)


@dataclass(frozen=True)
class Measured:
    """A measured run.

    Attributes:
        name: of the run.
        setting: its model, hardware and sizes.
        seconds: of its step.
        error: logarithm of measured over predicted.
    """

    name: str
    setting: Setting
    seconds: float
    error: float


@dataclass(frozen=True)
class Correction:
    """The correction of a prediction by measured runs.

    Attributes:
        factor: by which the predicted step is multiplied.
        half: half the width of its range, in logarithms.
        runs: how many runs it is from.
    """

    factor: float
    half: float
    runs: int = 0

    def range(self, seconds: float) -> tuple[float, float]:
        """Return the low and the high of a corrected step: four in five runs lie between."""
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
    """Return the setting of a run, which decides the runs that its error is shared with."""
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
    """Measured runs, which correct predictions of others.

    Attributes:
        published: the library's rows.
        anchors: the user's own.
    """

    published: tuple[Measured, ...] = ()
    anchors: tuple[Measured, ...] = ()

    @property
    def runs(self) -> tuple[Measured, ...]:
        """All of them."""
        return self.published + self.anchors

    @cached_property
    def _by_job(self) -> dict[str, list[Measured]]:
        """Published runs by their job."""
        found: dict[str, list[Measured]] = {}
        for run in self.published:
            found.setdefault(run.setting.job, []).append(run)
        return found

    def correction_at(self, setting: Setting, measured: float | None = None) -> Correction:
        """Correct the prediction of a setting.

        The user's twins come first, then the user's runs of this software on this GPU, then
        published twins.

        Args:
            setting: of the run that is predicted.
            measured: seconds of its step; runs of it that took as long are itself, and left out.
        """
        anchors = [run for run in self.anchors if not _is_same_run(run, setting, measured)]
        published = [
            run
            for run in self._by_job.get(setting.job, ())
            if not _is_same_run(run, setting, measured)
        ]
        own = [run for run in anchors if run.setting.is_twin_of(setting)]
        level = [run for run in anchors if run.setting.corrects(setting)]
        twins = [run for run in published if run.setting.is_twin_of(setting)]
        if own or (twins and not level):
            return _correction(own or twins, JOB, REPEATED)
        if level:
            known = all(run.setting.known for run in level)
            return _correction(level, LEVEL if known else ANY_LEVEL, EACH)
        if not setting.known:
            return Correction(1.0, UNNAMED)
        return Correction(1.0, UNSEEN if self._is_strange(setting) else KNOWN)

    def _is_strange(self, setting: Setting) -> bool:
        """Return whether no run was published of a setting's GPU, or of its software on this family
        of GPUs.

        False where no run is published at all, as where a profile takes the place of the curve.
        """
        gpus, software = self._published_settings
        return bool(gpus) and (
            setting.gpu not in gpus or (setting.software, setting.family) not in software
        )

    @cached_property
    def _published_settings(self) -> tuple[set[str], set[tuple[str, str]]]:
        """GPUs, and software on families of GPUs, of which runs are published."""
        settings = [run.setting for run in self.published]
        return {each.gpu for each in settings}, {(each.software, each.family) for each in settings}


def _correction(runs: Sequence[Measured], prior: float, noise: float) -> Correction:
    """Shrink the mean of errors towards none: the posterior mean of a normal level.

    Args:
        runs: one or more.
        prior: standard deviation of the level that they share.
        noise: standard deviation of each run's remaining error, at least; runs that disagree more
            have more.
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
    """The library's file of published runs: a column for each field."""

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
    """Read the published runs of the library."""
    found = toml.read(str(LIBRARY / "seen.toml"), Columns, SCHEMA)
    settings = map(
        Setting, found.software, found.release, found.gpu, found.family, found.experts, found.job
    )
    return Nearby(tuple(map(Measured, found.names, settings, found.seconds, found.error)))


def unseen_parts(runs: Nearby, setting: Setting) -> list[str]:
    """List the parts of a setting that no run has: GPU, software on it, kind of model."""
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
    return [what for what, found in checks.items() if not found]
