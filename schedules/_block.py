"""Building blocks from users' TOML files: the slots of one microbatch's ops, for any number of
devices.

A microbatch passes over the devices 2V times, first for the forwards of each chunk, then for the
backwards, last chunk first::

    schema = "ppsim.block/1"
    placement = "v"
    interval = 6           # slots from one microbatch to the next
    steps = [2, 1, 2, 1]   # slots from one device to the next in each pass
    gaps = [1, 4, 2]       # slots from the last op of each pass to the first of the next
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from ppsim.base import toml
from ppsim.base.source import read_text
from ppsim.base.toml import RefusedValue
from ppsim.core.ops import Packed
from ppsim.core.schedule import place
from ppsim.errors import InputError
from ppsim.schedules.registry import Family, Rule, Shape, find, schedule
from ppsim.search.rules.blocks import block_of_passes, complete

SCHEMA = "ppsim.block/1"
EXAMPLE = "placement, interval, steps and gaps (gallery/own-block.toml)"
PLACEMENTS = ("linear", "loop", "v")
LONGEST = 10_000  # slots
FURTHER = 6  # a gap is increased by fewer slots than this to find one that works


@dataclass(frozen=True)
class BlockFile:
    """The content of a block's file."""

    placement: str  # linear, loop or v
    interval: int  # slots from one microbatch to the next
    steps: tuple[int, ...]  # shape (2V,), slots from one device to the next in each pass
    # shape (2V - 1,), slots from the last op of each pass to the first of the next
    gaps: tuple[int, ...]
    # True: backwards run as I in one slot, and W in any idle slot; False: whole, in two slots
    split: bool = True
    idea: str = ""  # a sentence for ``ppsim list NAME``

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise RefusedValue(
                "placement", f"must be one of {', '.join(PLACEMENTS)}, got '{self.placement}'"
            )
        if len(self.steps) < 2 or len(self.steps) % 2:
            raise RefusedValue(
                "steps",
                "must have two numbers for each chunk: one of its forwards, one of its backwards",
            )
        if self.placement == "linear" and self.chunks > 1:
            raise RefusedValue(
                "steps", "must have two numbers for a linear placement; or use loop or v"
            )
        if len(self.gaps) != len(self.steps) - 1:
            raise RefusedValue(
                "gaps", f"must have {len(self.steps) - 1} numbers, one less than steps"
            )
        if not 3 * self.chunks <= self.interval <= LONGEST:
            raise RefusedValue(
                "interval", f"must be at least {3 * self.chunks}, the slots of a device's ops"
            )
        for key, values in (("steps", self.steps), ("gaps", self.gaps)):
            for number, value in enumerate(values):
                least = 1 if self.split or number < self.chunks else 2
                if not least <= value <= LONGEST:
                    raise RefusedValue(
                        key,
                        f"must be at least {least} at place {number + 1}, the slots of the op "
                        f"before",
                    )

    @property
    def chunks(self) -> int:
        """V, stages per device."""
        return len(self.steps) // 2


@cache
def load_block(path: str) -> Family:
    """Register the block in a file under the file's name, and return its family.

    Raises:
        InputError: the file is not a block; the message names the key and the line.
    """
    stated = toml.read(path, BlockFile, SCHEMA, EXAMPLE)
    name = Path(path).stem
    chunks = Rule(
        f"{stated.chunks} stages per device, half as many as steps",
        lambda s: s.chunks == stated.chunks,
    )

    def rows(shape: Shape) -> Iterator[Packed]:
        yield from _complete(path, stated, shape)

    try:
        schedule(
            name,
            title=name,
            idea=stated.idea
            or f"The building block of {path}, repeated every {stated.interval} slots.",
            bubble="",
            peak=_peaks_text(stated),
            paper="Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
            placement=stated.placement,
            chunks=stated.chunks,
            split=stated.split,
            rules=(chunks,),
        )(rows)
    except ValueError:
        raise InputError(
            f"there is a schedule named '{name}' already", "give the file another name"
        ) from None
    return find(name)


def _complete(path: str, stated: BlockFile, shape: Shape) -> Iterator[Packed]:
    """Yield the queues of the repeated block (InputError: two ops share a slot)."""
    placement = place(stated.placement, shape.devices, shape.stages)
    block = block_of_passes(placement, stated.interval, stated.steps, stated.gaps, stated.split)
    clash = block.clash()
    if clash is None:
        yield from complete(block, shape.microbatches)
        return
    device, *passes = clash
    named = " and ".join(
        f"{'I' if stated.split else 'B'}{stage}" if back else f"F{stage}"
        for back, stage in (block.pass_order()[device][number] for number in passes)
    )
    raise InputError(
        f"'{path}', line {_line_of(path, 'gaps')}: with {shape.devices} "
        f"device{'s' * (shape.devices > 1)}, {named} share a slot of device {device}: their slots "
        f"are the same modulo the interval of {stated.interval}",
        _nearest_gaps(stated, shape),
    )


def _nearest_gaps(stated: BlockFile, shape: Shape) -> str:
    """Return the gaps closest to the stated ones with which no ops share a slot."""
    placement = place(stated.placement, shape.devices, shape.stages)
    for more in sorted(product(range(FURTHER), repeat=min(len(stated.gaps), 4)), key=sum):
        gaps = [
            gap + extra
            for gap, extra in zip(stated.gaps, (*more, *[0] * len(stated.gaps)), strict=False)
        ]
        if (
            block_of_passes(placement, stated.interval, stated.steps, gaps, stated.split).clash()
            is None
        ):
            return f"gaps = {gaps}"
    return "other steps, or a larger interval"


def _peaks_text(stated: BlockFile) -> str:
    """Return the peaks of the repeated block on 4, 8 and 16 devices as text."""
    peaks = []
    for devices in (4, 8, 16):
        placement = place(stated.placement, devices, devices * stated.chunks)
        block = block_of_passes(placement, stated.interval, stated.steps, stated.gaps, stated.split)
        if block.clash() is None:
            peaks.append(f"{block.peaks.max()} on {devices} devices")
    return f"at most {', '.join(peaks)} (lifespan / interval)" if peaks else ""


def _line_of(path: str, key: str) -> int:
    lines = read_text(path, "").splitlines()
    return next((n for n, line in enumerate(lines, 1) if line.strip().startswith(key)), 1)
