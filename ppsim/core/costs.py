"""Costs of a schedule: times of ops, pairs and messages; factors of microbatches and devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import quote
from ppsim.core.lanes import find_senders, share_durations
from ppsim.core.ops import COMPUTE, ONCE_A_STEP, TIMED, Kind, Stream
from ppsim.core.schedule import Schedule
from ppsim.core.soundness import (
    LONGEST,
    is_whole,
    prove_costs,
    prove_factors,
    prove_factors_fit,
    prove_fit,
    prove_times,
    require_type,
)
from ppsim.errors import InputError

FINEST_STEP = 2.0**-30  # share of the longest time, if no coarser step divides all times
MOST_PARTS = 1 << 20  # the largest number of common steps in the longest time
EXAMPLE = 'run("1f1b", devices=4, microbatches=8).timeline.schedule'
SAME = 1e-12  # relative difference of times up to which it is a rounding error
Value = float | Sequence[float]
Floats = NDArray[np.float64]
PriceOf = Callable[[Kind, NDArray[Any], NDArray[Any]], Any]


@dataclass(frozen=True)
class Costs:
    """Durations for one schedule, in ``unit``, as :func:`ppsim.simulate` takes them.

    ``ppsim.run`` and other questions take :meth:`of`, whose times apply to any schedule.

    Attributes:
        time: shape (5, stages), rows F, B, I, W and R. With four rows, R takes as long as F.
        comm: latency of a message between two devices, a number or shape (devices, devices).
        pair: shape (stages,), duration of a pair of F and B on that stage; None for the sum of its
            ops.
        unit: name of the time unit, such as ``t_F`` or ``ms``.
        scale: shape (5, microbatches), factor on the time of each kind of op and microbatch, or
            None. If ``pair`` is given, the factor of a pair is the mean of its two ops' factors.
        speed: shape (devices,), relative speed of each device, or None.
        op_times: shape (ops,), the duration of each op of one schedule, which replaces all of the
            above except ``comm``, or None; both ops of a pair have the duration of the pair.
        others: durations of other kinds, by stage (by device if the kind has no stage), and by
            microbatch if they have a second axis; missing kinds take no time.
        host_link: number of devices that share a link to their host, on which one device at a time
            copies in each direction; 0 if each device has a separate link.
        feedback: time until the last stage's result is at the first stage for the next round; None
            for the latency of the link between their devices.
    """

    time: NDArray[np.float64]
    comm: float | NDArray[np.float64] = 0.0
    pair: NDArray[np.float64] | None = None
    unit: str = "t_F"
    scale: NDArray[np.float64] | None = None
    speed: NDArray[np.float64] | None = None
    op_times: NDArray[np.float64] | None = None
    others: Mapping[Kind, NDArray[np.float64]] = field(default_factory=dict)
    host_link: int = 0
    feedback: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.time, np.ndarray) and self.time.ndim and len(self.time) == Kind.R:
            object.__setattr__(
                self, "time", np.concatenate([self.time, self.time[Kind.F : Kind.F + 1]])
            )
        prove_costs(self.time, self.comm, self.pair)
        prove_factors(self.scale, self.speed)
        require_type("unit", self.unit, str, '"ms"')
        require_type("others", self.others, Mapping, "{Kind.OFFLOAD: np.ones(4)}")
        for kind, time in self.others.items():
            require_type("others", kind, Kind, "Kind.OFFLOAD")
            require_type(f"the time of {kind.name}", time, np.ndarray, "np.ones(4)")
            prove_times(f"the time of {kind.name}", time)
        if self.op_times is not None:
            require_type("op_times", self.op_times, np.ndarray, "np.ones(len(schedule))")
            prove_times("the time of each op", self.op_times)
            if self.op_times.ndim != 1:
                raise InputError("op_times is not one time for each op", "np.ones(len(schedule))")
        if self.feedback is not None:
            require_type("feedback", self.feedback, Real, "0.5")
            prove_times("the time of feedback", self.feedback)
        if not is_whole(self.host_link) or self.host_link < 0:
            raise InputError(
                f"not a number of devices that share a link: {quote(self.host_link)}", "host_link=2"
            )

    def durations(self, schedule: Schedule) -> NDArray[np.float64]:
        """Return the duration of each op, shape (ops,); both ops of a pair have the pair's.

        A pair of F and B takes the mean of ``pair`` over its two stages. An op on all devices takes
        as long as on the slowest device.

        Raises:
            InputError: the costs have another number of stages or devices, or the schedule has comm
                ops.
        """
        return share_durations(schedule, self.durations_by_device(schedule))

    def durations_by_device(self, schedule: Schedule) -> NDArray[np.float64]:
        """Return durations of ops, shape (ops,); an op of all devices may differ between them."""
        self.check_fit(schedule)
        if self.op_times is not None:
            if len(self.op_times) != len(schedule):
                raise InputError(
                    f"{len(self.op_times)} durations for {len(schedule)} ops",
                    "one for each, in queue order",
                )
            return self.op_times
        if schedule.has_lanes:
            return self._lane_durations(schedule)
        duration, table = np.empty(len(schedule)), self.time.ravel()
        for ops, row in schedule.blocks():
            duration[ops] = table.take(row)
        factor = self.factors(schedule)
        if factor is not None:
            duration *= factor
        first, second = schedule.first_of_pairs, schedule.second_of_pairs
        if len(second):
            together = duration[first] + duration[second]
            if self.pair is not None:
                full = (schedule.kind[first] == Kind.B) | (schedule.kind[second] == Kind.B)
                measured = (
                    self.pair[schedule.stage[first]] + self.pair[schedule.stage[second]]
                ) / 2
                if factor is not None:
                    measured *= (factor[first] + factor[second]) / 2
                together = np.where(full, measured, together)
            duration[first] = duration[second] = together
        return duration

    def _lane_durations(self, schedule: Schedule) -> NDArray[np.float64]:
        """Return durations of ops, shape (ops,), of a schedule with ops that are not compute."""
        duration = np.zeros(len(schedule))
        duration[schedule.computes] = self.durations(schedule.compute_only)
        for kind, time in self.others.items():
            ops = np.flatnonzero(schedule.kind == kind)
            row = (schedule.stage if kind.info.has_stage else schedule.device)[ops]
            sizes = len(time), schedule.n_microbatches if time.ndim == 1 else time.shape[1]
            wanted = schedule.n_stages if kind.info.has_stage else schedule.n_devices
            if sizes != (wanted, schedule.n_microbatches):
                raise InputError(
                    f"times of {kind.name} of shape {time.shape} for {schedule.name}",
                    f"one for each of {wanted}, or of these and microbatches",
                )
            duration[ops] = time[row] if time.ndim == 1 else time[row, schedule.microbatch[ops]]
            if self.speed is not None and kind.info.stream == Stream.COMPUTE:
                duration[ops] /= self.speed[schedule.device[ops]]
        return duration

    @property
    def content(self) -> tuple[Any, ...]:
        """All numbers, in a form that is compared and hashed."""
        others = sorted(self.others.items())
        rows = [self.time, self.comm, self.pair, self.scale, self.speed, self.op_times]
        rows += [time for _, time in others]
        numbers = [None if row is None else np.asarray(row, np.float64) for row in rows]
        columns = (row if row is None else (row.shape, row.tobytes()) for row in numbers)
        kinds = (kind for kind, _ in others)
        return *columns, *kinds, self.unit, self.host_link, self.feedback

    @property
    def is_per_stage(self) -> bool:
        """True if an op's duration depends only on its kind and stage."""
        return self.scale is None and self.speed is None and self.op_times is None

    def check_fit(self, schedule: Schedule) -> None:
        """Check that the costs fit a schedule's stages, microbatches and devices.

        Raises:
            InputError: they do not fit, or the schedule has sends and receives.
        """
        comm = self.comm
        links = schedule.n_devices if isinstance(comm, float) or np.ndim(comm) == 0 else len(comm)
        # Three comparisons accept what fits, as small schedules are timed by the million.
        if (
            self.time.shape[1] != schedule.n_stages
            or links != schedule.n_devices
            or not schedule.only_computes
        ):
            prove_fit(schedule, self.time, self.comm)
        if not self.is_per_stage:
            prove_factors_fit(schedule, self.scale, self.speed)

    def factors(self, schedule: Schedule) -> NDArray[np.float64] | None:
        """Return the factor on the time of each op, shape (ops,), or None if all are 1."""
        if self.is_per_stage:
            return None
        factor = np.ones(len(schedule))
        if self.scale is not None:
            factor *= self.scale[schedule.kind, schedule.microbatch]
        if self.speed is not None:
            factor /= self.speed[schedule.device]
        return factor

    @staticmethod
    def of(
        of: PriceOf | None = None,
        *,
        F: Value | None = None,
        B: Value | None = None,
        I: Value | None = None,  # noqa: E741 - the field's letter
        W: Value | None = None,
        R: Value | None = None,
        FB: Value | None = None,
        comm: float = 0.0,
        per: str = "device",
        unit: str = "t_F",
        **others: Value,
    ) -> Prices:
        """Return prices of ops by the letters of their kinds, or by a function.

        Args:
            of: a function of kind, stages and microbatches, instead of the letters: ``lambda kind,
                stage, mb: ...``.
            F: time of a forward, by default 1, one number or one per stage; likewise for the other
                letters.
            B: time of a full backward, by default ``I + W``.
            I: time of a backward for the input, by default 1 or half of ``B``.
            W: time of a backward for the weights, by default 1 or the other half.
            R: time of a recompute, by default ``F``.
            FB: time of a pair of F and B, by default their sum.
            comm: latency of a message.
            per: ``device``: times are for a device's 1/P share of the model; ``stage``: times are
                for a stage, as those of a function always are.
            unit: name of the time unit.
            others: times of other kinds by their names, such as ``OFFLOAD=0.5``, per device if the
                kind has no stage; by default 0.

        Raises:
            InputError: no kind has such a name, or a function and times of kinds are given.
        """
        if of is not None and not callable(of):
            raise InputError(
                f"not a function of costs: {quote(of)}", "Costs.of(F=1, B=2) for numbers"
            )
        given = {"tf": F, "tb": B, "ti": I, "tw": W, "tr": R, "tfb": FB}
        numbers: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        if of is not None and (numbers or others):
            raise InputError(
                "a function of costs gives the times of all kinds, so no kind has another",
                "the function, or numbers such as F=1, B=2",
            )
        if others:
            numbers["others"] = {_other_kind(name): value for name, value in others.items()}
        return Prices(of, {**numbers, "comm": comm, "per": per, "unit": unit})

    def latencies(self, schedule: Schedule) -> NDArray[np.float64]:
        """Return the latency of each op's input, shape (ops,); zero on the same device."""
        return find_latencies(schedule, self.comm, self.feedback)


