"""Recompute: a schedule whose backwards, all or some, run their forward again first."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ppsim.core.lanes import refuse_lanes
from ppsim.core.ops import BACKWARDS, KIND_MASK, PAIRED, Kind, Packed, mask, pack
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError

MOST_STAGES = 100_000
RULE = re.compile(r"(full|none|(first|window):([0-9]{1,9}))(?:\*([1-9][0-9]{0,5}))?", re.ASCII)
EXPECTED = "full, none, first:N or window:N; one per stage with commas between (full*2,none is full,full,none)"


def parse_rules(text: str) -> list[str]:
    """Parse which microbatches run again: one rule for all stages, or one per stage with commas between.

    A rule is ``full``; ``none``; ``first:N``, the first N microbatches; or ``window:N``, all but the first N of every
    window of forwards, which is as long as the most that wait for their backward (Megatron's
    num-microbatches-with-partial-activation-checkpoints, arXiv 2205.05198, appendix C).

    Raises:
        InputError: it is none of these.
    """
    rules = list[str]()
    for part in text.split(","):
        match = RULE.fullmatch(part)
        if not match or len(rules) + int(match[4] or 1) > MOST_STAGES:
            raise InputError(f"'{text[:60]}' does not say what is recomputed", EXPECTED)
        rules += [match[1]] * int(match[4] or 1)
    return rules


def recompute_queue(queue: Packed, wanted: NDArray[np.bool_]) -> Packed:
    """Return a device's queue with an R right before every wanted B and I, or before the pair that holds it.

    Backwards whose R the queue has already, as one that runs it earlier, get no second one.
    """
    kind, cell = queue & KIND_MASK, queue & ~np.int64(KIND_MASK | PAIRED)
    back = np.flatnonzero(mask(BACKWARDS)[kind] & wanted)
    if (kind == Kind.R).any():
        back = back[~np.isin(cell[back], cell[kind == Kind.R])]
    second = np.append(False, queue[:-1] & PAIRED)[back] != 0
    return np.insert(queue, back - second, cell[back] | Kind.R)


def add_recompute(schedule: Schedule, rules: str = "full") -> Schedule:
    """Return the schedule with recompute by these rules (:func:`parse_rules`), queue by queue as
    :func:`recompute_queue` adds it.

    Raises:
        InputError: it has several streams, or the rules are neither one nor one per stage.
    """
    refuse_lanes(schedule, "recompute")
    of_stage = parse_rules(rules)
    if len(of_stage) not in (1, schedule.n_stages):
        said = f"{len(of_stage)} rules of recompute, and {schedule.name} has {schedule.n_stages} stages"
        raise InputError(said, "one rule for all stages, or one for each")
    again = _choose(schedule, of_stage)
    wanted = again[schedule.stage, schedule.microbatch]
    ops = pack(schedule.stage, schedule.microbatch) | schedule.kind
    ops[schedule.first_of_pairs] |= PAIRED
    owned = map(schedule.queue, range(schedule.n_devices))
    queues = (recompute_queue(ops[own], wanted[own]) for own in owned)
    return Schedule.from_queues(schedule.name, schedule.placement, schedule.n_microbatches, queues, schedule.n_slices)


def _choose(schedule: Schedule, of_stage: Sequence[str]) -> NDArray[np.bool_]:
    """Which stages run which microbatches again, shape (stages, microbatches)."""
    again = np.zeros((schedule.n_stages, schedule.n_microbatches), np.bool_)
    place = _place_in_window(schedule)
    whole = np.arange(schedule.n_microbatches) // schedule.n_slices
    for stage, rule in enumerate(of_stage):
        rows = slice(None) if len(of_stage) == 1 else slice(stage, stage + 1)
        name, _, count = rule.partition(":")
        if name == "first":
            again[rows] = whole < int(count)
        else:
            again[rows] = place[rows] >= int(count) if count else name == "full"
    return again


def _place_in_window(schedule: Schedule) -> NDArray[np.int64]:
    """The place of each forward in the windows of its device, shape (stages, microbatches)."""
    place = np.zeros((schedule.n_stages, schedule.n_microbatches), np.int64)
    forward = schedule.kind == Kind.F
    waiting = forward.astype(np.int64) - mask(BACKWARDS)[schedule.kind]
    for queue in map(schedule.queue, range(schedule.n_devices)):
        own = queue.start + np.flatnonzero(forward[queue])
        longest = max(int(np.cumsum(waiting[queue]).max(initial=1)), 1)
        place[schedule.stage[own], schedule.microbatch[own]] = np.arange(len(own)) % longest
    return place
