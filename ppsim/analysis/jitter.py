"""Iteration times under noise, slow devices and slow links, and how often rankings hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.base.workers import map_in_threads
from ppsim.core.costs import Costs
from ppsim.core.lanes import find_senders, groups_of
from ppsim.core.ops import TIMED, Stream, mask
from ppsim.core.schedule import Schedule
from ppsim.core.sequences import LinearTimes, linear_times
from ppsim.engine.simple.batch import Floats, Order, cut_samples, find_makespans, find_order
from ppsim.engine.simple.columns import size_object
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError

PERCENTILES = (50, 95, 99)
MOST_SAMPLES = 10_000_000
Link = tuple[int, int]


@dataclass(frozen=True)
class Noise:
    """Random deviations of hardware from its costs; every sample has new draws."""

    # standard deviation over mean of the time of each op, copy, collective and message, lognormal
    # with unchanged mean; an op of all devices has a draw for each, and takes the longest
    cv: float = 0.05
    slow_devices: int = 0  # number of random devices whose compute is slow; their copies are not
    slowdown: float = 1.5  # factor on the time of their ops
    slow_links: int = 0  # number of random slow links between two devices
    link_slowdown: float = 4.0  # factor on the time of their messages


@dataclass(frozen=True)
class Sampled:
    """One schedule under noise."""

    name: str  # as the user gave it
    schedule: Schedule
    unit: str  # of all times
    without_noise: float  # the makespan without noise
    makespans: Floats  # shape (samples,)

    def percentile(self, percent: float) -> float:
        """Return the makespan that this percentage of samples does not exceed."""
        return float(np.percentile(self.makespans, percent))


@dataclass(frozen=True)
class Sampler:
    """Draws iterations of one schedule."""

    schedule: Schedule
    order: Order  # in which its ops are timed
    duration: Floats  # shape (ops, 1), without noise
    # durations as functions of the factors of microbatches, if each sample draws these
    lengths: LinearTimes | None
    latency: Floats  # shape (ops, 1), of each op's input, without noise
    host_link: int  # number of devices that share a link to their host; 0 for separate links
    # shape (ops,), the device whose slowdown applies to the op; the number of devices for none
    slowed_by: NDArray[np.integer[Any]]
    # the ops that all devices run together, grouped
    shared_ops: NDArray[np.int64]
    # start of each group in ``shared_ops``; the op there stands for the group
    first: NDArray[np.int64]
    remote_inputs: NDArray[np.int64]  # the ops whose input comes from another device
    link: NDArray[np.int64]  # the link of each remote input
    sigma: float  # standard deviation of the noise's logarithm; 0 for no noise
    seed: tuple[int, int]  # of the random numbers, together with a chunk's first sample

    def draw(self, chunk: Chunk) -> Floats:
        """Return the makespans of a chunk of samples."""
        count, sigma = chunk.stop - chunk.first, self.sigma
        rng = np.random.default_rng((*self.seed, chunk.first))

        def noisy(mean: Floats) -> Floats:
            if not sigma:
                return np.repeat(mean, count // mean.shape[1], axis=1)
            factor = rng.standard_normal((len(mean), count))
            factor *= sigma
            factor -= sigma * sigma / 2
            return np.multiply(np.exp(factor, out=factor), mean, out=factor)

        drawn = (
            None
            if self.lengths is None or chunk.factors is None
            else self.lengths.durations(chunk.factors)
        )
        durations = noisy(self.duration if drawn is None else drawn)
        latencies = np.zeros((len(self.duration), count))
        latencies[self.remote_inputs] = noisy(self.latency[self.remote_inputs])
        if chunk.slow is not None:
            durations *= np.concatenate([chunk.slow, np.ones((1, count))]).take(
                self.slowed_by, axis=0
            )
        if len(self.shared_ops):
            slowest = np.maximum.reduceat(durations[self.shared_ops], self.first, axis=0)
            durations[self.shared_ops[self.first]] = slowest
        if chunk.slow_link is not None:
            latencies[self.remote_inputs] *= chunk.slow_link.take(self.link, axis=0)
        return find_makespans(self.schedule, self.order, durations, latencies, self.host_link)


class Chunk(NamedTuple):
    """Some samples of one schedule."""

    turn: int  # index of the schedule
    first: int  # its first sample
    stop: int  # the sample after its last
    slow: Floats | None  # shape (devices, samples), factors of computing, or None
    slow_link: Floats | None  # shape (links, samples), factors of messages, or None
    factors: Floats | None = None  # shape (microbatches, samples), factors of microbatches, or None


def draw_chunk(samplers: Sequence[Sampler], chunk: Chunk) -> Floats:
    """Return the makespans of a chunk of samples, from its schedule's sampler."""
    return samplers[chunk.turn].draw(chunk)


