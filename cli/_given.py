"""What a command line gives: the options typed, their values, and the needs they may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

# Names of options that rules speak of together.
SHAPE = ("stages", "devices", "chunks", "microbatches", "group_size", "rule", "limit", "after_i", "slices")
COSTS = ("tf", "tb", "ti", "tw", "tfb", "tr", "comm", "per", "unit")
LAYER_TIMES = ("t_layer", "t_embedding", "t_head", "t_mtp", "b_over_f")
UNEVEN = ("links", "mb_scale", "speed")
DETAILED = ("p2p", "order", "channel", "cluster", "message", "unshard", "reduce_grad")
LOOK = ("palette", "title", "window", "highlight", "base", "labels", "fold", "phases", "per_device")
PLANNED = (
    *("model", "cluster", "gpus", "gbs", "tp", "cp", "ep", "pp", "vp", "mbs", "schedules", "recomputes", "layouts"),
    *("zero", "offload", "precision", "seq", "cap", "top", "front", "flags", "ranks", "output"),
)
TIMED = ("tf", "ti", "tw", "message")
MODEL = ("hidden", "heads", "sequence", "microbatch_size", "layers", "vocab")
REQUEST = ("ops", "module", "runner", "device", *TIMED, "repeats", "warm_up", "real_time", *MODEL)
MEASURING = (*MODEL, "module", "dtype", "device", "repeats", "warm_up", "max_bytes", "sizes", "note", "real_time")
# Commands whose -o writes tables too, and what nothing but tables is written as.
TABLED = ("sweep", "plan")
ONLY_TABLES = (".parquet",)


class Given:
    """The options of one call: their values, and which were typed."""

    def __init__(self, ctx: click.Context) -> None:
        self.command = ctx.command.name
        self.values = ctx.params
        self.typed = [
            p
            for p in ctx.command.params
            if p.name in ctx.params and ctx.get_parameter_source(p.name) == ParameterSource.COMMANDLINE
        ]

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def has(self, *names: str) -> bool:
        """Whether any of the options was typed."""
        return any(p.name in names for p in self.typed)

    def spellings(self, names: tuple[str, ...]) -> list[str]:
        """Which of the options were typed with a value that asks for something, by their first spelling."""
        return [spelling(p) for p in self.typed if p.name in names and self.values[p.name] is not False]

    def writes(self, ability: str = "") -> bool:
        """Whether a file is to be written, in a format with this one of :class:`~ppsim.files.document.Abilities`."""
        suffixes = suffixes_of(self["output"] or (), self["format"], tables=self.command in TABLED)
        if not ability or not suffixes:
            return bool(suffixes)
        from ppsim.files.document import abilities_of

        return any(getattr(abilities_of(suffix), ability) for suffix in suffixes if suffix not in ONLY_TABLES)

    @property
    def draws(self) -> bool:
        """Whether the files written show schedules, and not time against memory."""
        return self.command not in TABLED and not (self["tradeoff"] or self["front"])


def never(given: Given) -> bool:
    """Say of options that they have no effect in any call of a command."""
    return False


@dataclass(frozen=True)
class Need:
    """One row of the table.

    Attributes:
        options: names of parameters.
        holds: whether they have an effect in a call where one of them is typed.
        why: the reason for refusing them, with ``{options}`` where those typed are named.
        hint: what to try.
        commands: where the row counts; empty for every command that has the options.
    """

    options: tuple[str, ...]
    holds: Callable[[Given], bool]
    why: str
    hint: str = "leave one of them out"
    commands: tuple[str, ...] = ()


def spelling(param: click.Parameter) -> str:
    """The first spelling of a parameter, as users type it."""
    return param.opts[0] if isinstance(param, click.Option) else (param.metavar or param.opts[0])


def suffixes_of(output: Sequence[str], form: str | None, *, tables: bool = False) -> list[str]:
    """Find the format of every -o: as named, by its suffix, or json for standard output.

    Raises:
        InputError: no format has this suffix.
    """
    if not output:
        return []
    from ppsim.files.document import suffix_of

    named = f"x.{form.removeprefix('.')}" if form else ""
    files = [named or ("x.json" if target == "-" else target) for target in output]
    return [
        Path(file).suffix.lower() if tables and file.lower().endswith(ONLY_TABLES) else suffix_of(file)
        for file in files
    ]
