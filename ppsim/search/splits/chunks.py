"""Chunks of a long prompt: sizes that take equal times, and the time to the first token.

A chunk of x tokens behind a prefix of L takes t(L, x) = c + g L + b x + a (2 L x + x^2) on a stage:
c for each chunk, g to read a token of the prefix, b for the products of a token, a for a pair of
tokens that attend. Later chunks of one size take longer. Fewer chunks pay less c, more chunks fill
the pipeline sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ppsim.core.law import Law

Floats = NDArray[np.float64]
MOST_CHUNKS = 256  # that a prompt is cut into where sizes are searched
MOST_SIZES = 4096  # fixed sizes that are tried
HALVINGS = 50  # of the time that equal chunks take


@dataclass(frozen=True)
class Cut:
    """A prompt as chunks."""

    sizes: tuple[int, ...]  # tokens of each chunk
    time: float  # to the first token: the makespan of the chunks over all stages


@dataclass(frozen=True)
class Chunking:
    """The best chunks of a prompt, of equal times and of one size."""

    equal_times: Cut  # sizes that take equal times, or one size where that is faster
    fixed: Cut  # the best of one size
    bound: float  # a time to the first token that no sizes beat


@dataclass(frozen=True)
class Pipeline:
    """The pipeline that chunks pass through."""

    stages: tuple[float, ...]  # how many times as long as by the law each stage takes
    latency: float = 0.0  # of a message between two stages

    def time(self, times: Floats) -> float:
        """Return when the last stage ends the last chunk, each stage running all chunks in
        order.
        """
        ends = np.zeros(len(times))
        for number, factor in enumerate(self.stages):
            done = np.cumsum(factor * times)
            arrives = ends + (self.latency if number else 0.0)
            ends = done + np.maximum.accumulate(arrives - done + factor * times)
        return float(ends[-1])


def cut_fixed(length: int, size: int) -> tuple[int, ...]:
    """Cut a prompt into chunks of one size, the last one smaller."""
    whole, rest = divmod(length, size)
    return (size,) * whole + ((rest,) if rest else ())


@lru_cache(maxsize=64)
def find_chunking(length: int, page: int, law: Law, pipeline: Pipeline) -> Chunking:
    """Return the best chunks of a prompt of ``length`` tokens; all but the last are whole pages."""
    fixed = min(_cuts_of_one_size(length, page, law, pipeline), key=_rank)
    best = min([fixed, *_cuts_of_equal_times(length, page, law, pipeline, fixed.time)], key=_rank)
    return Chunking(best, fixed, _bound(length, page, law, pipeline))


def _rank(cut: Cut) -> tuple[float, int]:
    return cut.time, len(cut.sizes)


def _cuts_of_one_size(length: int, page: int, law: Law, pipeline: Pipeline) -> Iterator[Cut]:
    most = -(-length // page)
    step = -(-most // MOST_SIZES)
    for pages in range(most, 0, -step):
        if -(-length // (pages * page)) > MOST_CHUNKS:
            return
        sizes = cut_fixed(length, pages * page)
        yield Cut(sizes, pipeline.time(law.times(sizes)))


def _cuts_of_equal_times(
    length: int, page: int, law: Law, pipeline: Pipeline, known: float
) -> Iterator[Cut]:
    """Yield the cut of each number of chunks whose longest chunk is shortest, as long as one may be
    the best.
    """
    least, slowest = law.times([length])[0] - law.chunk, max(pipeline.stages)
    for chunks in range(1, min(MOST_CHUNKS, -(-length // page)) + 1):
        if slowest * (chunks * law.chunk + least) > known and chunks > 1:
            return
        found = cut_equal(length, page, law, chunks)
        if found is not None:
            yield Cut(found, pipeline.time(law.times(found)))


def cut_equal(length: int, page: int, law: Law, chunks: int) -> tuple[int, ...] | None:
    """Return a cut into at most ``most`` chunks with the least time of the longest chunk; None if
    pages are too large.
    """
    low, high = 0.0, float(law.times([length])[0]) + law.prefix * length
    found = None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        sizes = _cut_by_time(length, page, law, middle, chunks)
        if sizes is None:
            low = middle
        else:
            high, found = middle, sizes
    return found


def _cut_by_time(
    length: int, page: int, law: Law, time: float, most: int
) -> tuple[int, ...] | None:
    """Cut a prompt into chunks that take at most a time each; None where that are more than
    ``most`` chunks.
    """
    sizes, before = list[int](), 0
    while before < length:
        if len(sizes) == most:
            return None
        room = law.largest(before, time) * (1 + 1e-12)
        size = length - before
        if room < size:
            size = int(room) // page * page
            if size == 0:
                return None
        sizes.append(size)
        before += size
    return tuple(sizes)


def _bound(length: int, page: int, law: Law, pipeline: Pipeline) -> float:
    """Return a time that no chunks beat: of every number of them all their work, and the longest on
    other stages.

    The work of n chunks is at least n c + b X + a X^2, and g for prefixes of at least k pages; the
    longest takes an n-th of it at least. Stages are taken as fast as the fastest, or the slowest
    alone runs all.
    """
    chunks = np.arange(1, -(-length // page) + 1, dtype=np.float64)
    prefixes = page * chunks * (chunks - 1) / 2
    work = (
        chunks * law.chunk
        + law.token * length
        + law.pair * float(length) ** 2
        + law.prefix * prefixes
    )
    others = len(pipeline.stages) - 1
    through = min(pipeline.stages) * work * (1 + others / chunks)
    slowest = max(pipeline.stages) * work
    return float(np.maximum(through, slowest).min()) + others * pipeline.latency
