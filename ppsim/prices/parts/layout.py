"""The layers of each stage: ``--layout``, and the times of layers from which costs follow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.ask.given import Need
from ppsim.ask.groups import Value
from ppsim.ask.options import common, option
from ppsim.errors import InputError
from ppsim.prices.part import LAYER_TIMES, Asked, Source

if TYPE_CHECKING:
    from ppsim.ask.groups import ShapeOptions
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.schedules import Family
    from ppsim.workload.layout.costs import LayerTimes
    from ppsim.workload.layout.layout import Layout

MOST_CHUNKS = 8  # tried for a hint


@dataclass(frozen=True)
class LayoutString(Source):
    """The layers of each stage, and times of layers where no profile has them."""

    place: ClassVar[int] = 90
    called_by: ClassVar[tuple[str, ...]] = ("layout",)
    reads: ClassVar[tuple[str, ...]] = ("comm", "unit")
    gives_whole_costs: ClassVar[bool] = True
    counts_layers: ClassVar[bool] = True
    prices_layouts: ClassVar[bool] = True
    decides_ops: ClassVar[tuple[str, ...]] = ("layout",)
    is_of_whole_sequences: ClassVar[bool] = True
    lacks: ClassVar[Mapping[str, str]] = {"b_over_f": "no backward"}
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            LAYER_TIMES,
            lambda g: bool(g["layout"]) or g.command == "partition",
            "{options} needs --layout",
            "add --layout STRING (ppsim layout), or --tf for whole stages",
        ),
        Need(
            ("tf", "tb", "ti", "tw", "tfb", "tr", "per"),
            lambda g: not g["layout"],
            "{options} cannot be combined with --layout, which sets the time of every stage",
            "--t-layer, --t-embedding, --t-head, --t-mtp and --b-over-f",
        ),
    )

    layout: str | None = common(
        "--layout",
        metavar="STRING",
        help="Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).",
    )
    t_layer: Value | None = option(
        "--t-layer", help="Forward time of a layer of the layout (1), or one for each."
    )
    t_embedding: float | None = option(
        "--t-embedding", help="Forward time of the layout's embedding, E (0)."
    )
    t_head: float | None = option(
        "--t-head", help="Forward time of the layout's head and its loss, L (0)."
    )
    t_mtp: float | None = option(
        "--t-mtp", help="Forward time of an MTP layer of the layout, m (a layer's)."
    )
    b_over_f: float | None = option(
        "--b-over-f",
        help="Time of a layer's full backward over its forward's (2); I and W take half.",
    )

    def fill_shape(self, spec: str | Schedule, shape: ShapeOptions, asked: Asked) -> ShapeOptions:
        """Return the shape with the stages of the layout, where stages, or devices and chunks, are
        not given.
        """
        return shape_of_layout(spec, shape, self.layout or "") if isinstance(spec, str) else shape

    def rephrase_hint(self, hint: str) -> str:
        """Return the hint of ``--stages`` for a layout, whose stages must change."""
        works = []
        for part in hint.split(" or "):
            if found := re.search(r"--stages (\d+) ?", part):
                rest = part.replace(found[0], "").strip()
                part = f"a layout of {found[1]} stage{'s' * (found[1] != '1')}" + (
                    f" with {rest}" if rest else ""
                )
            works.append(part)
        return " or ".join(works)

    def n_stages(self) -> int:
        """Return the number of stages that the layout has."""
        from ppsim.workload.layout.layout import read_layout

        return read_layout(self.layout or "").n_stages

    def stages_hint(self, devices: int, stages: int) -> str:
        """Return the nearest layout of this number of stages."""
        from ppsim.workload.layout.layout import nearest_layout

        return nearest_layout(self.layout or "", devices, stages)

    def layout_of(self, schedule: Schedule) -> Layout:
        """Return the layers of a schedule's stages."""
        return layout_for(schedule, self.layout or "")

    def layer_times(self) -> LayerTimes:
        """Return the times of layers that the options give."""
        from ppsim.workload.layout.costs import LayerTimes

        given = {
            "layer": self.t_layer,
            "embedding": self.t_embedding,
            "head": self.t_head,
            "mtp": self.t_mtp,
        }
        numbers: dict[str, Any] = {**given, "b_over_f": self.b_over_f}
        return LayerTimes(**{name: value for name, value in numbers.items() if value is not None})

    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return costs from the times of the layers of each stage."""
        from ppsim.workload.layout.costs import layout_costs

        layout = self.layout_of(schedule)
        if self.t_mtp is not None and not layout.n_mtp:
            raise InputError(
                "--t-mtp has no effect: the layout has no MTP layer (m)", "leave it out"
            )
        usual = "t_layer" if self.t_layer is None else "t"
        unit = usual if asked["unit"] is None else asked["unit"]
        return layout_costs(layout, self.layer_times(), asked["comm"] or 0.0, unit)

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return the factor of backwards where the schedule has some."""
        return set() if schedule.only_forwards else {"b_over_f"}

    def hold(self, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return activations of layers."""
        from ppsim.engine.memory.usage import layer_model

        return layer_model(schedule, self.layout_of(schedule).content)


def shape_of_layout(spec: str, shape: ShapeOptions, layout: str) -> ShapeOptions:
    """Fill in the stages of a family's shape where stages, or devices and chunks, are not given.

    Raises:
        InputError: the stages do not divide over the devices; the hint is the nearest layout that
            the family takes.
    """
    from ppsim.schedules import family_of, split_chunks

    family = family_of(spec)
    if shape.stages is not None or (shape.devices and shape.chunks) or family is None:
        return shape
    from ppsim.workload.layout.layout import nearest_layout, read_layout
    from ppsim.workload.layout.text import parse_content

    stages, P, spelled = len(parse_content(layout)), shape.devices, split_chunks(spec)[1]
    try:
        return replace(shape, stages=read_layout(layout, P).n_stages)
    except InputError as error:
        if (
            P
            and stages % P
            and shape.microbatches
            and (chunks := _nearest_chunks(family, spelled, shape, P, stages))
        ):
            error.hint = nearest_layout(layout, P, P * chunks) or error.hint
        raise


def _nearest_chunks(
    family: Family, spelled: int | None, shape: ShapeOptions, P: int, stages: int
) -> int | None:
    """Find the stages per device that a family takes on P devices and that are nearest to that many
    in all.
    """
    from ppsim.schedules import shape_for

    likely = (
        [spelled]
        if spelled
        else sorted(range(1, stages // P + 3), key=lambda v: (abs(v * P - stages), v))
    )
    for chunks in likely[:MOST_CHUNKS]:
        try:
            shape_for(family, **asdict(shape) | {"chunks": chunks})
        except InputError:
            continue
        return chunks
    return None


def layout_for(schedule: Schedule, text: str) -> Layout:
    """Read the layout of a schedule's stages (InputError: none, one that Megatron refuses, or of
    other stages).
    """
    from ppsim.workload.layout.layout import nearest_layout, read_layout
    from ppsim.workload.layout.text import parse_content

    stages, P = len(parse_content(text)), schedule.n_devices
    if stages != schedule.n_stages:
        from ppsim.schedules import families

        V = schedule.n_chunks
        hint = (
            f"--devices {stages // V}" + f" --chunks {V}" * (V > 1)
            if stages % V == 0
            else f"--stages {stages}"
        )
        # a file, whose shape is its own
        if all(family.name != schedule.name for family in families()):
            hint = nearest_layout(text, P, schedule.n_stages)
        raise InputError(
            f"the layout has {stages} stages, and {schedule.name} has {schedule.n_stages}", hint
        )
    return read_layout(text, P if stages % P == 0 else None)