def count_in_steps(costs: Costs) -> Costs:
    """Return the costs as whole multiples of a common step, the same in every unit of time.

    Sums of whole numbers are exact, so times of 0.1, 0.2 and 0.3 give the same ties as 1, 2 and 3.
    If no step divides all times, it is :data:`FINEST_STEP` of the longest time.
    """
    comm = np.asarray(costs.comm, np.float64)
    pair = np.empty(0) if costs.pair is None else costs.pair
    parts = [costs.time, comm, pair, *costs.others.values()]
    longest = max(float(part.max(initial=0.0)) for part in parts)
    if longest <= 0:
        return costs
    steps = _steps_in_longest(np.unique(np.concatenate([part.ravel() for part in parts])) / longest)

    def counted(times: Floats) -> Floats:
        return np.rint(times / longest * steps)

    others = {kind: counted(times) for kind, times in costs.others.items()}
    latency = counted(comm) if comm.ndim else float(counted(comm))
    pairs = None if costs.pair is None else counted(costs.pair)
    return replace(costs, time=counted(costs.time), comm=latency, pair=pairs, others=others)


def _steps_in_longest(shares: Floats) -> float:
    """Return the smallest number of steps in the longest time with which all shares are whole.

    If that exceeds :data:`MOST_PARTS`, return the number of the finest steps.
    """
    from fractions import Fraction

    steps = 1
    for share in shares.tolist():
        fraction = Fraction(share).limit_denominator(MOST_PARTS)
        if abs(float(fraction) - share) > SAME * share:
            return 1 / FINEST_STEP
        steps = math.lcm(steps, fraction.denominator)
        if steps > MOST_PARTS:
            return 1 / FINEST_STEP
    return float(steps)


