"""Show a model: its sizes, parameters, FLOPs, and its operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table, name_line
from ppsim.ask.given import Need
from ppsim.ask.groups import JsonOption, OutputOptions
from ppsim.ask.options import Request, common, group, option
from ppsim.ask.request import ask
from ppsim.ask.write import Writers, inputs_of
from ppsim.base.numbers import format_column, format_number
from ppsim.errors import InputError
from ppsim.prices.software import PRECISIONS, SoftwareOptions, parallel_with
from ppsim.questions.plans.layer_split import Drawing, check_output
from ppsim.questions.plans.training import (
    parallel_from,
    sizes_from,
    training,
    training_blocks,
    training_words,
)
from ppsim.questions.timelines.list import ListRequest, Shelves, card_of, card_words
from ppsim.workload.model import operators as ops
from ppsim.workload.model.model import (
    Layer,
    Model,
    count_parameters,
    flops_per_token,
    kinds_of,
    mtp_parameters,
    read_model,
)
from ppsim.workload.model.parallel import Parallel

if TYPE_CHECKING:
    from ppsim.show.drawing.card_bars import Bars
    from ppsim.workload.hardware.hardware import Machine

# Spelled out here: reading them from the planning room would load numpy for every command's help.
RECOMPUTE = ("none", "selective", "full")
NAMES = {"devices": "pp", "chunks": "vp", "schedule_name": "schedule", "again": "recompute"}


@dataclass(frozen=True)
class TrainingOptions:
    """The parallel layout of a training run; None takes the usual."""

    tp: int | None = common("--tp", help="Tensor-parallel ranks.")
    cp: int | None = option("--cp", help="Context-parallel ranks.")
    ep: int | None = common("--ep", help="Expert-parallel ranks, inside dp x cp x tp.")
    devices: int | None = common("--devices", "--pp", help="Pipeline devices, P.")
    dp: int | None = common("--dp", help="Data-parallel replicas.")
    chunks: int | None = common("--chunks", "--vp", help="Stages per device, V.")
    mbs: int | None = common("--mbs", help="Sequences in a microbatch.")
    microbatches: int | None = common(
        "--mb", "-m", "--microbatches", help="Microbatches in a step."
    )
    sequence: int | None = common("--seq", help="Sequence length instead of the model's.")
    schedule_name: str | None = common(
        "--schedule",
        "-s",
        metavar="NAME",
        help="The schedule: 1f1b, or interleaved with chunks, by default.",
    )
    layout: str | None = common(
        "--layout", metavar="STRING", help="Which layers each stage holds: Et*3|(tt|)*14,tL."
    )
    again: str | None = common(
        "--recompute", type=click.Choice(RECOMPUTE), help="What the backward runs again."
    )
    zero: int | None = option(
        "--zero", help="What data-parallel ranks divide: 1 optimizer, 2 gradients, 3 weights too."
    )
    offload: float | None = option(
        "--offload", help="Share of activations that wait in the host's memory for their backward."
    )
    precision: str | None = option(
        "--precision",
        type=click.Choice([*PRECISIONS, "fp32"]),
        help="Precision of the linear layers' products.",
    )


@dataclass(frozen=True, kw_only=True)
class ModelRequest(Request):
    """Show a model's parameters, FLOPs and operators, and what training it costs on each stage and
    device.

    A model is a name of the library, a TOML file (schema ppsim.model/2) or a Hugging Face
    config.json; without one, the library is listed. A cluster, a GPU or a software shows its
    fields. With sizes of parallel groups, memory by device; with --cluster, times too. -o draws how
    a layer's products are split over tensor- and expert-parallel ranks, and the collectives that
    join them, as a figure (svg, png, pdf), a page (html) or a flowchart (mmd).

    \b
      ppsim model
      ppsim model llama3-70b
      ppsim model llama3-70b --tp 4 --pp 8 --dp 4 --mb 32 --cluster dgx-h100
      ppsim model llama3-70b --tp 4 --pp 8 --mb 32 --cluster dgx-h100 --profile profile.toml
      ppsim model llama3-70b --tp 4 --cluster dgx-h100 -o split.svg
    """

    question: ClassVar[str] = "model"
    place: ClassVar[tuple[str, int]] = ("What a model needs", 3)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("profile",),
            lambda g: not g["output"],
            "{options} has times of whole ops, and -o draws the products of a layer",
            "leave one of them out",
        ),
    )
    file: str | None = option(metavar="[NAME|FILE]")
    machine: str | None = common(
        "--cluster",
        metavar="NAME|FILE",
        help="Times on a cluster: a name such as dgx-h100, or a file that names its GPU.",
    )
    training: TrainingOptions = group(TrainingOptions, "Training")
    runs: SoftwareOptions = group(SoftwareOptions, "Software")
    profile: str | None = option(
        "--profile",
        type=click.Path(),
        help="Measured op times instead of the curve's (ppsim calibrate).",
    )
    output: OutputOptions = group(OutputOptions, "Output")
    face: JsonOption = group(JsonOption, "Output")

    @property
    def trains(self) -> bool:
        """Whether training is asked for, and not only the model."""
        given = (self.machine, *asdict(self.training).values(), *asdict(self.runs).values())
        return any(value is not None for value in given)

    def check(self) -> None:
        """Refuse times without links, and training of no model."""
        if self.profile is not None and self.machine is None:
            raise InputError(
                "--profile has times, and a step needs the links of a cluster too",
                "--cluster dgx-h100",
            )
        if self.file is None and (self.trains or self.output.output):
            raise InputError(
                "which model is missing",
                "ppsim model llama3-70b ...; ppsim model lists the library",
            )
        check_output(self.output, self.training.tp, self.training.ep)


def model(name: str | None = None, **options: Any) -> Shelves | ModelCost | Card:
    """Tell a model's parameters, FLOPs and operators, and what training it costs; without a name,
    list the library.

    Args:
        name: of the library, or a TOML or config.json file.
        options: as ``ppsim model`` takes them, by name.

    Raises:
        InputError: an option that is refused, no such model, or a training run that cannot be.
    """
    return answer(ask(ModelRequest, {"file": name} | options))


def answer(request: ModelRequest) -> Shelves | ModelCost | Card:
    """Answer the request: describe a model, its costs, or the library."""
    if request.file is not None and not request.trains and (card := card_of(request.file)):
        return Card(request, request.file, card)
    if request.file is None:
        return Shelves(ListRequest(models=True, face=request.face))
    found = read_model(request.file, request.training.sequence)
    if not request.trains:
        return ModelCost(request, found, {})
    from ppsim.workload.hardware.hardware import read_machine
    from ppsim.workload.layout.layout import read_layout

    given = {
        NAMES.get(name, name): value
        for name, value in asdict(request.training).items()
        if name != "sequence"
    }
    given |= request.runs.sizes_of_ranks(given, int)
    layout, machine = (
        given.pop("layout"),
        read_machine(request.machine) if request.machine else None,
    )
    base = parallel_with(
        request.runs, request.training.precision, found, machine.gpu if machine else None
    )
    parallel = parallel_from(sizes_from(layout, given), base)
    parallel = parallel.for_schedule(parallel.schedule_name)
    if machine:
        machine.check_gpus(parallel.gpus)
    arranged = None if layout is None else read_layout(layout, parallel.pp, found.layers)
    if machine and request.profile is not None:
        from ppsim.inputs.profile.profile import read
        from ppsim.workload.cost.calibrated import use_profile

        machine = use_profile(
            machine, read(request.profile), request.profile, found, parallel, arranged
        )
    return ModelCost(
        request, found, training(found, parallel, arranged, machine), parallel, machine
    )


@dataclass(frozen=True)
class Card(Answer[ModelRequest]):
    """All fields of a cluster, a GPU or a software of the library.

    Attributes:
        name: of the model.
        fields: by name, as its file has them.
    """

    name: str
    fields: dict[str, Any]

    @property
    def verdict(self) -> str:
        """The name, the kind and the size of the model."""
        return f"{self.name}: {card_words(self.fields)}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """The fields, as one row."""
        return [self.fields]

    def json_object(self) -> dict[str, Any]:
        """The object of schema ``ppsim.card/1``."""
        return {"schema": "ppsim.card/1", **self.fields}

    def blocks(self) -> Iterator[Block]:
        """A line for each field that says something."""
        yield from _lines(self.fields, "")


def _lines(fields: dict[str, Any], before: str) -> Iterator[Block]:
    for key, value in fields.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{before}{key}.")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            for number, row in enumerate(value):
                said = ", ".join(
                    f"{k} {_value_text(v)}" for k, v in row.items() if v not in (None, "", (), [])
                )
                yield Line([(f"  {before}{key} {number}", "quiet"), f"  {said}"], 8)
        elif value not in (None, "", (), [], 0, 0.0, -1):
            yield Line([(f"  {before + key:<24} ", "quiet"), _value_text(value)], 27)


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(
            f"{key} {_value_text(each)}"
            for key, each in value.items()
            if each not in (None, "", (), 0, -1)
        )
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True)
class ModelCost(Answer[ModelRequest]):
    """A model, and the costs of training it.

    Attributes:
        model: its sizes.
        training: by stage, by device and of a step, as the JSON has them; empty where only the
            model was asked for.
        parallel: how it is trained.
        machine: where; None without a cluster.
    """

    model: Model
    training: dict[str, Any]
    parallel: Parallel = field(default_factory=Parallel)
    machine: Machine | None = None

    @property
    def verdict(self) -> str:
        """The FLOPs of a token, or the time of a step and whether it fits."""
        model, numbers = self.model, describe_model(self.model)
        size = f"{model.name}: {format_number(numbers['parameters'] / 1e9)} B parameters"
        effort = f"{format_number(numbers['flops_per_token'] / 1e9)} GFLOP to train a token"
        if not self.training:
            return f"{size}, {effort} in sequences of {model.seq:,}"
        return f"{size}, {training_words(self.training)}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """The devices as rows of numbers, or the operators where only the model was asked for."""
        return self.training["devices"] if self.training else list_operators(self.model)

    def json_object(self) -> dict[str, Any]:
        """The object of schema ``ppsim.model/2``."""
        known = describe_model(self.model)
        return {
            "schema": "ppsim.model/2",
            **known,
            "operators": list_operators(self.model),
            **self.training,
        }

    def bars(self) -> Bars:
        """The memory of each device, or the operators' work where only the model was asked for."""
        from ppsim.show.drawing.card_bars import Bar, Bars

        if not self.training:
            rows = sorted(list_operators(self.model), key=lambda row: -row["forward_flops"])
            work = [row["forward_flops"] / 1e9 for row in rows if row["forward_flops"]]
            return Bars(
                "GFLOP of the forward of one sequence in one layer, the most first",
                [
                    Bar(f"{row['part']}: {row['operator']}", gflop, text)
                    for row, gflop, text in zip(rows, work, format_column(work), strict=False)
                ],
            )
        held = [(row["device"], row["total_gib"]) for row in self.training["devices"]]
        bars = [Bar(f"device {device}", gib, format_number(gib)) for device, gib in held]
        return Bars("memory of each device (GiB)", bars)

    @property
    def drawing(self) -> Drawing:
        """The split of the layers over GPUs, as a drawing.

        Raises:
            InputError: they do not divide.
        """
        from ppsim.workload.cost.tensor_split import layer_splits, remarks

        splits = layer_splits(self.model, self.parallel, self.machine)
        sizes = {name: getattr(self.parallel, name) for name in ("tp", "cp", "ep")}
        ranks = ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
        where = f" on {self.machine.name}" if self.machine else ""
        said = [remarks(self.model, self.parallel, split.layer) for split in splits]
        title = f"{self.model.name or 'a model'}, {ranks}{where}"
        return Drawing(splits, said, title, inputs_of(self.typed_options))

    def writers(self, output: OutputOptions) -> Writers:
        """Each file asked for: how layers are split, as a figure, a page or a flowchart."""
        check_output(output, self.parallel.tp, self.parallel.ep)
        return self.drawing.writers(output)

    def blocks(self) -> Iterator[Block]:
        """The model's sizes, then its operators, or the costs of training it."""
        model, numbers = self.model, describe_model(self.model)
        if model.experts:
            among = f"{model.top_k} of {model.experts} experts"
            yield Line(
                f"a token visits {format_number(numbers['active'] / 1e9)} B of them: {among}"
            )
        if model.mtp:
            yield f"multi-token prediction adds {format_number(numbers['mtp_parameters'] / 1e9)} B"
        effort = format_number(numbers["flops_per_token"] / 1e9)
        yield Line(
            f"{effort} GFLOP to train a token, sequences of {model.seq:,}\n"
            if self.training
            else ""
        )
        sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq")
        pairs = [
            ((f"{'  ' * bool(place)}{name} ", "quiet"), format_number(numbers[name]))
            for place, name in enumerate(sizes)
        ]
        yield Line([part for pair in pairs for part in pair])
        if model.source:
            yield name_line("from ", model.source)
        yield from training_blocks(self.training) if self.training else self._operators()

    def _operators(self) -> Iterator[Block]:
        rows = list_operators(self.model)
        columns = {
            "part": [row["part"] for row in rows],
            "operator,\none sequence": [row["operator"] for row in rows],
            "F\nGFLOP": format_column([row["forward_flops"] / 1e9 for row in rows]),
            "B\nGFLOP": format_column([row["backward_flops"] / 1e9 for row in rows]),
            "F reads and\nwrites, MB": format_column([row["forward_bytes"] / 1e6 for row in rows]),
        }
        yield ""
        yield Table(
            [*columns], [*zip(*columns.values(), strict=True)], left=["operator,\none sequence"]
        )


