"""Read a layout or Megatron's flags, and write the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.given import Need
from ppsim.ask.groups import FaceOptions
from ppsim.ask.options import Request, common, flag, group, option
from ppsim.ask.request import ask
from ppsim.ask.types import CountList
from ppsim.ask.words import count_text
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.show.drawing.card_bars import Bars
    from ppsim.workload.layout.layout import Layout as StageLayers

MOST_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class LayoutRequest(Request):
    """Read a layout string or Megatron's flags, and write the other; layouts that Megatron refuses
    are refused.

    Letters of a stage: E embedding, t transformer layer, m MTP layer, L loss; | between stages in
    model order. Megatron-Bridge's lists of words are read too.

    \b
      ppsim layout 'Et*3|(tt|)*29,m|L' --devices 16
      ppsim layout '[["embedding"] + ["decoder"] * 3, ["decoder", "loss"]]'
      ppsim layout --num-layers 30 --devices 4 --decoder-last-pipeline-num-layers 6
    """

    question: ClassVar[str] = "layout"
    place: ClassVar[tuple[str, int]] = ("What a model needs", 4)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("first", "last", "account_embedding", "account_loss", "layers_per_stage"),
            lambda g: not g["string"],
            "a layout string lists the layers of every stage, so {options} cannot be given too "
            "(rule one-way-to-split)",
            "leave out the string",
        ),
        Need(
            ("first", "last", "account_embedding", "account_loss"),
            lambda g: g["layers_per_stage"] is None,
            "--layers-per-stage lists the layers of every stage, so {options} cannot be given too "
            "(rule one-way-to-split)",
        ),
    )
    string: str | None = option(metavar="[STRING]")
    devices: int | None = common(
        "--devices", "--pp", "--pipeline-model-parallel-size", help="Pipeline devices, P."
    )
    chunks: int | None = common(
        "--chunks",
        "--vpp",
        "--vp",
        "--num-virtual-stages-per-pipeline-rank",
        help="Stages per device, V.",
    )
    num_layers: int | None = common(
        "--num-layers", help="Transformer layers of the model; a string must have as many."
    )
    mtp: int | None = common(
        "--mtp-num-layers", help="MTP layers of the model (0); a string must have as many."
    )
    first: int | None = common(
        "--decoder-first-pipeline-num-layers", help="Layers of the first device."
    )
    last: int | None = common(
        "--decoder-last-pipeline-num-layers", help="Layers of the last device."
    )
    account_embedding: bool = flag(
        "--account-for-embedding-in-pipeline-split",
        help="Embedding counts as a layer.",
        common=True,
    )
    account_loss: bool = flag(
        "--account-for-loss-in-pipeline-split", help="Loss counts as a layer.", common=True
    )
    layers_per_stage: list[int] | None = common(
        "--layers-per-stage", type=CountList(), help="Layers of each stage in model order: 3,4,4,3."
    )
    placement: str | None = common(
        "--placement",
        type=click.Choice(["loop", "v"]),
        help="Placement of the stages: stage i on device i mod P (loop), or V-shaped.",
    )
    face: FaceOptions = group(FaceOptions)


def layout(string: str | None = None, **options: Any) -> Layout:
    """Return the layers of each stage, of a layout string or of Megatron's flags.

    ``options`` are the options of ``ppsim layout`` by name.

    Raises:
        InputError: the text is not a layout, or Megatron refuses it.
    """
    return answer(ask(LayoutRequest, {"string": string} | options))


def answer(request: LayoutRequest) -> Layout:
    """Read a layout string, a list of layers per stage, or Megatron's flags."""
    from ppsim.workload.layout.layout import build_layout, read_layout

    devices, chunks = request.devices, request.chunks
    num_layers, mtp = request.num_layers, request.mtp
    listed = request.layers_per_stage
    if request.string is not None:
        from ppsim.workload.layout.text import parse_content

        stages = len(parse_content(request.string))
        found = read_layout(
            request.string, _count_devices(stages, devices, chunks), num_layers, mtp
        )
    elif listed is not None:
        n_devices = _count_devices(len(listed), devices, chunks)
        string = str(build_layout(listed, n_devices, mtp or 0))
        found = read_layout(string, n_devices, num_layers)
    elif num_layers is None or devices is None:
        raise InputError(
            "the layout is missing",
            "a STRING, or --num-layers and --devices, or --layers-per-stage",
        )
    else:
        from ppsim.workload.layout.flags import Flags, layout_from

        counts_as_layers = request.account_embedding, request.account_loss
        flags = Flags(
            num_layers,
            devices,
            chunks or 1,
            request.first,
            request.last,
            *counts_as_layers,
            mtp or 0,
        )
        found = layout_from(flags)
    return Layout(request, found)