@dataclass(frozen=True)
class Prices:
    """Costs of ops in any schedule: a call with a schedule returns its :class:`Costs`."""

    # a function of a kind, and of arrays with the stages and microbatches of ops, that returns
    # their times; called once for each kind. None if ``numbers`` are sufficient.
    price_of: PriceOf | None
    numbers: dict[str, Any]  # arguments of :func:`ppsim.core.costs.costs_for`

    def __call__(self, schedule: Schedule) -> Costs:
        """Return the costs of a schedule (InputError: the function returns invalid times).

        A pair takes the sum of the function's times of its ops.
        """
        costs = costs_for(schedule, **self.numbers)
        if self.price_of is None:
            return costs
        each, time = np.zeros(len(schedule)), np.zeros_like(costs.time)
        for kind in TIMED:
            ops = np.flatnonzero(schedule.kind == kind)
            if not len(ops):
                continue
            stage = schedule.stage[ops]
            each[ops] = _checked_times(self.price_of(kind, stage, schedule.microbatch[ops]), ops)
            if kind not in COMPUTE:
                continue
            time[kind] = np.bincount(stage, each[ops], schedule.n_stages) / np.maximum(
                np.bincount(stage, minlength=schedule.n_stages), 1
            )
        first, second = schedule.first_of_pairs, schedule.second_of_pairs
        each[first] = each[second] = each[first] + each[second]
        if not (np.isfinite(each) & (each >= 0)).all():
            raise InputError(
                "a time must be zero or more and finite", "check the function's results"
            )
        return replace(costs, time=time, op_times=each)


