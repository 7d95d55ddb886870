"""A long prompt in chunks: each is a microbatch of forward-only, and takes its time by a law."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.ask.given import Need, never
from ppsim.ask.groups import DETAILED
from ppsim.ask.options import option
from ppsim.ask.types import NumberText
from ppsim.prices.part import COSTS, STEP, Asked, Source

if TYPE_CHECKING:
    from ppsim.ask.groups import ShapeOptions
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule


@dataclass(frozen=True)
class Chunks(Source):
    """The chunks of a prompt; times by the law are in ms where no unit is given."""

    place: ClassVar[int] = 60
    called_by: ClassVar[tuple[str, ...]] = ("chunked",)
    reads: ClassVar[tuple[str, ...]] = COSTS
    decides_ops: ClassVar[tuple[str, ...]] = ("chunked", "chunk", "page", "law")
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("chunked",),
            never,
            "{options} needs forward-only, which this command does not have",
            "ppsim run, compare or sweep forward-only --chunked 131072 --law C,G,B,A",
            ("jitter", "diff", "memory", "partition", "optimize", "convert"),
        ),
        Need(
            ("chunk", "page"),
            lambda g: bool(g["chunked"]),
            "{options} needs --chunked",
            "add --chunked TOKENS",
        ),
        Need(
            ("law",),
            lambda g: bool(g["chunked"] or g["lengths"]),
            "{options} needs --lengths or --chunked",
            "add --lengths FILE, or --chunked TOKENS to ppsim run forward-only",
        ),
        Need(
            ("chunked",),
            lambda g: bool(g["law"]),
            "{options} needs the time of a chunk",
            "add --law C,G,B,A",
        ),
        Need(
            (
                *("mb_scale", "slice_scale", "reorder", "speed", "links", "tb", "ti", "tw"),
                *("profile", "layout", "segments", "costs", "steps", "placement", *STEP, *DETAILED),
            ),
            lambda g: not g["chunked"],
            "{options} has no effect: --chunked gives the chunks and --law their times",
            "leave it out; --tf scales stages, --comm is the latency of a message",
        ),
        Need(
            ("microbatches",),
            lambda g: not g["chunked"] or g["chunk"] in (None, "equal"),
            "{options} sets the number of chunks, which --chunk sets already by their size",
            "leave one of them out",
        ),
    )

    chunked: int | None = option(
        "--chunked",
        type=click.IntRange(min=1, max=100_000_000),
        metavar="TOKENS",
        help="Run the prefill of a prompt of this many tokens in chunks, each a microbatch of "
        "forward-only, with the times of --law; in --mb chunks, or in the best number of them.",
    )
    chunk: NumberText | None = option(
        "--chunk",
        metavar="TOKENS|equal",
        help="Tokens of a chunk; or equal (default): sizes that take equal times, in the best "
        "number of chunks.",
    )
    law: str | None = option(
        "--law",
        metavar="C,B,A|C,G,B,A|FILE",
        help="Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a "
        "table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is "
        "fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any "
        "unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on one"
        " stage, in ms; in ppsim sweep, on a stage of the fewest devices.",
    )
    page: int | None = option(
        "--page",
        type=click.IntRange(min=1, max=1_000_000),
        help="Tokens of a page: sizes of all chunks but the last are multiples of it (64).",
    )

    def fill_shape(self, spec: str | Schedule, shape: ShapeOptions, asked: Asked) -> ShapeOptions:
        """Return the shape with a microbatch for each chunk."""
        from ppsim.prices.chunked import shape_of_chunks

        return shape_of_chunks(spec, shape, asked)

    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return times that the law scales: of a stage as many times as --tf says."""
        import numpy as np

        from ppsim.core.costs import costs_for
        from ppsim.core.ops import COMPUTE
        from ppsim.prices.chunked import times_of_chunks

        numbers = {"unit": "ms"} | asked.given_values(*COSTS)
        scale = np.tile(
            times_of_chunks(asked, schedule.n_devices, schedule.whole_microbatches),
            (len(COMPUTE), 1),
        )
        return replace(costs_for(schedule, **numbers), scale=scale)
