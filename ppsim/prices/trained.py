"""The model that memory and partition train: a name, a TOML file or a config.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.given import Need
from ppsim.ask.options import common, option
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import Amounts, MemoryModel
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel

SPELLINGS = "of the library (ppsim list --models), TOML, or config.json with --seq."


def model_option(what: str) -> Any:
    """Declare the option that names a model; ``what`` names its use."""
    help_ = f"{what} of a model: {SPELLINGS}"
    return option("--model", metavar="NAME|FILE", help=help_, common=True)


@dataclass(frozen=True)
class TrainedOptions:
    """Options for training a model besides its pipeline; None is the default."""

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("tp", "cp", "ep", "dp", "sequence", "zero", "again"),
            lambda g: bool(g["model"]),
            "{options} needs --model",
            "add --model NAME",
        ),
        Need(
            ("mbs",),
            lambda g: bool(g["model"] or g["lengths"]),
            "{options} needs --model",
            "add --model NAME",
        ),
        Need(
            ("zero",),
            lambda g: (g["dp"] or 1) * (g["cp"] or 1) > 1,
            "{options} needs several data- or context-parallel ranks",
            "add --dp 8, or leave it out",
        ),
    )

    tp: int | None = common("--tp", help="Tensor-parallel ranks of the model.")
    cp: int | None = option("--cp", help="Context-parallel ranks.")
    ep: int | None = option("--ep", help="Expert-parallel ranks, inside dp x cp x tp.")
    dp: int | None = common("--dp", help="Data-parallel replicas.")
    mbs: int | None = common("--mbs", help="Sequences in a microbatch.")
    sequence: int | None = option("--seq", help="Sequence length instead of the model's.")
    zero: int | None = option(
        "--zero", help="ZeRO stage: 1 shards optimizer states (1), 2 gradients too, 3 weights too."
    )
    again: str | None = option(
        "--recomputes",
        type=click.Choice(["none", "selective", "full"]),
        help="Recompute in every backward (none).",
    )


@dataclass(frozen=True)
class TrainedModel:
    """A model and how it is trained."""

    spec: str  # the name or path
    options: TrainedOptions  # all settings of its training except the pipeline

    @cached_property
    def model(self) -> Model:
        """The model (InputError: an unknown name, or a wrong file)."""
        from ppsim.workload.model.model import read_trained

        return read_trained(self.spec, self.options.sequence)

    @property
    def recomputes(self) -> str:
        """The recompute of every backward: none, selective or full."""
        return self.options.again or "none"

    @cached_property
    def with_double_sequences(self) -> TrainedModel:
        """The same model trained on sequences twice as long."""
        return replace(self, options=replace(self.options, sequence=2 * self.model.seq))

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch."""
        return (self.options.mbs or 1) * self.model.seq

    def add_recompute(self, costs: Costs) -> Costs:
        """Return costs whose B, I and pairs also take the recomputed share of the forward."""
        from ppsim.core.ops import BACKWARDS, Kind

        again = self._recompute_share() * costs.time[Kind.F]
        time = costs.time.copy()
        time[list(BACKWARDS)] += again
        return replace(costs, time=time, pair=None if costs.pair is None else costs.pair + again)

    def _recompute_share(self) -> float:
        """Return the share of a forward that the backward recomputes."""
        if self.recomputes != "selective":
            return float(self.recomputes == "full")
        from ppsim.workload.model.model import flops_per_token, kinds_of, mixing_flops

        mixing = sum(mixing_flops(self.model, layer.mixer) for layer in kinds_of(self.model))
        return 3 * mixing / flops_per_token(self.model)

    def memory(
        self, schedule: Schedule, content: tuple[str, ...] | None, **again: Any
    ) -> MemoryModel:
        """Make the memory model of a schedule; a layout's ``content`` places the layers.

        ``again`` replaces the options' recompute.

        Raises:
            InputError: the layers do not fit, or both the schedule and the backwards recompute.
        """
        from ppsim.workload.cost.memory import memory_model
        from ppsim.workload.layout.layout import Layout

        layout = Layout(content, schedule.n_devices) if content else None
        parallel = replace(self.parallel(schedule), **again)
        return memory_model(self.model, parallel, schedule.placement.devices, layout)

    def parallel(self, schedule: Schedule) -> Parallel:
        """Return the sizes of all kinds of parallelism on a schedule (InputError: they do not
        divide each other).
        """
        from ppsim.base.toml import RefusedValue
        from ppsim.workload.model.parallel import Parallel

        if schedule.recomputed.any() and self.recomputes == "full":
            raise InputError(
                f"{schedule.name} has ops that recompute (R)", "leave out --recomputes full"
            )
        given = asdict(self.options)
        sizes: dict[str, Any] = {
            name: given[name]
            for name in ("tp", "cp", "ep", "dp", "mbs", "zero")
            if given[name] is not None
        }
        sizes["pp"] = schedule.n_devices
        sizes["vp"] = max(schedule.n_stages // schedule.n_devices, 1)
        try:
            return Parallel(
                **sizes, microbatches=schedule.n_microbatches, recompute=self.recomputes
            )
        except RefusedValue as refused:
            raise InputError(f"--{refused}", f"another --{refused.key}") from None

    def layers_of(self, schedule: Schedule) -> list[int]:
        """Return the layers of each stage, without a layout."""
        from ppsim.workload.model.contents import contents_of

        return [content.layers for content in contents_of(self.model, self.parallel(schedule))]

    def share_of(self, modules: tuple[str, ...]) -> float:
        """Return the modules' share of a forward's matrix products, over all layers (InputError:
        the model has no such module).
        """
        from ppsim.workload.cost.costs import MODULES
        from ppsim.workload.model.model import kinds_of
        from ppsim.workload.model.operators import layer_operators
        from ppsim.workload.model.parallel import Parallel

        names = {name for module in modules for name in MODULES[module]}
        operators = [
            layer_operators(self.model, Parallel(), layer) for layer in kinds_of(self.model)
        ]
        part = sum(
            float(each.flops[0, [name in names for name in each.names]].sum()) for each in operators
        )
        if not any(names & {*each.names} for each in operators):
            raise InputError(f"the model has no {' nor '.join(modules)}", "other modules")
        return part / sum(float(each.flops[0].sum()) for each in operators)

    def kept_by(self, rule: str, schedule: Schedule, content: tuple[str, ...] | None) -> Amounts:
        """Return a forward's stored bytes per microbatch under recompute by ``layers:N`` or
        ``modules:A,B``, shape (stages,).

        Raises:
            InputError: the options recompute as well.
        """
        name, _, what = rule.partition(":")
        if self.recomputes != "none":
            raise InputError(
                f"--recompute {rule} and --recomputes cannot be combined", "leave one of them out"
            )
        if name == "layers":
            return self.memory(
                schedule, content, recompute="full", recompute_layers=int(what)
            ).activations
        return self.memory(
            schedule, content, recompute="selective", modules=tuple(what.split(","))
        ).activations