def describe_model(model: Model) -> dict[str, Any]:
    """Return a model's sizes, parameters and FLOPs."""
    return {
        **asdict(model),
        "parameters": count_parameters(model),
        "active": count_parameters(model, active=True),
        "mtp_parameters": mtp_parameters(model),
        "flops_per_token": flops_per_token(model),
    }


def name_of_kind(layer: Layer) -> str:
    """Return a name for a kind of layer from its unusual features."""
    words = [layer.mixer] * (layer.mixer not in ("attention", "none")) + ["MoE"] * (
        layer.mlp == "experts"
    )
    if "none" in layer:
        words = [{"none": "MoE" if layer.mlp == "experts" else "MLP"}.get(layer.mixer, layer.mixer)]
    return f"{' '.join(words)} layer".strip()


def list_operators(model: Model) -> list[dict[str, Any]]:
    """List the operators of a layer of each kind, and of the ends, for one sequence on one GPU."""
    alone = Parallel()
    groups = [("embedding", ops.embedding_operators(model, alone))]
    groups += [
        (name_of_kind(layer), ops.layer_operators(model, alone, layer))
        for layer in dict.fromkeys(kinds_of(model))
    ]
    if model.encoder:
        groups.insert(0, ("encoder", ops.encoder_operators(model.encoder, alone)))
    groups.append(("output", ops.head_operators(model, alone)))
    return [
        {
            "part": part,
            "operator": name,
            "forward_flops": float(found.flops[ops.FORWARD, i]),
            "backward_flops": float(found.flops[ops.INPUTS, i] + found.flops[ops.WEIGHTS, i]),
            "forward_bytes": float(found.moved[ops.FORWARD, i] + found.touched[ops.FORWARD, i]),
        }
        for part, found in groups
        for i, name in enumerate(found.names)
    ]
