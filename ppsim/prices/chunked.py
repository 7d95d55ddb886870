"""Prefill of a long prompt in chunks: the best sizes, and their gain over one size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ppsim.ask.groups import ShapeOptions
from ppsim.ask.words import count_text
from ppsim.base.numbers import format_number, format_share
from ppsim.errors import InputError
from ppsim.prices.part import Asked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.core.law import Law
    from ppsim.core.schedule import Schedule
    from ppsim.inputs.profile.chunk_times import FittedLaw
    from ppsim.search.splits.chunks import Chunking, Cut, Pipeline

PAGE = 64
FORWARD_ONLY = "forward-only"
MOST_SIZES = 12  # of chunks that are written out


@dataclass(frozen=True)
class Chunks:
    """The chunks that run, and the best there are."""

    run: Cut  # the chunks that run
    best: Chunking  # of equal times and of one size
    unit: str  # of times
    fitted_law: FittedLaw | None = None  # the law, where it is fitted to measured chunks

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--json``; times in the unit of the costs."""
        return {
            "sizes": self.run.sizes,
            "time_to_first_token": self.run.time,
            "equal_sizes": self.best.equal_times.sizes,
            "equal_time": self.best.equal_times.time,
            "fixed_size": self.best.fixed.sizes[0],
            "fixed_time": self.best.fixed.time,
            "time_bound": self.best.bound,
            **({"law": asdict(self.fitted_law)} if self.fitted_law else {}),
        }

    def lines(self) -> Iterator[str]:
        """Yield lines on the chunks, the time to the first token of both ways to cut, and the
        bound.
        """
        best = self.best
        yield f"{_chunk_count_text(self.run)}: {_sizes(self.run)} tokens"
        rows = [
            ("equal times", best.equal_times),
            (f"best one size, {best.fixed.sizes[0]:,}", best.fixed),
        ]
        if self.run.sizes not in (best.equal_times.sizes, best.fixed.sizes):
            rows.insert(0, (f"one size, {self.run.sizes[0]:,}", self.run))
        for name, cut in rows:
            yield (
                f"time to first token, {name}: {format_number(cut.time)} {self.unit} in "
                f"{_chunk_count_text(cut)}"
            )
        gap = (
            format_share(1 - best.bound / best.equal_times.time) if best.equal_times.time else "0%"
        )
        if fit := self.fitted_law:
            law = ",".join(f"{number:.6g}" for number in fit.numbers)
            errors = (
                f"{format_share(fit.median_error)} off in the middle, "
                f"{format_share(fit.worst_error)} at most"
            )
            yield f"law fitted to {count_text(fit.chunks, 'chunk')}: --law {law}, {errors}"
        yield (
            f"no sizes take less than {format_number(best.bound)} {self.unit}, {gap} below the best"
        )


def shape_of_chunks(spec: str | Schedule, shape: ShapeOptions, asked: Asked) -> ShapeOptions:
    """Return the shape with a microbatch for each chunk.

    Raises:
        InputError: another schedule than forward-only, several stages on a device, or options that
            that give no chunks.
    """
    from ppsim.schedules import family_of

    family = family_of(spec) if isinstance(spec, str) else None
    if family is None or family.name != FORWARD_ONLY:
        name = spec if isinstance(spec, str) else spec.name
        raise InputError(f"--chunked needs forward-only, and this is {name}", FORWARD_ONLY)
    devices = shape.devices or shape.stages
    if devices is None:
        raise InputError("the number of devices is missing", "give --devices")
    if (shape.chunks or 1) != 1 or (shape.stages or devices) != devices or ":" in str(spec):
        raise InputError("--chunked runs one stage on each device", "leave out --chunks")
    return replace(shape, microbatches=len(chunks_of(asked, devices, shape.microbatches).run.sizes))


def count_chunks(spec: str, asked: Asked, devices: int) -> int:
    """Count the chunks of a prompt on so many devices; 1 for a schedule without chunks."""
    try:
        return shape_of_chunks(spec, ShapeOptions(devices=devices), asked).microbatches or 1
    except InputError:
        return 1


def times_of_chunks(asked: Asked, devices: int, number: int) -> NDArray[np.float64]:
    """Return the time of each of so many chunks by the law, shape (chunks,)."""
    return law_of_chunks(asked)[0].times(chunks_of(asked, devices, number).run.sizes)


def chunks_of(asked: Asked, devices: int, number: int | None = None) -> Chunks:
    """Find the chunks that the options ask for, ``number`` of equal times or the best number of
    them.

    Raises:
        InputError: no law, no size of a chunk, or so many chunks are not possible.
    """
    from ppsim.search.splits.chunks import Cut, cut_equal, cut_fixed

    length, page, (law, fitted) = asked["chunked"] or 1, asked["page"] or PAGE, law_of_chunks(asked)
    pipeline = _pipeline(asked, devices)
    best = _find_chunking(length, page, law, pipeline)
    run = best.equal_times
    if asked["chunk"] not in (None, "equal"):
        sizes = cut_fixed(length, _size(str(asked["chunk"]), page))
        run = Cut(sizes, pipeline.time(law.times(sizes)))
    elif number is not None and number != len(run.sizes):
        equal = cut_equal(length, page, law, number)
        if equal is None or len(equal) != number:
            what = (
                f"{length:,} tokens are not cut into {number} chunks of equal times in pages of "
                f"{page}"
            )
            raise InputError(what, "another --mb, or a smaller --page")
        run = Cut(equal, pipeline.time(law.times(equal)))
    return Chunks(run, best, asked["unit"] or "ms", fitted)


def law_of_chunks(asked: Asked) -> tuple[Law, FittedLaw | None]:
    """Return the law of the options, and its fit to the table that it is from; None for a given
    law.
    """
    from ppsim.inputs.profile.chunk_times import read_law

    return read_law(asked["law"] or "")


@lru_cache(maxsize=16)
def _find_chunking(length: int, page: int, law: Law, pipeline: Pipeline) -> Chunking:
    """Search once for the shape, the costs and the answer of a run."""
    from ppsim.search.splits.chunks import find_chunking

    return find_chunking(length, page, law, pipeline)


def _pipeline(asked: Asked, devices: int) -> Pipeline:
    import numpy as np

    from ppsim.search.splits.chunks import Pipeline

    given = np.atleast_1d(
        np.asarray(1.0 if asked["tf"] is None else asked["tf"], np.float64)
    ).tolist()
    if len(given) not in (1, devices):
        raise InputError(
            f"tf has {len(given)} values for {devices} stages", f"give one value, or {devices}"
        )
    stages = tuple(given * (devices if len(given) == 1 else 1))
    return Pipeline(stages, float(asked["comm"] or 0.0))


def _size(text: str, page: int) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) <= 100_000_000):
        raise InputError(f"not a size of a chunk: '{text[:40]}'; expected e.g. 8192 or equal")
    if int(text) % page:
        near = max(page, round(int(text) / page) * page)
        raise InputError(
            f"--chunk: not a whole number of pages of {page}: '{text}'",
            f"--chunk {near}, or --page 1",
        )
    return int(text)


def _chunk_count_text(cut: Cut) -> str:
    return "1 chunk" if len(cut.sizes) == 1 else f"{len(cut.sizes)} chunks"


def _sizes(cut: Cut) -> str:
    shown = [f"{size:,}" for size in cut.sizes]
    if len(shown) > MOST_SIZES:
        shown = [*shown[: MOST_SIZES - 2], "...", shown[-1]]
    return " ".join(shown)
