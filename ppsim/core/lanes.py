"""Lanes and inputs of ops on several streams, and groups of ops that start together.

A device's queue is the order in which its ops are issued. Ops of one stream run in that order, and
streams run in parallel; a lane is one stream of one device. All code here uses the rows of
:data:`ppsim.core.ops.KINDS`, so a new kind needs no code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import COMPUTE, TIMED, Kind, Need, Result, Stream, mask
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule

Found = TypeVar("Found")
NONE, MISSING = -1, -2
Indices = NDArray[np.int64]
_STREAM = np.array([kind.info.stream for kind in TIMED])
_NEEDS = [kind.info.needs for kind in TIMED]
_GATED = mask(kind for kind in TIMED if kind.info.gated)
_POSTS = mask(kind for kind in TIMED if kind.info.side == "post")
_EVERYWHERE = mask(kind for kind in TIMED if kind.info.on_all_devices)


@dataclass(frozen=True)
class Inputs:
    """The inputs of each op, in CSR form; the previous op on its lane is not among them."""

    offsets: Indices  # shape (ops + 1,), the bounds of each op's inputs
    # shape (inputs,), the ops that produce them; ``MISSING`` for a required input without one
    op: Indices
    # shape (inputs,), whether the input is a message from another device
    crosses_devices: NDArray[np.bool_]


class Waits(NamedTuple):
    """Pairs of an op and an op that it waits for, in columns of equal length.

    Waits for the previous op of the lane come first, then waits for inputs.
    """

    op: Indices  # the op that waits
    need: Indices  # the op awaited; ``MISSING`` if it is not in the queues
    on_lane: NDArray[np.bool_]  # whether the op awaited is the previous op of the lane
    message: NDArray[np.bool_]  # whether its result is a message from another device


def cached_per_schedule(find: Callable[[Schedule], Found]) -> Callable[[Schedule], Found]:
    """Return the function with its result cached in the schedule; callers must not modify it."""

    @wraps(find)
    def cached(schedule: Schedule) -> Found:
        known: dict[str, Any] = vars(schedule)
        if find.__qualname__ not in known:
            known[find.__qualname__] = find(schedule)
        return cast(Found, known[find.__qualname__])

    return cached


def lanes_of(schedule: Schedule) -> Indices:
    """Return the lane of each op, shape (ops,): device x streams + stream."""
    return schedule.device * np.int64(len(Stream)) + _STREAM[schedule.kind]


def used_streams(schedule: Schedule) -> tuple[Stream, ...]:
    """Return the streams other than compute that a schedule uses."""
    if not schedule.has_lanes:
        return ()
    used = np.bincount(_STREAM[schedule.kind], minlength=len(Stream))
    return tuple(stream for stream in Stream if stream != Stream.COMPUTE and used[stream])


@cached_per_schedule
def groups_of(schedule: Schedule) -> Indices:
    """Return the group of each op, shape (ops,), as the index of the group's first op.

    Ops that start and end together are a group: a pair, or an op on all devices.
    """
    group = np.arange(len(schedule), dtype=np.int64)
    group[schedule.second_of_pairs] -= 1
    shared = np.flatnonzero(_EVERYWHERE[schedule.kind])
    row = schedule.kind[shared] * np.int64(schedule.n_stages + 1) + schedule.stage[shared] + 1
    key = row * schedule.n_microbatches + schedule.microbatch[shared]
    _, first, member = np.unique(key, return_index=True, return_inverse=True)
    group[shared] = shared[first][member]
    return group


def share_durations(schedule: Schedule, duration: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return durations of ops, shape (ops,); all ops of a group take as long as the longest."""
    if not schedule.has_lanes:
        return duration
    group, longest = groups_of(schedule), np.zeros(len(schedule))
    np.maximum.at(longest, group, duration)
    return longest[group]


def find_inputs(schedule: Schedule) -> Inputs:
    """Return the inputs of every op: the neighbouring stage's result, then the other inputs."""
    ops = np.flatnonzero((schedule.dependency != NONE) & ~schedule.awaits_feedback)
    of_stage = (ops, schedule.dependency[ops].astype(np.int64), True)
    return _list_inputs(schedule, [of_stage, *_other_waits(schedule)])


