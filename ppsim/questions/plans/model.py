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
    training_verdict,
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
    """The sizes and settings of a training run; None is the usual value."""

    tp: int | None = common("--tp", help="Tensor-parallel ranks.")
    cp: int | None = option("--cp", help="Context-parallel ranks.")
    ep: int | None = common("--ep", help="Expert-parallel ranks, inside dp x cp x tp.")
    devices: int | None = common("--devices", "--pp", help="Pipeline devices, P.")
    dp: int | None = common("--dp", help="Data-parallel replicas.")
    chunks: int | None = common("--chunks", "--vpp", "--vp", help="Stages per device, V.")
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
        "--layout", metavar="STRING", help="The layers of each stage: Et*3|(tt|)*14,tL."
    )
    again: str | None = common(
        "--recompute",
        type=click.Choice(RECOMPUTE),
        help="Parts of the forward that run again before the backward.",
    )
    zero: int | None = option(
        "--zero",
        help="ZeRO stage: data-parallel ranks divide the optimizer (1), also gradients (2), also "
        "weights (3).",
    )
    offload: float | None = option(
        "--offload", help="Share of activations to offload to the host until their backward."
    )
    precision: str | None = option(
        "--precision",
        type=click.Choice([*PRECISIONS, "fp32"]),
        help="Precision of the linear layers' products.",
    )


@dataclass(frozen=True, kw_only=True)
class ModelRequest(Request):
    """Show a model's parameters, FLOPs and operators, and the costs of training it on each stage
    and device.

    A model is a name of the library, a TOML file (schema ppsim.model/2) or a Hugging Face
    config.json; without one, the library is listed. For the name of a cluster, a GPU or a software,
    its fields are printed. Sizes of parallel groups add memory by device, and --cluster adds times.
    -o draws the split of a layer's products over tensor- and expert-parallel ranks, with their
    collectives, as a figure (svg, png, pdf), a page (html) or a flowchart (mmd).

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
        help="The cluster, for times: a name such as dgx-h100, or a file that names its GPU.",
    )
    training: TrainingOptions = group(TrainingOptions, "Training")
    runs: SoftwareOptions = group(SoftwareOptions, "Software")
    profile: str | None = option(
        "--profile",
        type=click.Path(),
        help="A profile of ppsim calibrate: measured op times instead of the efficiency curve's.",
    )
    output: OutputOptions = group(OutputOptions, "Output")
    face: JsonOption = group(JsonOption, "Output")

    @property
    def trains(self) -> bool:
        """True if an option of training is given, so that costs of training are the answer."""
        given = (self.machine, *asdict(self.training).values(), *asdict(self.runs).values())
        return any(value is not None for value in given)

    def check(self) -> None:
        """Refuse --profile without --cluster, and options of training without a model."""
        if self.profile is not None and self.machine is None:
            raise InputError(
                "--profile has times of ops, and a step also needs the links of a cluster",
                "--cluster dgx-h100",
            )
        if self.file is None and (self.trains or self.output.output):
            raise InputError(
                "the model is missing",
                "ppsim model llama3-70b ...; ppsim model lists the library",
            )
        check_output(self.output, self.training.tp, self.training.ep)


def model(name: str | None = None, **options: Any) -> Shelves | ModelCost | Card:
    """Return a model's parameters, FLOPs and operators, and the costs of training it.

    A step is in seconds, memory in GiB. Without a name, the library's models are returned.

    Args:
        name: a model of the library, or a TOML or config.json file.
        options: the options of ``ppsim model`` by name.

    Raises:
        InputError: an option is refused, there is no such model, or sizes do not divide it.
    """
    return answer(ask(ModelRequest, {"file": name} | options))


def answer(request: ModelRequest) -> Shelves | ModelCost | Card:
    """Describe a model, the costs of training it, a card of the library, or the library."""
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
    layout = given.pop("layout")
    machine = read_machine(request.machine) if request.machine else None
    base = parallel_with(
        request.runs, request.training.precision, found, machine.gpu if machine else None
    )
    parallel = parallel_from(sizes_from(layout, given), base)
    parallel = parallel.for_schedule(parallel.schedule_name)
    if machine:
        machine.check_gpus(parallel.gpus)
    stage_layers = None if layout is None else read_layout(layout, parallel.pp, found.layers)
    if machine and request.profile is not None:
        from ppsim.inputs.profile.profile import read
        from ppsim.workload.cost.calibrated import use_profile

        machine = use_profile(
            machine, read(request.profile), request.profile, found, parallel, stage_layers
        )
    costs = training(found, parallel, stage_layers, machine)
    return ModelCost(request, found, costs, parallel, machine)


@dataclass(frozen=True)
class Card(Answer[ModelRequest]):
    """All fields of a cluster, a GPU or a software of the library.

    Attributes:
        name: the name of the cluster, the GPU or the software.
        fields: the fields of its file, by name.
    """

    name: str
    fields: dict[str, Any]

    @property
    def verdict(self) -> str:
        """The name and the distinguishing facts."""
        return f"{self.name}: {card_words(self.fields)}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """The fields, as one row."""
        return [self.fields]

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.card/1``."""
        return {"schema": "ppsim.card/1", **self.fields}

    def blocks(self) -> Iterator[Block]:
        """A line for each field that has a value."""
        yield from _field_lines(self.fields)


