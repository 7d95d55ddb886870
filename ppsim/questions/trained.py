"""A model as memory and partition train it: a name, a file, a config.json, or the sizes of a ppsim.model/1 file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from ppsim.base.source import read_text
from ppsim.errors import InputError
from ppsim.questions.options import common, option

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import Amounts, MemoryModel
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel
    from ppsim.workload.model.transformer import Transformer

SPELLINGS = "of the library (ppsim list --models), TOML, or config.json with --seq."


def model_option(what: str) -> Any:
    """Declare the option that names a model; ``what`` is taken of it."""
    help_ = f"{what} of a model: {SPELLINGS}"
    return option("--model", metavar="NAME|FILE", help=help_, common=True)


@dataclass(frozen=True)
class TrainedOptions:
    """How a model is trained beside its pipeline; None takes the usual."""

    tp: int | None = common("--tp", help="Tensor-parallel ranks of the model.")
    cp: int | None = option("--cp", help="Context-parallel ranks.")
    ep: int | None = option("--ep", help="Expert-parallel ranks, inside dp x cp x tp.")
    dp: int | None = common("--dp", help="Data-parallel replicas.")
    mbs: int | None = common("--mbs", help="Sequences in a microbatch.")
    sequence: int | None = option("--seq", help="Sequence length instead of the model's.")
    zero: int | None = option("--zero", help="What data-parallel ranks divide: 1 optimizer (1), 2, 3.")
    again: str | None = option(
        "--recomputes", type=click.Choice(["none", "selective", "full"]), help="What backwards run again (none)."
    )


@dataclass(frozen=True)
class Trained:
    """A model and how it is trained."""

    spec: str  # the name or path
    options: TrainedOptions  # beside its pipeline

    @cached_property
    def described(self) -> Transformer | Model:
        """Sizes with their training, or a model (InputError: no such model, or options beside a file that says all)."""
        from ppsim.workload.model.model import SCHEMA_OF_SIZES, library, read_trained
        from ppsim.workload.model.transformer import read_model

        if self.spec.lower() in library() or not self.spec.endswith(".toml"):
            return read_trained(self.spec, self.options.sequence)
        if f'"{SCHEMA_OF_SIZES}"' not in read_text(self.spec, "a model", largest=1 << 22):
            return read_trained(self.spec, self.options.sequence)
        if given := [name for name, value in asdict(self.options).items() if value is not None]:
            given = [{"sequence": "seq", "again": "recomputes"}.get(name, name) for name in given]
            raise InputError(f"'{self.spec}' says how it is trained, and --{given[0]} says it again", "in the file")
        return read_model(self.spec)

    @property
    def layers(self) -> int:
        """Layers of the whole model."""
        import numpy as np

        return int(np.sum(self.described.layers))

    @cached_property
    def again(self) -> float:
        """The share of a forward that the backward runs again."""
        from ppsim.workload.model.model import Model, flops_per_token, kinds_of, mixing_flops
        from ppsim.workload.model.transformer import recompute_share

        if not isinstance(self.described, Model):
            return recompute_share(self.described)
        mixing = sum(mixing_flops(self.described, layer.mixer) for layer in kinds_of(self.described))
        return {"selective": 3 * mixing / flops_per_token(self.described), "full": 1.0}.get(
            self.options.again or "", 0.0
        )

    def memory(self, schedule: Schedule, content: tuple[str, ...] | None, **again: Any) -> MemoryModel:
        """Make the memory model of a schedule, its layers where a layout's ``content`` says.

        ``again`` takes the place of what backwards run again.

        Raises:
            InputError: the layers do not fit, or both the schedule and the backwards recompute.
        """
        from ppsim.workload.cost.memory import memory_model as by_model
        from ppsim.workload.layout.layout import Layout
        from ppsim.workload.model.model import Model
        from ppsim.workload.model.transformer import memory_model

        found = self.described
        if not isinstance(found, Model):
            return memory_model(replace(found, **again), schedule, content)
        layout = Layout(content, schedule.n_devices) if content else None
        return by_model(found, replace(self.parallel(schedule), **again), schedule.placement.devices, layout)

    def parallel(self, schedule: Schedule) -> Parallel:
        """The sizes of all kinds of parallelism on a schedule (InputError: they do not divide each other)."""
        from ppsim.base.toml import Refused
        from ppsim.workload.model.parallel import Parallel

        sizes: dict[str, Any] = {k: v for k, v in asdict(self.options).items() if v is not None and k != "sequence"}
        sizes |= {"recompute": sizes.pop("again", "none")}
        if schedule.recomputed.any() and sizes["recompute"] == "full":
            raise InputError(f"{schedule.name} has ops that recompute (R)", "leave out --recomputes full")
        pp = schedule.n_devices
        try:
            return Parallel(**sizes, pp=pp, vp=max(schedule.n_stages // pp, 1), microbatches=schedule.n_microbatches)
        except Refused as refused:
            raise InputError(f"--{refused}", f"another --{refused.key}") from None

    def layers_of(self, schedule: Schedule) -> list[int]:
        """The layers of each stage, without a layout."""
        from ppsim.workload.model.contents import contents_of
        from ppsim.workload.model.model import Model
        from ppsim.workload.model.transformer import layers_of

        found = self.described
        if isinstance(found, Model):
            return [content.layers for content in contents_of(found, self.parallel(schedule))]
        return list(map(int, layers_of(found, schedule.n_stages)))

    def share_of(self, modules: tuple[str, ...]) -> float:
        """The share of a forward's products that modules have, of all layers (InputError: the model has none)."""
        from ppsim.workload.cost.costs import MODULES
        from ppsim.workload.model.model import Model, kinds_of
        from ppsim.workload.model.operators import layer_operators
        from ppsim.workload.model.parallel import Parallel
        from ppsim.workload.model.transformer import recompute_share

        found = self.described
        if not isinstance(found, Model):
            self._refuse_other(modules)
            return recompute_share(replace(found, recompute="selective"))
        names = {name for module in modules for name in MODULES[module]}
        operators = [layer_operators(found, Parallel(), layer) for layer in kinds_of(found)]
        part = sum(float(each.flops[0, [name in names for name in each.names]].sum()) for each in operators)
        if not any(names & {*each.names} for each in operators):
            raise InputError(f"the model has no {' nor '.join(modules)}", "other modules")
        return part / sum(float(each.flops[0].sum()) for each in operators)

    def kept_by(self, rule: str, schedule: Schedule, content: tuple[str, ...] | None) -> Amounts:
        """What a forward keeps of a microbatch where ``layers:N`` or ``modules:A,B`` run again, shape (stages,).

        Raises:
            InputError: backwards are said to run more again, or a file of sizes has no such modules.
        """
        import numpy as np

        from ppsim.workload.model.model import Model
        from ppsim.workload.model.transformer import layer_bytes, layers_of

        name, _, what = rule.partition(":")
        found, modules = self.described, tuple(what.split(","))
        if (found.recompute if not isinstance(found, Model) else self.options.again or "none") != "none":
            raise InputError(f"--recompute {rule}, and backwards run again as well", "leave one of them out")
        if isinstance(found, Model):
            again: dict[str, Any] = {"recompute": "selective", "modules": modules}
            again = {"recompute": "full", "recompute_layers": int(what)} if name == "layers" else again
            return self.memory(schedule, content, **again).activations
        if name == "modules":
            self._refuse_other(modules)
            return self.memory(schedule, content, recompute="selective").activations
        layer, held = layer_bytes(found), self.memory(schedule, content).activations
        count = np.minimum(layers_of(found, schedule.n_stages, content), int(what))
        return held - count * (layer.activations - layer.boundary)

    def _refuse_other(self, modules: tuple[str, ...]) -> None:
        if modules != ("core_attn",):
            raise InputError(f"'{self.spec}' has sizes alone, not what {', '.join(modules)} take", "core_attn")