def find_other_inputs(schedule: Schedule) -> Inputs:
    """Return the inputs that are not the neighbouring stage's result: the gating op, feedback, and
    the needs of the op's kind.

    A need whose result no op produces is left out, unless it is required.
    """
    return _list_inputs(schedule, _other_waits(schedule))


def _other_waits(schedule: Schedule) -> list[tuple[Indices, Indices, bool]]:
    """Return ops that wait, the op that each waits for, and whether its result can be a message."""
    fed = np.flatnonzero(schedule.awaits_feedback)
    found = [(*_gates(schedule), False), (fed, schedule.dependency[fed].astype(np.int64), True)]
    makers: dict[Result, Indices] = {}

    def made(result: Result) -> Indices:
        if result not in makers:
            makers[result] = _producers(schedule, result)
        return makers[result]

    for code in np.unique(schedule.kind).tolist():
        for need in _NEEDS[code]:
            waiting = np.flatnonzero(schedule.kind == code)
            if need.unless:
                instead = made(need.unless)[schedule.device[waiting], schedule.microbatch[waiting]]
                waiting = waiting[instead == NONE]
            found.append((*_find(schedule, waiting, need, made(need.result)), need.sent))
    return found


def _list_inputs(schedule: Schedule, found: list[tuple[Indices, Indices, bool]]) -> Inputs:
    """Return the inputs in the order of the ops that wait; those of one op keep their order."""
    target = np.concatenate([waiting for waiting, _, _ in found])
    source = np.concatenate([needed for _, needed, _ in found])
    message = np.repeat([sent for _, _, sent in found], [len(waiting) for waiting, _, _ in found])
    order = np.argsort(target, kind="stable")
    sent = schedule.awaits_feedback[target] | (schedule.device[source] != schedule.device[target])
    crosses = message & (source >= 0) & sent
    if posts_results(schedule):
        source[crosses] = _departures(schedule)[source[crosses]]
    offsets = np.searchsorted(target[order], np.arange(len(schedule) + 1))
    return Inputs(offsets, source[order], crosses[order])


@cached_per_schedule
def list_waits(schedule: Schedule) -> Waits:
    """Return all pairs of an op and an op that it waits for."""
    before, inputs = previous_on_lane(schedule), find_inputs(schedule)
    follows = np.flatnonzero(before != NONE)
    op = np.concatenate([follows, np.repeat(np.arange(len(schedule)), np.diff(inputs.offsets))])
    on_lane = np.arange(len(op)) < len(follows)
    message = np.concatenate([np.zeros(len(follows), np.bool_), inputs.crosses_devices])
    return Waits(op, np.concatenate([before[follows], inputs.op]), on_lane, message)


def find_senders(schedule: Schedule) -> Indices:
    """Return the op whose message each op receives, shape (ops,); -1 for none."""
    if not schedule.has_lanes:
        return np.where(schedule.crosses, schedule.dependency, NONE).astype(np.int64)
    waits, sender = list_waits(schedule), np.full(len(schedule), NONE, np.int64)
    sender[waits.op[waits.message]] = waits.need[waits.message]
    return sender