def _checked_times(times: Any, ops: NDArray[np.int64]) -> Any:
    """Return the result of a user's function: one number, or one for each op (InputError: else)."""
    array = np.asarray(times)
    if array.dtype.kind not in "fiu" or array.shape not in ((), (1,), ops.shape):
        raise InputError(
            f"a function of costs returns a number or one for each of {len(ops)} ops, "
            f"got {quote(times)}",
            "lambda kind, stage, microbatch: 1.0 + 0.1 * stage",
        )
    return times


def find_latencies(
    schedule: Schedule, comm: float | NDArray[np.float64], feedback: float | None = None
) -> NDArray[np.float64]:
    """Return the latency of each op's input if a message takes ``comm``, shape (ops,); zero on the
    same device.

    The result that the last stage sends back takes ``feedback`` if given.
    """
    if np.ndim(comm) == 0 and not (schedule.has_lanes or schedule.feeds_back):
        return schedule.crosses * np.float64(comm)
    latency, sender = np.zeros(len(schedule)), find_senders(schedule)
    here = np.flatnonzero(sender >= 0)
    links = np.broadcast_to(comm, (schedule.n_devices,) * 2)
    source, target = schedule.device[sender[here]], schedule.device[here]
    latency[here] = np.where(source == target, 0.0, links[source, target])
    if feedback is not None:
        latency[schedule.awaits_feedback] = feedback
    return latency


