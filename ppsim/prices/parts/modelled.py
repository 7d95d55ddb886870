"""Times of a model's stages on a cluster, as ``ppsim plan`` prices them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

from ppsim.ask.given import Need
from ppsim.ask.groups import DETAILED, NetworkOptions
from ppsim.ask.options import common, list_options, option
from ppsim.errors import InputError
from ppsim.prices.part import COSTS, LAYER_TIMES, STEP, Asked, Source
from ppsim.prices.software import PRECISIONS, Techniques, parallel_with

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.ask.groups import ShapeOptions
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.prices.modelled import Modelled

CostsOfModel = TypeVar("CostsOfModel", bound="ModelOnCluster")  # the options of costs
# Names of ``ppsim plan --layouts``. Spelled out here: reading them from the planning room would
# load numpy for the help of every command.
LAYOUTS = (
    *("even", "light-last", "light-ends"),
    *(f"light-last:{fewer}" for fewer in range(2, 9)),
    *(f"light-first:{fewer}" for fewer in range(1, 9)),
)
SIZES = ("tp", "cp", "ep", "dp", "zero")
OTHER_TIMES = (
    *(name for name in COSTS if name not in ("comm", "unit")),
    *("comm", "unit", *LAYER_TIMES, *STEP, "profile", "segments", "tr", "offload"),
    *("encoder", "costs", "links", "lengths", "cp_of", "chunked", "steps", "feedback"),
    *("replicas", "t_reduce"),
)


@dataclass(frozen=True)
class ModelledOptions(Techniques):
    """The model and its training, except for the pipeline; None is the usual value, as in plan."""

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            (
                *(each.name for each in fields(Techniques)),
                *(*SIZES, "precision", "sequence", "again", "layouts"),
            ),
            lambda g: bool(g["model"]),
            "{options} needs --model",
            "add --model NAME --cluster NAME",
        ),
        Need(
            ("model",),
            lambda g: bool(g["cluster"]),
            "{options} needs the GPUs of a cluster",
            "add --cluster NAME (ppsim list --clusters)",
        ),
        Need(
            OTHER_TIMES,
            lambda g: not g["model"],
            "--model and its --cluster give all times, so {options} cannot be given too",
            "leave it out, or --model",
        ),
        Need(
            ("recompute",),
            lambda g: not g["model"],
            "--model and its --cluster give all times, so {options} cannot be given too",
            "leave --recompute out: with a model it is --recomputes full or selective",
        ),
        Need(
            tuple(name for name in DETAILED if name != "cluster"),
            lambda g: not g["model"],
            "with --model messages are latencies, as in ppsim plan, so {options} has no effect",
            "leave it out, or --model",
        ),
        Need(
            ("layouts",),
            lambda g: not g["layout"],
            "--layout says which layers each stage holds, and so does {options}",
        ),
    )

    model: str | None = common(
        "--model",
        metavar="NAME|FILE",
        help="Times and bytes of a model on --cluster, as ppsim plan has them (--help-all: --tp).",
    )
    tp: int | None = option("--tp", type=click.IntRange(min=1), help="Tensor-parallel ranks (1).")
    cp: int | None = option("--cp", type=click.IntRange(min=1), help="Context-parallel ranks (1).")
    ep: int | None = option(
        "--ep", type=click.IntRange(min=1), help="Expert-parallel ranks, inside dp x cp x tp (1)."
    )
    dp: int | None = option("--dp", type=click.IntRange(min=1), help="Data-parallel replicas (1).")
    sequence: int | None = option(
        "--seq", type=click.IntRange(min=1), help="Tokens in a sequence (the model's)."
    )
    zero: int | None = option(
        "--zero",
        type=click.IntRange(0, 3),
        help="ZeRO stage: data-parallel ranks shard the optimizer (1, the default), also gradients "
        "(2), also weights (3).",
    )
    again: str | None = option(
        "--recomputes",
        type=click.Choice(["none", "selective", "full"]),
        help="Recompute in every backward (none).",
    )
    layouts: str | None = option(
        "--layouts",
        type=click.Choice(LAYOUTS),
        metavar="NAME",
        help="Split of the layers over stages, by its name in ppsim plan: even, light-last, "
        "light-ends, light-last:2, light-first:3, ... (even).",
    )
    precision: str | None = option(
        "--precision",
        type=click.Choice(PRECISIONS),
        help="Precision of the linear layers' products (bf16).",
    )


@dataclass(frozen=True)
class ModelledNetwork(NetworkOptions):
    """Messages as a model on a cluster prices them: latencies, whatever the cluster is."""

    @property
    def detailed(self) -> bool:
        """True if an option asks for sends and receives as ops: never."""
        return False


def model_of(options: ModelledOptions, network: NetworkOptions, mbs: int | None) -> Modelled | None:
    """Return the model on the cluster of the messages; None where no model is named.

    Args:
        options: the model, and how it is trained.
        network: the options of messages.
        mbs: sequences in a microbatch (1).

    Raises:
        InputError: no such model, cluster or software.
    """
    if options.model is None:
        # a technique that is switched off is none of the options that the table of needs sees
        off = [each.name for each in fields(Techniques) if getattr(options, each.name) is False]
        if off:
            spelt = ", ".join("--no-" + name.replace("_", "-") for name in off)
            what = f"{spelt} says how --model is trained, and there is none"
            raise InputError(what, "add --model NAME --cluster NAME")
        return None
    from ppsim.prices.modelled import Modelled
    from ppsim.workload.hardware.hardware import read_machine
    from ppsim.workload.model.model import read_trained

    model = read_trained(options.model, options.sequence)
    machine = read_machine(network.cluster or "")
    base = parallel_with(options, options.precision, model, machine.gpu)
    machine.peak(base.precision)
    given = {name: getattr(options, name) for name in SIZES}
    given |= {"mbs": mbs, "recompute": options.again}
    sizes: dict[str, Any] = {"zero": 1}
    sizes |= {name: value for name, value in given.items() if value is not None}
    sizes |= options.sizes_of_ranks(given, int)
    return Modelled(model, machine, base, tuple(sizes.items()), options.layouts or "even")


def price_by_model(
    costs: CostsOfModel, network: NetworkOptions, training: ModelledOptions, mbs: int | None
) -> tuple[CostsOfModel, NetworkOptions]:
    """Return the options of costs and of messages, by the model on their cluster if one is named.

    Args:
        costs: the options of costs.
        network: the options of messages; the model prices messages as latencies.
        training: the model, and how it is trained.
        mbs: sequences in a microbatch (1).

    Raises:
        InputError: no such model, cluster or software.
    """
    modelled = model_of(training, network, mbs)
    if modelled is not None:
        network = ModelledNetwork(**vars(network))
    return replace(costs, modelled=modelled), network


@dataclass(frozen=True)
class ModelOnCluster(Source):
    """A model on a cluster, which :func:`model_of` makes of options."""

    place: ClassVar[int] = 135
    called_by: ClassVar[tuple[str, ...]] = ("modelled",)
    reads: ClassVar[tuple[str, ...]] = ("layout",)
    gives_whole_costs: ClassVar[bool] = True
    gives_messages: ClassVar[bool] = True
    holds_bytes: ClassVar[bool] = True
    needs_cap_in_bytes: ClassVar[bool] = True
    prices_layouts: ClassVar[bool] = True

    modelled: Modelled | None = None  # no option: it is made of several

    def fill_shape(self, spec: str | Schedule, shape: ShapeOptions, asked: Asked) -> ShapeOptions:
        """Return the shape with the share of an activation that W needs, where a family orders its
        ops by it.
        """
        from ppsim.schedules import family_of, split_chunks

        assert self.modelled
        family = family_of(spec) if isinstance(spec, str) else None
        if family is None or "after_i" not in family.options or shape.after_i is not None:
            return shape
        chunks = split_chunks(str(spec))[1] or shape.chunks or family.chunks
        devices = shape.devices or (shape.stages or 0) // chunks
        if not devices:
            return shape
        kept = self.modelled.kept_share(family.name, devices, chunks)
        return replace(shape, after_i=kept)

    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return the times of stages and messages, in ms (InputError: a source without a row in
        the table of needs is called too).
        """
        assert self.modelled
        for part in asked.parts:
            if isinstance(part, Source) and {*part.called_by} - {*self.called_by, *self.reads}:
                calling = {each.name: each.spelling for each in list_options(type(part))}
                raise InputError(
                    f"--model and its --cluster give all times, so {calling[part.called_by[0]]} "
                    f"cannot be given too",
                    "leave it out, or --model",
                )
        return self.modelled.costs(schedule, asked.layout_of(schedule)).costs

    def layers(self, schedule: Schedule) -> NDArray[np.float64]:
        """Return the number of layers of each stage, shape (stages,)."""
        import numpy as np

        assert self.modelled
        return np.array(self.modelled.layers_of(schedule), np.float64)

    def hold(self, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return the bytes that stages hold."""
        assert self.modelled
        return self.modelled.memory(schedule, asked.layout_of(schedule))