def _field_lines(fields: dict[str, Any], prefix: str = "") -> Iterator[Block]:
    """Yield a line for each field that has a value; nested ones have the names of their parents."""
    for key, value in fields.items():
        if isinstance(value, dict):
            yield from _field_lines(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            for number, row in enumerate(value):
                text = ", ".join(
                    f"{k} {_value_text(v)}" for k, v in row.items() if v not in (None, "", (), [])
                )
                yield Line([(f"  {prefix}{key} {number}", "quiet"), f"  {text}"], 8)
        elif value not in (None, "", (), [], 0, 0.0, -1):
            yield Line([(f"  {prefix + key:<24} ", "quiet"), _value_text(value)], 27)


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
        model: the sizes of the model.
        training: costs by stage, by device and of a step, as in the JSON; empty without options of
            training.
        parallel: the sizes and settings of the training.
        machine: the cluster; None if none is given.
    """

    model: Model
    training: dict[str, Any]
    parallel: Parallel = field(default_factory=Parallel)
    machine: Machine | None = None

    @property
    def verdict(self) -> str:
        """The parameters, and the FLOPs of a token, or the time of a step and the memory."""
        model, numbers = self.model, describe_model(self.model)
        size = f"{model.name}: {format_number(numbers['parameters'] / 1e9)} B parameters"
        effort = f"{format_number(numbers['flops_per_token'] / 1e9)} GFLOP to train a token"
        if not self.training:
            return f"{size}, {effort} in sequences of {model.seq:,}"
        return f"{size}, {training_verdict(self.training)}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """The devices as rows of numbers; the operators if only the model was asked for."""
        return self.training["devices"] if self.training else list_operators(self.model)

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.model/2``."""
        known = describe_model(self.model)
        return {
            "schema": "ppsim.model/2",
            **known,
            "operators": list_operators(self.model),
            **self.training,
        }

    def bars(self) -> Bars:
        """The memory of each device as bars; the work of each operator if only the model was asked
        for.
        """
        from ppsim.show.drawing.card_bars import Bar, Bars

        if not self.training:
            rows = sorted(list_operators(self.model), key=lambda row: -row["forward_flops"])
            work = [row["forward_flops"] / 1e9 for row in rows if row["forward_flops"]]
            return Bars(
                "GFLOP of the forward of one sequence in one layer, the largest first",
                [
                    Bar(f"{row['part']}: {row['operator']}", gflop, text)
                    for row, gflop, text in zip(rows, work, format_column(work), strict=False)
                ],
            )
        memory = [(row["device"], row["total_gib"]) for row in self.training["devices"]]
        bars = [Bar(f"device {device}", gib, format_number(gib)) for device, gib in memory]
        return Bars("memory of each device (GiB)", bars)

    @property
    def drawing(self) -> Drawing:
        """The split of the layers over GPUs, as a drawing (InputError: they do not divide)."""
        from ppsim.workload.cost.tensor_split import layer_splits, remarks

        splits = layer_splits(self.model, self.parallel, self.machine)
        sizes = {name: getattr(self.parallel, name) for name in ("tp", "cp", "ep")}
        ranks = ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
        where = f" on {self.machine.name}" if self.machine else ""
        remarks_of_splits = [remarks(self.model, self.parallel, split.layer) for split in splits]
        title = f"{self.model.name or 'a model'}, {ranks}{where}"
        return Drawing(splits, remarks_of_splits, title, inputs_of(self.typed_options))

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o: the split of layers as a figure, a page or a flowchart."""
        check_output(output, self.parallel.tp, self.parallel.ep)
        return self.drawing.writers(output)

    def blocks(self) -> Iterator[Block]:
        """The model's sizes, then its operators, or the costs of training it."""
        model, numbers = self.model, describe_model(self.model)
        if model.experts:
            experts = f"{model.top_k} of {model.experts} experts"
            active = format_number(numbers["active"] / 1e9)
            yield Line(f"a token uses {active} B of the parameters: {experts}")
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
            "F traffic\nMB": format_column([row["forward_bytes"] / 1e6 for row in rows]),
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
    """Return a name for a kind of layer, made of its unusual features."""
    if layer.mixer == "none":
        return "MoE layer" if layer.mlp == "experts" else "MLP layer"
    if "none" in layer:
        return f"{layer.mixer} layer"
    words = [] if layer.mixer == "attention" else [layer.mixer]
    if layer.mlp == "experts":
        words.append("MoE")
    return " ".join([*words, "layer"])


def list_operators(model: Model) -> list[dict[str, Any]]:
    """List the operators of each kind of layer, of the embedding and of the output, with FLOPs and
    bytes for one sequence on one GPU.
    """
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