def costs_for(
    schedule: Schedule,
    *,
    tf: Value = 1.0,
    tb: Value | None = None,
    ti: Value | None = None,
    tw: Value | None = None,
    tfb: Value | None = None,
    tr: Value | None = None,
    comm: float = 0.0,
    per: str = "device",
    unit: str = "t_F",
    others: Mapping[Kind, Value] = MappingProxyType({}),
    host_link: int = 0,
) -> Costs:
    """Return costs from a few numbers, each one value or one per stage.

    Without ``tb``, a full backward takes ``ti + tw`` (1 each by default); with only ``tb``, each
    half takes half of it. Without ``tr``, a recompute takes ``tf``. With ``per="device"`` times are
    for a device's 1/P share of the model, so a stage takes time x P / S, and one of K slices of a
    sequence a K-th of that; so schedules compare fairly on the same devices. With ``per="stage"``
    times are those of an op. ``others`` are times of other kinds, per stage, or per device and
    unscaled if they have no stage; ``host_link`` as in :class:`Costs`.

    Raises:
        InputError: a negative or non-finite value, a list of the wrong length, ti above tb, or
            another ``per``.
    """
    require_type("schedule", schedule, Schedule, EXAMPLE)
    require_type("others", others, Mapping, "{Kind.OFFLOAD: 0.5}")
    if not isinstance(per, str) or per not in ("device", "stage"):
        raise InputError(f"per is device or stage, got {quote(per)}", 'per="stage"')
    n = schedule.n_stages
    forward = _per_stage("tf", tf, n)
    given = {
        name: _per_stage(name, v, n)
        for name, v in (("tb", tb), ("ti", ti), ("tw", tw))
        if v is not None
    }
    if "tb" in given and "ti" not in given and "tw" not in given:
        given["ti"] = given["tw"] = given["tb"] / 2
    for half, other in (("ti", "tw"), ("tw", "ti")):
        if half not in given:
            given[half] = given["tb"] - given[other] if "tb" in given else np.ones(n)
            if (given[half] < 0).any():
                raise InputError(
                    f"{other} is larger than tb, of which it is a part",
                    f"give {half} as well, or a larger tb",
                )
    full = given.get("tb", given["ti"] + given["tw"])
    recompute = forward if tr is None else _per_stage("tr", tr, n)
    share = schedule.n_devices / (n * schedule.n_slices) if per == "device" else 1.0
    return Costs(
        time=np.stack([forward, full, given["ti"], given["tw"], recompute]) * share,
        comm=float(_per_stage("comm", comm, 1)[0]),
        pair=None if tfb is None else _per_stage("tfb", tfb, n) * share,
        unit=unit,
        others=price_others(schedule, others, per),
        host_link=host_link,
    )


def price_others(
    schedule: Schedule, given: Mapping[Kind, Value], per: str = "device"
) -> dict[Kind, Floats]:
    """Return :attr:`Costs.others` from a time for each kind; errors as in :func:`costs_for`."""
    share = schedule.n_devices / schedule.n_stages if per == "device" else 1.0
    found = {}
    for kind, value in given.items():
        require_type("others", kind, Kind, "Kind.OFFLOAD")
        slices = 1 if kind in ONCE_A_STEP else schedule.n_slices
        if kind.info.has_stage:
            found[kind] = _per_stage(kind.name, value, schedule.n_stages) * (share / slices)
        else:
            found[kind] = _per_stage(kind.name, value, schedule.n_devices, "devices") / slices
    return found


def _other_kind(name: str) -> Kind:
    """Return the kind with a name (InputError: there is none)."""
    known = [kind.name for kind in TIMED if kind not in COMPUTE]
    if name not in known:
        raise InputError(
            f"no kind of op is called '{name}'", f"one of F B I W R FB {' '.join(known)}"
        )
    return Kind[name]


def _per_stage(name: str, value: Value, n: int, noun: str = "stages") -> NDArray[np.float64]:
    """Return one value for each of ``n`` stages (or devices), from one value or ``n``."""
    try:
        given = np.atleast_1d(np.asarray(value))
        numeric = given.dtype.kind in "fiu"
        if given.dtype.kind == "O":
            numeric = all(isinstance(each, Real | Decimal) for each in given.flat)
        array = given.astype(np.float64) if numeric else given
    except (TypeError, ValueError, OverflowError):
        numeric = False
    if not numeric or array.ndim > 1:
        raise InputError(f"{name}: not a number, nor one per {noun[:-1]}: {quote(value)}", "1.5")
    if len(array) not in (1, n):
        raise InputError(
            f"{name} has {len(array)} values for {n} {noun}",
            f"give one value, or {n}",
        )
    if not ((array >= 0) & (array <= LONGEST)).all():
        got = ", ".join(f"{v:g}" for v in array)
        raise InputError(f"{name} must be zero or more, finite and at most {LONGEST:g}, got {got}")
    return np.full(n, array[0]) if len(array) == 1 else array