Draw = Callable[[Chunk], Floats]
Run = Callable[[Draw, Mapping[str, Chunk]], Mapping[str, Floats]]


def jitter(
    # schedules with their costs by name, all on the same devices
    runs: Mapping[str, tuple[Schedule, Costs]],
    noise: Noise,
    samples: int,  # number of iterations to draw
    # of the random numbers; the result does not depend on the number of cores
    seed: int = 0,
    # called with the share done and the current schedule's name, unless ``run`` does it
    progress: Callable[[float, str], None] = lambda done, what: None,
    # maps a function over all chunks; None for threads of this process
    run: Run | None = None,
    # shape (microbatches, samples), factors of microbatches in each sample, or None
    factors: Floats | None = None,
) -> list[Sampled]:
    """Return the makespans of schedules under noise.

    All schedules have the same slow devices and links, but separate noise of ops.

    Raises:
        InputError: noise that is negative, a slowdown below 1, more slow devices or links than
            there are, or more than ``MOST_SAMPLES`` samples.
        Deadlock: a schedule cannot finish.
    """
    links = sorted(
        set[Link]().union(*(zip(*_ends(schedule), strict=True) for schedule, _ in runs.values()))
    )
    devices = max((schedule.n_devices for schedule, _ in runs.values()), default=0)
    _check(noise, samples, devices, len(links))
    if noise.slow_links and not any(np.any(costs.comm) for _, costs in runs.values()):
        raise InputError(
            "slow links have no effect while messages take no time",
            "--comm, or a profile with links",
        )
    rng = np.random.default_rng(seed)
    slow = _factors(rng, samples, devices, noise.slow_devices, noise.slowdown)
    slow_link = _factors(rng, samples, len(links), noise.slow_links, noise.link_slowdown)
    samplers = [
        _sampler(schedule, costs, noise.cv, links, (seed, turn), devices, drawn=factors is not None)
        for turn, (schedule, costs) in enumerate(runs.values())
    ]
    chunks = {}
    for turn, (name, (schedule, _)) in enumerate(runs.items()):
        for first, stop in cut_samples(samples, len(schedule)):
            chunks[f"{name} {first}"] = Chunk(
                turn,
                first,
                stop,
                *(f if f is None else f[:, first:stop] for f in (slow, slow_link, factors)),
            )
    draw = partial(draw_chunk, samplers)
    makespans = run(draw, chunks) if run else _draw_in_threads(draw, chunks, progress)
    result = []
    for name, (schedule, costs) in runs.items():
        parts = [makespans[f"{name} {first}"] for first, _ in cut_samples(samples, len(schedule))]
        result.append(
            Sampled(
                name,
                schedule,
                costs.unit,
                simulate(schedule, costs).makespan,
                np.concatenate(parts),
            )
        )
    return result


def _draw_in_threads(
    draw: Draw, chunks: Mapping[str, Chunk], report: Callable[[float, str], None]
) -> dict[str, Floats]:
    """Return the makespans of all chunks, drawn in threads."""
    result = {}
    with map_in_threads(draw, chunks.values()) as results:
        for name, makespans in zip(chunks, results, strict=True):
            result[name] = makespans
            report(len(result) / len(chunks), name.rpartition(" ")[0])
    return result


def count_wins(sampled: Sequence[Sampled]) -> Floats:
    """Return the share of samples in which each schedule is the fastest, shape (schedules,).

    Schedules that tie share the sample.
    """
    times = np.stack([s.makespans for s in sampled])
    best = times == times.min(axis=0)
    share: Floats = (best / best.sum(axis=0)).mean(axis=1)
    return share


def rate_ranking(sampled: Sequence[Sampled]) -> float:
    """Return the share of samples with the same ranking as without noise."""
    kept = np.ones(len(sampled[0].makespans), np.bool_)
    for faster, slower in permutations(sampled, 2):
        if faster.without_noise < slower.without_noise:
            kept &= faster.makespans <= slower.makespans
    return float(kept.mean())


