"""Recompute: some or all backwards run their forward again first."""

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
    """Return the rules of recompute in a text: one for all stages, or one per stage.

    A rule is ``full``; ``none``; ``first:N``, the first N microbatches; ``window:N``, all but the
    first N of every window of forwards, whose length is the largest number of forwards that wait
    for their backward (Megatron's num-microbatches-with-partial-activation-checkpoints, arXiv
    2205.05198, appendix C); ``layers:N``, the first N layers of the stage (Megatron's
    recompute-num-layers with recompute-method block); or ``modules:A,B``, these modules of every
    layer (Megatron's recompute-modules). Commas separate rules.

    Raises:
        InputError: the text is not a list of rules.
    """
    rules, modules = list[str](), ""
    for part in text.split(","):
        match = RULE.fullmatch(part)
        if modules and not match and (match := MODULE.fullmatch(part)):
            del rules[-1]
        else:
            modules = ""
        if not match or len(rules) + int(match[2] or 1) > MOST_STAGES:
            raise InputError(f"not a rule of recompute: '{text[:60]}'", EXPECTED)
        rule = f"{modules},{match[1]}" if modules else match[1]
        rules += [rule] * int(match[2] or 1)
        modules = rule if rule.startswith("modules") and not match[2] else ""
    return rules


def rules_of(schedule: Schedule, text: str) -> list[str]:
    """Return the rule of each stage.

    Raises:
        InputError: the number of rules is neither one nor the number of stages.
    """
    rules = parse_rules(text)
    if len(rules) not in (1, schedule.n_stages):
        raise InputError(
            f"{len(rules)} rules of recompute, and {schedule.name} has {schedule.n_stages} stages",
            "one rule for all stages, or one for each",
        )
    return rules * (schedule.n_stages // len(rules))


def recompute_queue(queue: Packed, wanted: NDArray[np.bool_]) -> Packed:
    """Return a device's queue with an R directly before each chosen B and I, or before its pair.

    Backwards whose R is already in the queue get no second one.
    """
    kind, cell = queue & KIND_MASK, queue & ~np.int64(KIND_MASK | PAIRED)
    back = np.flatnonzero(mask(BACKWARDS)[kind] & wanted)
    if (kind == Kind.R).any():
        back = back[~np.isin(cell[back], cell[kind == Kind.R])]
    second = np.append(False, queue[:-1] & PAIRED)[back] != 0
    return np.insert(queue, back - second, cell[back] | Kind.R)


def add_recompute(schedule: Schedule, rules: str = "full") -> Schedule:
    """Return the schedule with recompute ops by the rules of :func:`parse_rules`.

    Raises:
        InputError: the schedule has several streams, or the number of rules is neither one nor the
            number of stages.
    """
    refuse_lanes(schedule, "recompute")
    rule_of_stage = rules_of(schedule, rules)
    recomputed = _choose(schedule, rule_of_stage)
    wanted = recomputed[schedule.stage, schedule.microbatch]
    ops, queues = schedule.packed(), map(schedule.queue, range(schedule.n_devices))
    partial = tuple(stage for stage, rule in enumerate(rule_of_stage) if rule.startswith(PARTS))
    return schedule.with_queues(
        (recompute_queue(ops[queue], wanted[queue]) for queue in queues), partial
    )


def _choose(schedule: Schedule, rule_of_stage: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether a stage recomputes a microbatch, shape (stages, microbatches)."""
    recomputed = np.zeros((schedule.n_stages, schedule.n_microbatches), np.bool_)
    place = _place_in_window(schedule)
    whole = np.arange(schedule.n_microbatches) // schedule.n_slices
    for stage, rule in enumerate(rule_of_stage):
        name, _, count = rule.partition(":")
        if name == "first":
            recomputed[stage] = whole < int(count)
        elif name == "window":
            recomputed[stage] = place[stage] >= int(count)
        else:
            recomputed[stage] = rule not in ("none", "layers:0")
    return recomputed


def _place_in_window(schedule: Schedule) -> NDArray[np.int64]:
    """Return the place of each forward in its device's window, shape (stages, microbatches)."""
    place = np.zeros((schedule.n_stages, schedule.n_microbatches), np.int64)
    forward = schedule.kind == Kind.F
    waiting = forward.astype(np.int64) - mask(BACKWARDS)[schedule.kind]
    for queue in map(schedule.queue, range(schedule.n_devices)):
        ops = queue.start + np.flatnonzero(forward[queue])
        longest = max(int(np.cumsum(waiting[queue]).max(initial=1)), 1)
        place[schedule.stage[ops], schedule.microbatch[ops]] = np.arange(len(ops)) % longest
    return place
