"""Memory of devices that serve a model: weights, and space for keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.blocks import Block, Table
from ppsim.ask.given import Need
from ppsim.ask.groups import OneSchedule, ShapeOptions
from ppsim.ask.options import common, option
from ppsim.base.units import format_size, format_sizes
from ppsim.errors import InputError
from ppsim.prices.build import build_schedule
from ppsim.prices.cap import read_cap
from ppsim.prices.options import WHOLE_COSTS, WITHOUT_LAYERS, CostOptions, ask_costs
from ppsim.prices.part import LAYER_TIMES
from ppsim.prices.trained import TrainedModel

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.workload.cost.serving import LayerMemory, Served
    from ppsim.workload.layout.layout import Layout

DECODE = "decode"  # the schedule where none is named
MOST_ROWS = 64
SERVED = ("layout", *LAYER_TIMES, *WITHOUT_LAYERS)  # which questions refuse, or split by


@dataclass(frozen=True)
class ServedOptions:
    """Options for serving a model."""

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("weight_bits", "kv_bits", "block"),
            lambda g: bool(g["serve"]),
            "{options} needs --serve",
            "add --serve",
        ),
        Need(
            (
                "cp",
                "dp",
                "mbs",
                "zero",
                "again",
                "mtp",
                *(name for name in WHOLE_COSTS if name not in SERVED),
                "recompute",
                "slice_scale",
                "mb_scale",
            ),
            lambda g: not g["serve"],
            "{options} cannot be combined with --serve, which has equal batches and no training",
            "leave it out",
        ),
    )

    weight_bits: int | None = common(
        "--weight-bits",
        type=click.IntRange(min=1, max=64),
        help="Bits of a parameter of a layer (16); the embedding and the head have 16.",
    )
    kv_bits: int | None = option(
        "--kv-bits",
        type=click.IntRange(min=1, max=64),
        help="Bits of a number of keys, values and states (16).",
    )
    block: int | None = option(
        "--block",
        type=click.IntRange(min=1, max=1 << 20),
        help="Tokens of a block of keys and values (16).",
    )

    def served_model(self, trained: TrainedModel) -> Served:
        """Return the model as served (InputError: its ranks do not divide it)."""
        from ppsim.workload.cost.serving import Served

        given = trained.options
        tp, ep, model = given.tp or 1, given.ep or 1, trained.model
        if model.heads % tp:
            raise InputError(f"--tp {tp} does not divide {model.heads} heads", "another --tp")
        if model.experts % ep:
            raise InputError(f"--ep {ep} does not divide {model.experts} experts", "another --ep")
        return Served(
            weight_bytes=(self.weight_bits or 16) / 8,
            state_bytes=(self.kv_bits or 16) / 8,
            block=self.block or 16,
            context=model.seq,
            tp=tp,
            ep=ep,
        )


@dataclass(frozen=True)
class ServedDevice:
    """Memory of one device that serves: content and free space; sizes in bytes."""

    device: int
    layers: int
    weights: int  # of its layers, embedding and head
    sequence: int  # keys, values and states of one sequence
    room: int  # for keys and values, negative where weights exceed the cap
    tokens: int | None  # of sequences that fit; None where they take no memory
    blocks: int | None  # the same in blocks


@dataclass(frozen=True)
class ServedMemory:
    """Memory of the devices of a pipeline that serves."""

    devices: tuple[ServedDevice, ...]
    served: Served
    caps: tuple[int, ...]  # bytes of each device for weights, keys and values

    @property
    def deciding(self) -> ServedDevice:
        """The device with room for the fewest tokens."""
        return min(
            self.devices, key=lambda each: (each.tokens is None, each.tokens or 0, each.room)
        )

    @property
    def fits(self) -> bool:
        """True if every device has room for its weights and a block."""
        return all(each.room >= 0 and each.blocks != 0 for each in self.devices)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers of ``--json``, in bytes."""
        least = self.deciding
        return {
            "context": self.served.context,
            "block": self.served.block,
            "caps": list(self.caps),
            "tokens": least.tokens,
            "blocks": least.blocks,
            "sequences": None if least.tokens is None else least.tokens / self.served.context,
            "deciding_device": least.device,
            "fits": self.fits,
            "devices": [asdict(each) for each in self.devices],
        }

    def blocks(self) -> Iterator[Block]:
        """Yield a row for each device, and the device that decides."""
        shown = self.devices if len(self.devices) <= MOST_ROWS else self.devices[:MOST_ROWS]
        least = self.deciding

        def tone(row: int, column: int) -> str:
            return "bad" if shown[row] is least and column else "name" if column == 0 else ""

        yield Table(*_columns(shown), tone=tone)
        if len(shown) < len(self.devices):
            yield f"... {len(self.devices) - len(shown)} more devices"

    def sentence(self) -> str:
        """Return a sentence: the tokens that fit in all, and the device that decides."""
        least, context = self.deciding, self.served.context
        if least.room < 0:
            return (
                f"the weights of device {least.device} exceed its memory by "
                f"{format_size(-least.room)}"
            )
        if least.tokens is None:
            return "keys and values take no memory"
        sequences = least.tokens / context
        return (
            f"{least.blocks or 0:,} blocks of {self.served.block} tokens fit, {least.tokens:,} "
            f"tokens ({sequences:.3g} sequences of {context:,}): device {least.device} decides"
        )


