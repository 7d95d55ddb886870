"""Remedies for a slow job: each is simulated, with everything else as measured."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.slowdown import Slowdown
from ppsim.base.numbers import format_share

Ints = NDArray[np.int64]
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Mending:
    """A remedy."""

    text: str  # a description
    step: float  # the mean step with this remedy
    # for a step, the microbatches of each replica in order, as (original replica, microbatch)
    order: list[list[tuple[int, int]]] = field(default_factory=list)


def mend(found: Slowdown) -> list[Mending]:
    """Return the remedies of a job, the largest saving first."""
    changes = [*_workers(found), *_links(found), *_stages(found), *_sequences(found)]
    return sorted(changes, key=lambda change: change.step)


def advise_job(changes: list[Mending], found: Slowdown) -> str:
    """Return one sentence: the remedy to apply first, and its saving."""
    step = float(found.steps.mean())
    best = changes[0] if changes else None
    if best is None or not best.step < step * (1 - 1e-3):
        return "none of these changes makes the job's step shorter: its ops and messages are alike"
    less = format_share(1 - best.step / step)
    whose = " of all replicas" if len(found.job.replicas) > 1 else ""
    return f"first: {best.text}, {less} less time per step{whose}"


def slowest_link(found: Slowdown) -> tuple[int, int, int, float] | None:
    """Return the slowest link: replica, source, target, and its median over that of all links.

    None if all links are equally fast.
    """
    schedule = found.job.schedule
    ops = np.flatnonzero(schedule.crosses)
    if not len(ops):
        return None
    over = np.maximum(found.measured.transfer - found.ideal.transfer, 0.0)[..., ops].sum(axis=0)
    source, target = schedule.device[schedule.dependency[ops]], schedule.device[ops]
    P = schedule.n_devices
    link = source.astype(np.int64) * P + target
    lost = np.stack([np.bincount(link, row) for row in over])
    if not lost.max() > 0:
        return None
    replica, worst = np.unravel_index(int(lost.argmax()), lost.shape)
    transfers = found.measured.transfer[:, replica][:, ops[link == worst]]
    typical = float(np.median(found.ideal.transfer[0, 0, ops[link == worst]]))
    ratio = float(np.median(transfers)) / typical if typical else 1.0
    return int(replica), int(worst) // P, int(worst) % P, ratio


def _workers(found: Slowdown) -> Iterator[Mending]:
    job = found.job
    replica, device = found.slowest[0]
    worst = int(found.by_device_steps.mean(axis=0).argmax())
    R = len(job.replicas)
    if R > 1:
        yield Mending(
            f"replica {job.replicas[replica]}'s device {device} as the others",
            found.step_with_healthy([(replica, device)]),
        )
    if job.schedule.n_devices > 1:
        whose = "in all replicas " if R > 1 else ""
        yield Mending(
            f"device {worst} {whose}as the others",
            found.step_with_healthy([(r, worst) for r in range(R)]),
        )


def _links(found: Slowdown) -> Iterator[Mending]:
    link = slowest_link(found)
    if link is None:
        return
    replica, source, target, _ = link
    schedule = found.job.schedule
    own = (
        schedule.crosses
        & (schedule.device == target)
        & (schedule.device[schedule.dependency] == source)
    )
    transfer = found.measured.transfer.copy()
    transfer[:, replica, own] = found.ideal.transfer[0, 0, own]
    name = f"replica {found.job.replicas[replica]}'s link {source}>{target} as the others"
    yield Mending(name, float(found.step(replace(found.measured, transfer=transfer)).mean()))


def _stages(found: Slowdown) -> Iterator[Mending]:
    """Yield the remedy that all stages take the same mean time for each kind of op.

    Microbatches and devices still vary.
    """
    schedule, ops = found.job.schedule, found.measured.ops
    if schedule.n_stages == 1:
        return
    each = ops.mean(axis=(0, 1))
    label = schedule.work
    factor = np.ones(len(schedule))
    for kind in np.unique(label).tolist():
        alike = label == kind
        time, stage = each[alike], schedule.stage[alike]
        count = np.bincount(stage, minlength=schedule.n_stages)
        mean = np.bincount(stage, time, schedule.n_stages) / np.maximum(count, 1)
        of_op = mean[stage]
        factor[alike] = np.where(of_op > 0, time.mean() / np.where(of_op > 0, of_op, 1.0), 1.0)
    if len(schedule.second_of_pairs):
        first, second = schedule.first_of_pairs, schedule.second_of_pairs
        factor[first] = factor[second] = (factor[first] + factor[second]) / 2
    yield Mending(
        "stages split evenly", float(found.step(replace(found.measured, ops=ops * factor)).mean())
    )


def _sequences(found: Slowdown) -> Iterator[Mending]:
    """Yield remedies for unequal microbatches: equal lengths, another order, another dealing."""
    job, ops = found.job, found.measured.ops
    schedule, M = job.schedule, job.schedule.n_microbatches
    places = np.lexsort((schedule.microbatch, schedule.stage, schedule.kind))
    table = places.reshape(-1, M) if len(places) % M == 0 else None
    if M == 1 or len(schedule.second_of_pairs) or schedule.n_slices > 1 or table is None:
        return
    size = ops[..., table].sum(axis=2)  # (K, R, M)
    even = size.mean(axis=(1, 2), keepdims=True) / np.where(size > 0, size, 1.0)
    yield Mending(
        "all microbatches as long",
        float(found.step(replace(found.measured, ops=ops * even[..., schedule.microbatch])).mean()),
    )
    R = len(job.replicas)
    same = np.broadcast_to(np.arange(R)[:, None], size.shape[1:])
    ways = [
        (
            "each replica's microbatches",
            [(same, np.argsort(-step, axis=1, kind="stable")) for step in size],
        )
    ]
    if R > 1:
        ways.append(("microbatches dealt again among replicas", [_deal(step) for step in size]))
    for text, dealt in ways:
        tried = []
        for order, name in (
            (slice(None), "longest first"),
            (slice(None, None, -1), "shortest first"),
        ):
            replica, microbatch = (np.stack(part)[..., order] for part in zip(*dealt, strict=True))
            moved = np.empty_like(ops)
            steps = np.arange(len(ops))[:, None, None]
            for row in table:
                moved[:, :, row] = ops[steps, replica, row[microbatch]]
            time = float(found.step(replace(found.measured, ops=moved)).mean())
            tried.append(Mending(f"{text}, {name}", time, _order(found, replica, microbatch)))
        yield min(tried, key=lambda change: change.step)


def _order(found: Slowdown, replica: Ints, microbatch: Ints) -> list[list[tuple[int, int]]]:
    """Return the order of the median step: each replica's microbatches as (replica, microbatch)."""
    at = int(np.argsort(found.steps)[(len(found.steps) - 1) // 2])
    whose = found.job.replicas[replica[at]].tolist()
    return [
        list(zip(*row, strict=True)) for row in zip(whose, microbatch[at].tolist(), strict=True)
    ]


def _deal(size: Times) -> tuple[Ints, Ints]:
    """Return a greedy dealing of a step's microbatches, as replicas and microbatches, (R, M) each.

    The longest goes first, to the replica with the least work. ``size`` has shape (R, M).
    """
    R, M = size.shape
    load = [(0.0, r) for r in range(R)]
    hands: list[list[int]] = [[] for _ in range(R)]
    for each in np.argsort(-size, axis=None, kind="stable").tolist():
        total, r = heapq.heappop(load)
        hands[r].append(each)
        if len(hands[r]) < M:
            heapq.heappush(load, (total + float(size.flat[each]), r))
    return np.divmod(np.array(hands, np.int64), M)


def mended_object(changes: list[Mending], found: Slowdown) -> list[dict[str, Any]]:
    """Return the remedies for JSON, each with its saving per step."""
    step = float(found.steps.mean()) or 1.0
    return [
        {"what": change.text, "step": change.step, "saves": 1.0 - change.step / step}
        | ({"order": change.order} if change.order else {})
        for change in changes
    ]