@dataclass(frozen=True)
class Layout(Answer[LayoutRequest]):
    """The layers of each stage.

    Attributes:
        stage_layers: the layers of each stage.
    """

    stage_layers: StageLayers

    @property
    def flags(self) -> str:
        """Megatron's flags for this layout."""
        from ppsim.workload.layout.flags import flags_of

        return flags_of(self.stage_layers)

    @property
    def devices(self) -> list[int]:
        """The device of each stage."""
        from ppsim.core.schedule import place

        layers = self.stage_layers
        placed = place(self.request.placement or "loop", layers.n_devices, layers.n_stages)
        devices: list[int] = placed.devices[0].tolist()
        return devices

    @property
    def verdict(self) -> str:
        """The number of layers and stages, and the layers per stage."""
        found = self.stage_layers
        mtp = f" and {count_text(found.n_mtp, 'MTP layer')}" if found.n_mtp else ""
        least, most = min(found.layers), max(found.layers)
        each = f"{least} to {most}" if least < most else f"{most}"
        return (
            f"{count_text(found.n_layers, 'layer')}{mtp} on "
            f"{count_text(found.n_devices, 'device')} x {count_text(found.n_chunks, 'chunk')} = "
            f"{count_text(found.n_stages, 'stage')}: {each} a stage"
        )

    def bars(self) -> Bars:
        """The layers of each stage as bars."""
        from ppsim.show.drawing.card_bars import Bar, Bars

        layers = self.stage_layers.layers
        return Bars(
            "layers of each stage",
            [Bar(f"stage {stage}", count, str(count)) for stage, count in enumerate(layers)],
        )

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.layout/1``."""
        found = self.stage_layers
        return {
            "schema": "ppsim.layout/1",
            "layout": str(found),
            "devices": found.n_devices,
            "chunks": found.n_chunks,
            "stages": found.n_stages,
            "layers": found.n_layers,
            "mtp_layers": found.n_mtp,
            "content": found.content,
            "layers_per_stage": found.layers,
            "device": self.devices,
            "flags": self.flags,
        }

    def line(self) -> Iterator[Block]:
        """The string alone."""
        yield str(self.stage_layers)

    def blocks(self) -> Iterator[Block]:
        """The string, a row per stage, and the flags."""
        from ppsim.workload.layout.text import format_content

        found, devices = self.stage_layers, self.devices
        yield f"{found}\n"
        rows = [
            (
                str(stage),
                str(devices[stage]),
                str(found.layers[stage]),
                format_content(found.content[stage : stage + 1]) or "(empty)",
            )
            for stage in range(found.n_stages)
        ]
        half = MOST_ROWS // 2
        if len(rows) > MOST_ROWS:
            rows = [*rows[:half], ("...", "", "", f"{len(rows) - 2 * half} more"), *rows[-half:]]
        yield Table(["stage", "device", "layers", "content"], rows, left=["content"])
        yield ""
        yield Line(f"flags  {self.flags}", 7)
        if found.empty:
            named = ", ".join(map(str, found.empty[:8])) + (", ..." if len(found.empty) > 8 else "")
            stages = f"stage {named} has" if len(found.empty) == 1 else f"stages {named} have"
            yield Line(
                f"note   {stages} no layer; a bracket such as (tt|)*2 ends with |, so another | "
                f"after it makes an empty stage",
                7,
            )


def _count_devices(stages: int, devices: int | None, chunks: int | None) -> int:
    """Return the number of devices of a layout, from the options --devices and --chunks.

    Raises:
        InputError: an option is below 1, or they make another number of stages.
    """
    for name, value in (("devices", devices), ("chunks", chunks)):
        if value is not None and value < 1:
            raise InputError(f"--{name} must be 1 or more, got {value}")
    if chunks is None:
        return stages if devices is None else devices
    if stages % chunks or devices not in (None, stages // chunks):
        of = f"{chunks} chunks" if devices is None else f"{devices} devices x {chunks} chunks"
        raise InputError(
            f"the layout has {stages} stages, which are not {of} (rule stage-count)",
            "leave out --chunks"
            if devices
            else f"--devices {stages}, or a --chunks that divides {stages}",
        )
    return stages // chunks