def _columns(devices: Sequence[ServedDevice]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the headings and a row for each device; the sizes of a column are in one unit."""
    columns = {
        "device\n": [str(each.device) for each in devices],
        "layers\n": [str(each.layers) for each in devices],
    }
    sizes = {
        "weights": [float(each.weights) for each in devices],
        "a sequence": [float(each.sequence) for each in devices],
        "room": [float(each.room) for each in devices],
    }
    for name, values in sizes.items():
        unit, cells = format_sizes(values)
        columns[f"{name}\n{unit}"] = cells
    columns["tokens\n"] = ["any" if each.tokens is None else f"{each.tokens:,}" for each in devices]
    columns["blocks\n"] = ["any" if each.blocks is None else f"{each.blocks:,}" for each in devices]
    return [*columns], [*zip(*columns.values(), strict=True)]


def spec_of(schedule: OneSchedule) -> str:
    """Return the schedule's spelling, decode where none is named."""
    return schedule.spec if schedule.names or schedule.schedule is not None else DECODE


def schedule_that_serves(spec: str, shape: ShapeOptions) -> Schedule:
    """Make the schedule of a pipeline that serves (InputError: it trains)."""
    shape = shape if shape.microbatches else replace(shape, microbatches=1)
    schedule = build_schedule(spec, shape, CostOptions(steps=1), quiet=True)
    if not schedule.only_forwards:
        raise InputError(
            f"{schedule.name} trains, and --serve is of decode and forward-only",
            "leave out --serve",
        )
    return schedule


def caps_of(text: str | None, devices: int) -> tuple[int, ...]:
    """Read the bytes that devices have for weights, keys and values (InputError: none, or no
    bytes).
    """
    if text is None:
        what = "--serve needs the memory that a device has for weights, keys and values"
        raise InputError(
            what, "--cap 60GiB: a GPU's memory times its utilization, less the activations"
        )
    cap = read_cap(text)
    cap.check_unit("B")
    return tuple(map(int, cap.per_device_caps(devices)))


def serve_layout(trained: TrainedModel, schedule: Schedule, costs: CostOptions) -> Layout:
    """Return which layers each stage holds: by a layout, or as trainers divide layers (InputError:
    they do not fit).
    """
    model, layout = trained.model, ask_costs(costs).layout_of(schedule)
    if layout is None:
        from ppsim.workload.layout.layout import build_layout
        from ppsim.workload.model.contents import split_layers

        split = split_layers(replace(model, mtp=0), schedule.n_stages)
        return build_layout(list(split), schedule.n_devices, 0)
    if layout.n_layers != model.layers:
        raise InputError(
            f"the layout has {layout.n_layers} layers, and the model {model.layers}",
            "another --layout",
        )
    return layout


def measure_served(
    trained: TrainedModel,
    options: ServedOptions,
    schedule: Schedule,
    layout: Layout,
    caps: tuple[int, ...],
) -> ServedMemory:
    """Measure the memory of each device, and the tokens that it has room for."""
    import numpy as np

    from ppsim.workload.cost.serving import find_held, tokens_in

    served = options.served_model(trained)
    weights, states = stage_bytes(find_held(trained.model, served), layout)
    where = schedule.placement.devices[0]
    layers, held, sequence = (
        np.bincount(where, amount, schedule.n_devices)
        for amount in (np.array(layout.layers), weights, states)
    )
    room = np.array(caps, np.float64) - np.ceil(held)
    tokens = tokens_in(room, sequence.astype(np.float64), served)
    rows = []
    for device in range(schedule.n_devices):
        known = bool(np.isfinite(tokens[device]))
        fit = int(tokens[device]) if known else None
        rows.append(
            ServedDevice(
                device=device,
                layers=int(layers[device]),
                weights=int(np.ceil(held[device])),
                sequence=int(np.ceil(sequence[device])),
                room=int(room[device]),
                tokens=fit,
                blocks=None if fit is None else fit // served.block,
            )
        )
    return ServedMemory(tuple(rows), served, caps)


def stage_bytes(held: LayerMemory, layout: Layout) -> tuple[Any, Any]:
    """Return weights, and keys and values of a sequence, of each stage, both of shape (stages,) in
    bytes.
    """
    import numpy as np

    ends = np.cumsum([0, *layout.layers])
    parts = (held.weights, held.states)
    weights, states = (np.diff(np.concatenate([[0.0], np.cumsum(part)])[ends]) for part in parts)
    for stage, letters in enumerate(layout.content):
        weights[stage] += held.embedding * ("E" in letters) + held.head * ("L" in letters)
    return weights, states
