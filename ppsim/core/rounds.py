"""Rounds: schedules that repeat the same queues, as for several steps or in decoding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import BACKWARDS, MICROBATCH_SHIFT, Kind, mask
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError

MOST_OPS = 200_000_000  # of all rounds; more ops exceed the memory of an ordinary machine


def repeat_rounds(schedule: Schedule, rounds: int) -> Schedule:
    """Return the queues of one round repeated ``rounds`` times, without a wait between rounds.

    If the schedule never flushes, forwards of a round run while the previous round would drain.

    Raises:
        InputError: the ops of so many rounds do not fit in memory.
    """
    if schedule.n_rounds != 1:
        raise InputError(f"{schedule.name} has several rounds already", "repeat a single round")
    if len(schedule) * rounds > MOST_OPS:
        raise InputError(
            f"{rounds} rounds of {len(schedule)} ops are over {MOST_OPS:,} ops, more than fits "
            f"in memory",
            "fewer --steps",
        )
    if rounds == 1:
        return schedule
    packed = schedule.packed()
    later = (np.arange(rounds, dtype=np.int64) * schedule.n_microbatches << MICROBATCH_SHIFT)[
        :, None
    ]
    queues = []
    for device in range(schedule.n_devices):
        queue = (packed[schedule.queue(device)] + later).ravel()
        queues.append(queue if schedule.flushes else queue[_merged_order(schedule, device, rounds)])
    made = Schedule.from_queues(
        schedule.name,
        schedule.placement,
        schedule.n_microbatches * rounds,
        queues,
        schedule.n_slices,
    )
    return replace(
        made,
        partial_recompute=schedule.partial_recompute,
        n_rounds=rounds,
        feeds_back=schedule.feeds_back,
        flushes=schedule.flushes,
    )


def _merged_order(schedule: Schedule, device: int, rounds: int) -> NDArray[np.int64]:
    """Return the order of the ops of several rounds without draining between them, shape (rounds x
    ops,).

    The warm-up forwards are those of one round; then forwards and backwards alternate. Other ops
    follow the backward that precedes them in the queue.
    """
    kind = np.tile(schedule.kind[schedule.queue(device)], rounds)
    forward, backward = kind == Kind.F, mask(BACKWARDS)[kind]
    ahead = int(np.argmax(backward)) if backward.any() else 0
    turn = np.where(forward, np.cumsum(forward), ahead + np.cumsum(backward) - 0.5)
    return np.argsort(turn, kind="stable")


def rounds_of(schedule: Schedule) -> NDArray[np.int64]:
    """Return the round of each op, shape (ops,)."""
    return schedule.microbatch // np.int64(schedule.round_microbatches)


def take_rounds(schedule: Schedule, costs: Costs, rounds: int) -> tuple[Schedule, Costs]:
    """Return a schedule whose rounds are the first round of this one, and its costs."""
    first = np.flatnonzero(rounds_of(schedule) == 0)
    one = schedule.take(first, n_microbatches=schedule.round_microbatches, n_rounds=1)
    scale = None if costs.scale is None else np.tile(costs.scale[:, : one.n_microbatches], rounds)
    each = None
    if costs.op_times is not None:
        durations = [costs.op_times[first[one.queue(device)]] for device in range(one.n_devices)]
        durations = [np.tile(of_round, rounds) for of_round in durations]
        if not one.flushes:
            durations = [
                of_device[_merged_order(one, device, rounds)]
                for device, of_device in enumerate(durations)
            ]
        each = np.concatenate(durations)
    others = {
        kind: np.tile(time[:, : one.n_microbatches], rounds) if time.ndim > 1 else time
        for kind, time in costs.others.items()
    }
    return repeat_rounds(one, rounds), replace(costs, scale=scale, op_times=each, others=others)
