"""Recompute: backwards, all or some, first run their forward again."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ppsim.core.lanes import refuse_lanes
from ppsim.core.ops import BACKWARDS, KIND_MASK, PAIRED, Kind, Packed, mask
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError

MOST_STAGES = 100_000
_TIMES = r"(?:\*([1-9][0-9]{0,5}))?"
RULE = re.compile(
    r"(full|none|(?:first|window|layers):[0-9]{1,9}|modules:[a-z_]+)" + _TIMES, re.ASCII
)
MODULE = re.compile(r"([a-z_]+)" + _TIMES, re.ASCII)
PARTS = ("layers", "modules")
EXPECTED = (
    "full, none, first:N, window:N, layers:N or modules:core_attn,mlp; one per stage with commas "
    "between (full*2,none is full,full,none)"
)


def parse_rules(text: str) -> list[str]:
    """Parse the rules of recompute: one for all stages, or one per stage, separated by commas.

    A rule is ``full``; ``none``; ``first:N``, the first N microbatches; ``window:N``, all but the
    first N of every window of forwards, which is as long as the most that wait for their backward
    (Megatron's num-microbatches-with-partial-activation-checkpoints, arXiv 2205.05198, appendix C);
    ``layers:N``, the first N layers of the stage (Megatron's recompute-num-layers with
    recompute-method block); or ``modules:A,B``, these modules of every layer (its
    recompute-modules).

    Raises:
        InputError: it is none of these.
    """
    rules, modules = list[str](), ""
    for part in text.split(","):
        match = RULE.fullmatch(part)
        if modules and not match and (match := MODULE.fullmatch(part)):
            del rules[-1]
        else:
            modules = ""
        if not match or len(rules) + int(match[2] or 1) > MOST_STAGES:
            raise InputError(f"'{text[:60]}' does not say what is recomputed", EXPECTED)
        rule = f"{modules},{match[1]}" if modules else match[1]
        rules += [rule] * int(match[2] or 1)
        modules = rule if rule.startswith("modules") and not match[2] else ""
    return rules


def rules_of(schedule: Schedule, text: str) -> list[str]:
    """Return the rule of each stage. InputError: the number of rules is neither one nor that of the
    stages.
    """
    rules = parse_rules(text)
    if len(rules) not in (1, schedule.n_stages):
        said = (
            f"{len(rules)} rules of recompute, and {schedule.name} has {schedule.n_stages} stages"
        )
        raise InputError(said, "one rule for all stages, or one for each")
    return rules * (schedule.n_stages // len(rules))


def recompute_queue(queue: Packed, wanted: NDArray[np.bool_]) -> Packed:
    """Return a device's queue with an R directly before each chosen B and I, or before its pair.

    Backwards whose R the queue has already, as one that runs it earlier, get no second one.
    """
    kind, cell = queue & KIND_MASK, queue & ~np.int64(KIND_MASK | PAIRED)
    back = np.flatnonzero(mask(BACKWARDS)[kind] & wanted)
    if (kind == Kind.R).any():
        back = back[~np.isin(cell[back], cell[kind == Kind.R])]
    second = np.append(False, queue[:-1] & PAIRED)[back] != 0
    return np.insert(queue, back - second, cell[back] | Kind.R)


def add_recompute(schedule: Schedule, rules: str = "full") -> Schedule:
    """Return the schedule with recompute ops by these rules (see :func:`parse_rules` and
    :func:`recompute_queue`).

    Raises:
        InputError: it has several streams, or the rules are neither one nor one per stage.
    """
    refuse_lanes(schedule, "recompute")
    of_stage = rules_of(schedule, rules)
    again = _choose(schedule, of_stage)
    wanted = again[schedule.stage, schedule.microbatch]
    ops, owned = schedule.packed(), map(schedule.queue, range(schedule.n_devices))
    partly = tuple(stage for stage, rule in enumerate(of_stage) if rule.startswith(PARTS))
    return schedule.with_queues((recompute_queue(ops[own], wanted[own]) for own in owned), partly)


def _choose(schedule: Schedule, of_stage: Sequence[str]) -> NDArray[np.bool_]:
    """Return which stages recompute which microbatches, shape (stages, microbatches)."""
    again = np.zeros((schedule.n_stages, schedule.n_microbatches), np.bool_)
    place = _place_in_window(schedule)
    whole = np.arange(schedule.n_microbatches) // schedule.n_slices
    for stage, rule in enumerate(of_stage):
        name, _, count = rule.partition(":")
        if name == "first":
            again[stage] = whole < int(count)
        elif name == "window":
            again[stage] = place[stage] >= int(count)
        else:
            again[stage] = rule not in ("none", "layers:0")
    return again


def _place_in_window(schedule: Schedule) -> NDArray[np.int64]:
    """Return the place of each forward in its device's window, shape (stages, microbatches)."""
    place = np.zeros((schedule.n_stages, schedule.n_microbatches), np.int64)
    forward = schedule.kind == Kind.F
    waiting = forward.astype(np.int64) - mask(BACKWARDS)[schedule.kind]
    for queue in map(schedule.queue, range(schedule.n_devices)):
        own = queue.start + np.flatnonzero(forward[queue])
        longest = max(int(np.cumsum(waiting[queue]).max(initial=1)), 1)
        place[schedule.stage[own], schedule.microbatch[own]] = np.arange(len(own)) % longest
    return place
