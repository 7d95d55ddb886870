"""What measured runs near a setting say of its prediction: a factor, and how far off it may be.

Logarithms of measured over predicted steps are one Gaussian process (Rasmussen and Williams, 2006, chapter 2) over
settings: errors in compute, in exposed communication and in what ends a step are shared by all runs of a GPU with some
software, in the shares that these have of a step, and what is left is alike where sizes are. Far from all runs the
factor is 1 and the range is widest. The user's anchors and the library's published runs are used alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ppsim.base import toml
from ppsim.core.ops import Kind
from ppsim.workload.cost.costs import StageCosts, Step
from ppsim.workload.hardware.hardware import LIBRARY, Gpu
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel

SCHEMA = "ppsim.seen/1"
TERMS = ("compute", "exposed communication", "end of a step")
TERM_SPREAD = (0.07, 0.3, 0.3)  # of the error of each term, in logarithms
ALIKE_SPREAD, REACH = 0.2, 4.0  # of what is left, and the distance at which it is 1/e alike
NOISE = 0.04  # of a run that is repeated
OTHER_SOFTWARE, OTHER_GPU = 8.0, 4.0  # distances
NARROW = {"bf16": 0.0, "fp16": 0.0, "fp32": 0.0, "fp8": 1.0, "mxfp8": 1.0, "nvfp4": 2.0}
# A doubling of tp, cp, ep, pp, dp, microbatch, sequence, microbatches, hidden size, experts of a token; a precision;
# all-to-all that is hidden, fused experts, weights that are divided, whole layers that recompute. Rounded from those
# under which what is left of software left out is most likely: kernels' sizes say more than counts of devices do.
WEIGHTS = (1.5, 0.5, 1.0, 0.25, 0.1, 1.5, 0.5, 0.1, 2.0, 2.0, 1.0, 3.0, 1.0, 1.0, 0.5)
EIGHTY = 0.82  # standard deviations within which four in five left-out runs lie
SAME = 1e-3  # difference of two measurements that are of the same run
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What a run is, as far as errors may be alike.

    Attributes:
        software: its name in the library.
        gpu: its GPU.
        family: of the GPU, beyond which nothing is alike.
        numbers: logarithms of sizes, and the precision: as ``WEIGHTS``.
        shares: of the step, of each of ``TERMS``.
    """

    software: str
    gpu: str
    family: str
    numbers: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """A measured run.

    Attributes:
        name: what it is called by.
        setting: what it is.
        seconds: of its step.
        error: logarithm of measured over predicted.
    """

    name: str
    setting: Setting
    seconds: float
    error: float


@dataclass(frozen=True)
class Correction:
    """What runs near a setting say of its prediction.

    Attributes:
        factor: by which the predicted step is multiplied.
        spread: standard deviation of the logarithm of measured over corrected.
    """

    factor: float
    spread: float

    def range(self, seconds: float) -> tuple[float, float]:
        """Return the low and the high of a corrected step: four in five runs lie between."""
        far = math.exp(EIGHTY * self.spread)
        return seconds / far, seconds * far


def setting_of(model: Model, gpu: Gpu, parallel: Parallel, software: str, terms: Sequence[float]) -> Setting:
    """Describe a run by its sizes, and by the seconds of each of ``TERMS``."""
    p = parallel
    sizes = (p.tp, p.cp, p.ep, p.pp, p.dp, p.mbs, model.seq, p.microbatches, model.hidden, max(model.top_k, 0.5))
    switches = (p.overlap_ep, p.fused_experts and bool(model.experts), p.zero == 3, p.recompute == "full")
    numbers = (*(round(math.log2(size), 3) for size in sizes), NARROW[p.precision], *map(float, switches))
    whole = sum(terms)
    return Setting(software, gpu.name, gpu.family, numbers, tuple(round(term / whole, 4) for term in terms))


def terms_of(costs: StageCosts, step: Step) -> tuple[float, float, float]:
    """Divide a step's seconds into ``TERMS``."""
    share = float(costs.communication.sum() / (costs.time[Kind.F] + costs.time[Kind.B]).sum())
    return step.pipeline * (1 - share), step.pipeline * share, step.reduction + step.optimizer


def _far_by_name(these: Sequence[Setting], others: Sequence[Setting]) -> Floats:
    """Return the distance for other software and another GPU, shape (these, others)."""
    result = np.zeros((len(these), len(others)))
    for name, far in (("software", OTHER_SOFTWARE), ("gpu", OTHER_GPU)):
        names = [getattr(each, name) for each in (*these, *others)]
        code = np.unique(names, return_inverse=True)[1]
        result += far * (code[: len(these), None] != code[None, len(these) :])
    return result


def _shares(settings: Sequence[Setting]) -> Floats:
    return np.array([each.shares for each in settings]).reshape(-1, len(TERMS))


def alike(these: Sequence[Setting], others: Sequence[Setting]) -> Floats:
    """Return how far the errors of settings go together: covariances, shape (these, others)."""
    differ = _far_by_name(these, others)
    distance = differ.copy()
    sizes = (np.array([each.numbers for each in part]).reshape(-1, len(WEIGHTS)) for part in (these, others))
    for weight, one, two in zip(WEIGHTS, *(each.T for each in sizes), strict=True):
        distance += np.abs(weight * one[:, None] - weight * two[None])
    together = (_shares(these) * np.square(TERM_SPREAD)) @ _shares(others).T
    result: Floats = together * np.exp(-differ / REACH) + ALIKE_SPREAD**2 * np.exp(-distance / REACH)
    return result


