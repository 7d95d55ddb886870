"""Chunks of a long prompt: sizes that take equal times, and the time to the first token.

A chunk of x tokens after a prefix of L tokens takes t(L, x) = c + g L + b x + a (2 L x + x^2) on a
stage: c per chunk, g to read a token of the prefix, b for the matrix products of a token, a for
attention between two tokens. Later chunks of the same size take longer. Fewer chunks cost less c;
more chunks fill the pipeline sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ppsim.core.law import Law

Floats = NDArray[np.float64]
MOST_CHUNKS = 256  # of a prompt in the search for sizes
MOST_SIZES = 4096  # fixed sizes that are tried
HALVINGS = 50  # bisection steps for the time of equal chunks


@dataclass(frozen=True)
class Cut:
    """A prompt as chunks."""

    sizes: tuple[int, ...]  # tokens of each chunk
    time: float  # to the first token: the makespan of the chunks over all stages


@dataclass(frozen=True)
class Chunking:
    """The best chunks of a prompt, of equal times and of one size."""

    equal_times: Cut  # chunks that take equal times, or of one size if that is faster
    fixed: Cut  # the best chunks of one size
    bound: float  # a lower bound on the time to the first token, for all sizes


@dataclass(frozen=True)
class Pipeline:
    """The pipeline that chunks pass through."""

    stages: tuple[float, ...]  # factor of each stage on the law's times
    latency: float = 0.0  # of a message between two stages

    def time(self, times: Floats) -> float:
        """Return the time at which the last stage ends the last chunk."""
        ends = np.zeros(len(times))
        for number, factor in enumerate(self.stages):
            done = np.cumsum(factor * times)
            arrives = ends + (self.latency if number else 0.0)
            ends = done + np.maximum.accumulate(arrives - done + factor * times)
        return float(ends[-1])


def cut_fixed(length: int, size: int) -> tuple[int, ...]:
    """Return the sizes of a prompt's chunks of one size, the last one smaller if need be."""
    whole, rest = divmod(length, size)
    return (size,) * whole + ((rest,) if rest else ())


@lru_cache(maxsize=64)
def find_chunking(length: int, page: int, law: Law, pipeline: Pipeline) -> Chunking:
    """Return the best chunks of a prompt of ``length`` tokens; all but the last are whole pages.

    ``page`` is the number of tokens in a page.
    """
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
    """Yield the cut with the shortest longest chunk, for each number of chunks that may win."""
    least, slowest = law.times([length])[0] - law.chunk, max(pipeline.stages)
    for chunks in range(1, min(MOST_CHUNKS, -(-length // page)) + 1):
        if slowest * (chunks * law.chunk + least) > known and chunks > 1:
            return
        found = cut_equal(length, page, law, chunks)
        if found is not None:
            yield Cut(found, pipeline.time(law.times(found)))


def cut_equal(length: int, page: int, law: Law, chunks: int) -> tuple[int, ...] | None:
    """Return at most ``chunks`` sizes with the least time of the longest; None if pages are too
    large.
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
    """Return sizes of at most ``most`` chunks that take at most ``time`` each, or None."""
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
    """Return a lower bound on the time to the first token, for all sizes of chunks.

    It is the least over the number n of chunks of their work on one stage, plus the longest chunk
    on each other stage. The work is at least n c + b X + a X^2, plus g for prefixes that grow by at
    least a page; the longest chunk takes at least an n-th of it. All stages are as fast as the
    fastest, or the slowest runs all work.
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