def spread_object(sampled: Sampled) -> dict[str, float]:
    """Return the JSON keys on the spread of one schedule's makespans."""
    times = {f"p{p}": sampled.percentile(p) for p in PERCENTILES}
    deviation = float(sampled.makespans.std()) if np.ptp(sampled.makespans) else 0.0
    return {"mean": float(sampled.makespans.mean()), "deviation": deviation, **times}


def jitter_object(
    sampled: Sequence[Sampled], noise: Noise, seed: int, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the object of ``ppsim jitter --json``, schema ``ppsim.jitter/1``."""
    rows = []
    for s, share in zip(sampled, count_wins(sampled).tolist(), strict=True):
        times = {f"p{p}": s.percentile(p) for p in PERCENTILES}
        rows.append(
            {"name": s.name, **size_object(s.schedule)}
            | {
                "unit": s.unit,
                "makespan": s.without_noise,
                "mean": float(s.makespans.mean()),
                **times,
                "wins": share,
            }
        )
    return {
        "schema": "ppsim.jitter/1",
        "inputs": dict(inputs),
        "noise": vars(noise),
        "samples": len(sampled[0].makespans),
        "seed": seed,
        "schedules": rows,
        "ranking_kept": rate_ranking(sampled),
    }


def _sampler(
    schedule: Schedule,
    costs: Costs,
    cv: float,
    links: Sequence[Link],
    seed: tuple[int, int],
    devices: int,
    *,
    drawn: bool,
) -> Sampler:
    place = {link: k for k, link in enumerate(links)}
    crossing = np.flatnonzero(find_senders(schedule) >= 0)
    computes = mask(kind for kind in TIMED if kind.info.stream == Stream.COMPUTE)[schedule.kind]
    shared = np.flatnonzero(mask(kind for kind in TIMED if kind.info.on_all_devices)[schedule.kind])
    group = groups_of(schedule)[shared]
    order = np.argsort(group, kind="stable")
    return Sampler(
        schedule=schedule,
        order=find_order(schedule),
        duration=costs.durations_by_device(schedule)[:, None],
        lengths=linear_times(schedule, costs) if drawn else None,
        latency=costs.latencies(schedule)[:, None],
        host_link=costs.host_link,
        slowed_by=np.where(computes, schedule.device, devices),
        shared_ops=shared[order],
        first=np.flatnonzero(np.diff(group[order], prepend=-1)),
        remote_inputs=crossing,
        link=np.array([place[pair] for pair in zip(*_ends(schedule), strict=True)], np.int64),
        sigma=float(np.sqrt(np.log1p(cv * cv))),
        seed=seed,
    )


def _factors(
    rng: np.random.Generator, samples: int, things: int, count: int, factor: float
) -> Floats | None:
    """Return ``factor`` for ``count`` random things in each sample, else 1; (things, samples).

    None if ``count`` is 0.
    """
    if count == 0:
        return None
    rank = rng.random((things, samples)).argsort(axis=0).argsort(axis=0)
    return np.where(rank < count, factor, 1.0)


def _ends(schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return the two devices of each message, lower first."""
    sender = find_senders(schedule)
    ops = np.flatnonzero(sender >= 0)
    ends = np.sort(np.stack([schedule.device[ops], schedule.device[sender[ops]]]), axis=0)
    return ends[0].tolist(), ends[1].tolist()


# Largest noise, so that sums of times do not overflow.
MOST = {"cv": 100.0, "slowdown": 1e6, "link_slowdown": 1e6}


def _check(noise: Noise, samples: int, devices: int, links: int) -> None:
    if samples < 1:
        raise InputError(f"samples must be at least 1, got {samples}")
    if samples > MOST_SAMPLES:
        raise InputError(
            f"{samples:,} samples, at most {MOST_SAMPLES:,} are drawn",
            "10,000 settle p99 to a few percent",
        )
    for name, value in vars(noise).items():
        if not 0 <= value < np.inf:
            raise InputError(
                f"{name.replace('_', ' ')} must be zero or more and finite, got {value:g}"
            )
        if name in MOST and value > MOST[name]:
            raise InputError(
                f"{name.replace('_', ' ')} of {value:g} is too large for noise",
                f"{MOST[name]:g} at most",
            )
        if name.endswith("slowdown") and value < 1:
            raise InputError(
                f"{name.replace('_', ' ')} must be 1 or more, got {value:g}",
                "2 takes twice as long",
            )
    for what, count, most in (
        ("devices", noise.slow_devices, devices),
        ("links", noise.slow_links, links),
    ):
        if count > most:
            raise InputError(f"{count} slow {what} asked for, there are {most}", f"at most {most}")