def _variances(settings: Sequence[Setting]) -> Floats:
    """Return the diagonal of ``alike(settings, settings)``."""
    result: Floats = np.square(_shares(settings)) @ np.square(TERM_SPREAD) + ALIKE_SPREAD**2
    return result


def _diagonal(columns: Floats, inverse: Floats) -> Floats:
    """Return the diagonal of ``columns.T @ inverse @ columns``."""
    result: Floats = np.einsum("ij,ij->j", columns, inverse @ columns)
    return result


@dataclass(frozen=True)
class Nearby:
    """Measured runs, and what they say of others.

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
    def _known(self) -> dict[str, tuple[list[Measured], Floats, Floats]]:
        return {}

    def _family(self, family: str) -> tuple[list[Measured], Floats, Floats]:
        """Runs of a family of GPUs, their errors, and the inverse of their covariance: no others are near."""
        if family in self._known:
            return self._known[family]
        runs = [run for run in self.runs if run.setting.family == family]
        settings = [run.setting for run in runs]
        covariance = alike(settings, settings) + NOISE**2 * np.eye(len(runs))
        errors = np.array([run.error for run in runs])
        return self._known.setdefault(family, (runs, errors, np.asarray(np.linalg.inv(covariance))))

    def at(self, setting: Setting, measured: float | None = None) -> Correction:
        """Correct the prediction of a setting; ``measured``: runs of it that took as long are itself, and left out."""
        return self.together([setting], measured)[0][0]

    def factors(self, settings: Sequence[Setting]) -> Floats:
        """Return the factor of each prediction of one GPU, shape (settings,)."""
        runs, errors, inverse = self._family(settings[0].family)
        return np.exp(errors @ (inverse @ alike([run.setting for run in runs], settings)))

    def differing(self, settings: Sequence[Setting], others: Sequence[Setting]) -> Floats:
        """Return how far the errors of predictions of one GPU may differ, in logarithms of steps.

        Four in five pairs differ by less. Shape (settings, others).
        """
        runs, _, inverse = self._family(settings[0].family)
        here, there = (alike([run.setting for run in runs], each) for each in (settings, others))
        across = alike(settings, others) - here.T @ inverse @ there
        own = (_variances(each) - _diagonal(known, inverse) for each, known in ((settings, here), (others, there)))
        squares = next(own)[:, None] + next(own)[None] - 2 * across
        result: Floats = EIGHTY * np.sqrt(np.maximum(squares, 0.0))
        return result

    def together(self, settings: Sequence[Setting], measured: float | None = None) -> tuple[list[Correction], Floats]:
        """Correct predictions of one GPU, and return the covariance of the errors that are left."""
        moved, left = np.zeros(len(settings)), alike(settings, settings)
        runs, errors, inverse = self._family(settings[0].family)
        if runs:
            out = [i for i, run in enumerate(runs) if _same(run, settings[0], measured)]
            across = alike([run.setting for run in runs], settings)
            weights = inverse @ across
            if out:  # as if these had never been there: the inverse without their rows
                weights -= inverse[:, out] @ np.linalg.solve(inverse[np.ix_(out, out)], weights[out])
            moved, left = errors @ weights, left - across.T @ weights
        spreads = np.sqrt(np.maximum(left.diagonal(), 0.0) + NOISE**2)
        return [Correction(math.exp(m), float(s)) for m, s in zip(moved, spreads, strict=True)], left

    def terms(self, setting: Setting) -> dict[str, float]:
        """Say by what factor runs of this setting's GPU and software correct each of ``TERMS``."""
        runs, errors, inverse = self._family(setting.family)
        settings = [run.setting for run in runs]
        near = np.exp(-_far_by_name([setting], settings)[0] / REACH)
        moved = (_shares(settings) * np.square(TERM_SPREAD)).T * near @ inverse @ errors
        return {name: math.exp(value) for name, value in zip(TERMS, moved, strict=True)}


def _same(run: Measured, setting: Setting, measured: float | None) -> bool:
    return measured is not None and run.setting.numbers == setting.numbers and abs(run.seconds / measured - 1) < SAME


@dataclass(frozen=True)
class Columns:
    """The library's file of published runs: a column for each field, flat where there are several numbers."""

    names: tuple[str, ...] = ()
    software: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    seconds: tuple[float, ...] = ()
    error: tuple[float, ...] = ()
    numbers: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()


@lru_cache(maxsize=1)
def published() -> Nearby:
    """Read the published runs of the library."""
    found = toml.read(str(LIBRARY / "seen.toml"), Columns, SCHEMA)
    count, wide, parts = len(found.names), len(WEIGHTS), len(TERMS)
    numbers = (found.numbers[wide * i : wide * (i + 1)] for i in range(count))
    shares = (found.shares[parts * i : parts * (i + 1)] for i in range(count))
    settings = map(Setting, found.software, found.gpu, found.family, numbers, shares)
    return Nearby(tuple(map(Measured, found.names, settings, found.seconds, found.error)))


def unseen(runs: Nearby, setting: Setting, experts: bool) -> list[str]:
    """Say what of a setting no run was seen of: its GPU, its software, its kind of model."""
    seen = [run.setting for run in runs.runs]
    kind = "a mixture of experts" if experts else "a dense model"
    checks = {
        f"the GPU {setting.gpu}": any(each.gpu == setting.gpu for each in seen),
        f"the software {setting.software}": any(each.software == setting.software for each in seen),
        f"{kind} on {setting.family or setting.gpu} chips": any(
            each.family == setting.family and (each.numbers[9] >= 0) == experts for each in seen
        ),
    }
    return [what for what, found in checks.items() if not found]