def previous_on_lane(schedule: Schedule) -> Indices:
    """Return the previous op on each op's lane, shape (ops,), -1 for none.

    For the second op of a pair it is the first.
    """
    lane = lanes_of(schedule)
    order = np.argsort(lane, kind="stable")
    before = np.full(len(schedule), NONE, np.int64)
    same = lane[order][1:] == lane[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def refuse_lanes(
    schedule: Schedule, feature: str, supports: Sequence[Kind] = COMPUTE, hint: str = ""
) -> None:
    """Raise InputError for a schedule with ops of kinds that a feature does not support.

    Args:
        schedule: the schedule to check.
        feature: the feature, as the subject of a sentence: "the search for orders".
        supports: the kinds that the feature supports.
        hint: a remedy.

    Raises:
        InputError: the schedule has another kind, or feeds results back.
    """
    if schedule.feeds_back and schedule.n_rounds > 1:
        raise InputError(
            f"{feature} cannot take {schedule.name}, whose last stage feeds results back to the "
            f"first",
            "ppsim run, compare, explain and sweep take it, with --comm, --link and --feedback",
        )
    other = (
        [Kind(kind) for kind in np.unique(schedule.kind) if kind not in supports]
        if schedule.has_lanes
        else []
    )
    if other:
        names = ", ".join(kind.name for kind in other)
        if Kind.OPT in other:
            hint = (
                "one step without its optimizer: leave out --steps, --t-optimizer and what goes "
                "with them"
            )
        hint = (
            hint
            or "a schedule of F, B, I and W; ppsim run, compare, explain and sweep take all as "
            "they are"
        )
        raise InputError(f"{feature} cannot take {names}, which {schedule.name} has", hint)


def _producers(schedule: Schedule, result: Result) -> Indices:
    """Return the op that produces each result, shape (stages or devices, M); -1 for none."""
    moved = {Result.ACTIVATION: 1, Result.GRADIENT: -1}.get(result)
    kinds = [kind for kind in TIMED if result == kind.info.result or moved == kind.info.direction]
    ops = np.flatnonzero(mask(kinds)[schedule.kind])
    by_stage = any(kind.info.has_stage for kind in kinds)
    made = np.full(
        (schedule.n_stages if by_stage else schedule.n_devices, schedule.n_microbatches),
        NONE,
        np.int64,
    )
    made[(schedule.stage if by_stage else schedule.device)[ops], schedule.microbatch[ops]] = ops
    return made


def _find(schedule: Schedule, ops: Indices, need: Need, made: Indices) -> tuple[Indices, Indices]:
    """Return the ops that wait for a need's result, and for each the op that produces it."""
    last = schedule.n_stages - 1
    if need.only:
        ops = ops[schedule.stage[ops] == (0 if need.only == "first" else last)]
    elif need.at in ("previous", "next"):
        ops = ops[schedule.stage[ops] != (0 if need.at == "previous" else last)]
    microbatch = schedule.microbatch[ops] + need.ahead
    if need.ahead:
        same_round = (
            microbatch // schedule.round_microbatches
            == schedule.microbatch[ops] // schedule.round_microbatches
        )
        ops, microbatch = ops[same_round], microbatch[same_round]
    if need.at == "any":
        made = made.max(axis=0, keepdims=True)
    row: Indices = {
        "own": schedule.stage[ops].astype(np.int64),
        "previous": schedule.stage[ops] - np.int64(1),
        "next": schedule.stage[ops] + np.int64(1),
        "device": schedule.device[ops].astype(np.int64),
        "first": np.zeros(len(ops), np.int64),
        "last": np.full(len(ops), last),
        "any": np.zeros(len(ops), np.int64),
    }[need.at]
    source = made[row, microbatch]
    if need.required:
        return ops, np.where(source == NONE, MISSING, source)
    return ops[source != NONE], source[source != NONE]


def posts_results(schedule: Schedule) -> bool:
    """Return whether a schedule has ops that post messages (POST)."""
    return schedule.has_lanes and bool(_POSTS[schedule.kind].any())


def _departures(schedule: Schedule) -> Indices:
    """Return the op that sends each op's result, shape (ops,): its POST, or the op itself."""
    leaves = np.arange(len(schedule))
    posts = np.flatnonzero(_POSTS[schedule.kind])
    for code in np.unique(schedule.kind[posts]).tolist():
        ops = posts[schedule.kind[posts] == code]
        makers = _producers(schedule, _NEEDS[code][0].result)
        result = makers[schedule.stage[ops], schedule.microbatch[ops]]
        is_local = (result != NONE) & (schedule.device[result] == schedule.device[ops])
        leaves[result[is_local]] = ops[is_local]
    return leaves


def _gates(schedule: Schedule) -> tuple[Indices, Indices]:
    """Return the gated ops, and the previous op of each in its device's compute stream."""
    place = np.where(_STREAM[schedule.kind] == Stream.COMPUTE, np.arange(len(schedule)), NONE)
    before = np.maximum.accumulate(place)
    ops = np.flatnonzero(_GATED[schedule.kind])
    ops = ops[before[ops] >= schedule.offsets[schedule.device[ops]]]
    return ops, before[ops]
