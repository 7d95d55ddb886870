"""The options of costs: those of all parts, which a scan of ``parts/`` finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, make_dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from ppsim.ask.given import Need
from ppsim.ask.groups import DETAILED, NetworkOptions
from ppsim.ask.options import list_options
from ppsim.base.scan import lacking, load_files
from ppsim.prices import parts
from ppsim.prices.part import COSTS, LAYER_TIMES, UNEVEN, Asked, Part, Source, TimesOfKinds

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.prices.parts.chunks import Chunks
    from ppsim.prices.parts.copies import Copies
    from ppsim.prices.parts.devices import Devices
    from ppsim.prices.parts.encoder import EncoderFile
    from ppsim.prices.parts.function import FunctionOfSchedule
    from ppsim.prices.parts.layout import LayoutString
    from ppsim.prices.parts.links import Links
    from ppsim.prices.parts.modelled import ModelOnCluster
    from ppsim.prices.parts.numbers import Numbers
    from ppsim.prices.parts.others import Others
    from ppsim.prices.parts.profile import MeasuredProfile
    from ppsim.prices.parts.recompute import Recompute
    from ppsim.prices.parts.segments import SegmentFile
    from ppsim.prices.parts.steps import Steps
    from ppsim.prices.parts.unequal import Unequal
    from ppsim.prices.parts.unit import Unit
    from ppsim.prices.trained import TrainedModel


P = TypeVar("P", bound=Part)


def _find_parts() -> Iterator[type[Part]]:
    """Import the files of ``parts/``, and yield the part in each."""
    for module in load_files(parts):
        kinds = [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type)
            and issubclass(kind, Part)
            and kind.__module__ == module.__name__
        ]
        if not kinds:
            raise lacking(module, "class derived from Part", parts)
        for kind in kinds:
            if not hasattr(kind, "place"):
                raise lacking(module, f"place in {kind.__name__}", parts)
        yield from kinds


def _list_names(kinds: Iterable[type[Part]]) -> Iterator[str]:
    """Yield the names of the options of parts."""
    for kind in kinds:
        for each in list_options(kind):
            yield each.name


PARTS: tuple[type[Part], ...] = tuple(sorted(_find_parts(), key=lambda kind: kind.place))
# Names of the options for the time of a kind of op other than F, B, I, W and R.
OTHER_KINDS = tuple(name for kind in PARTS if issubclass(kind, TimesOfKinds) for name in kind.kinds)
# Names of the options that are refused if no schedule uses them.
REFUSED_UNUSED = tuple(name for kind in PARTS for name in kind.lacks)
# Names of the options that change the ops of a schedule, and of these the ones that add ops.
DECIDING_OPS = frozenset(name for kind in PARTS for name in kind.decides_ops)
ADDING_OPS = tuple(name for kind in PARTS for name in kind.adds_ops)
# Names of the options of sources that give all costs at once, and of these the ones whose times do
# not follow from the layers of a stage.
WHOLE_COSTS = tuple(_list_names(kind for kind in PARTS if kind.gives_whole_costs))
WITHOUT_LAYERS = tuple(
    _list_names(
        kind
        for kind in PARTS
        if kind.gives_whole_costs and issubclass(kind, Source) and not kind.prices_layouts
    )
)
# Names of the options whose value is a file.
NAMING_FILES = tuple(
    each.name for kind in PARTS for each in list_options(kind) if isinstance(each.type, click.Path)
)
# Names of the options that give the costs of ops, and of all that change times.
GIVEN_COSTS = (*COSTS, *WHOLE_COSTS)
TIMING = (*GIVEN_COSTS, *UNEVEN, *DETAILED, "recompute")


def list_unread(kind: type[Source]) -> tuple[str, ...]:
    """List the options of times that a source does not read: numbers, times of layers, and the
    options that call the sources that stand earlier.
    """
    earlier = (each for each in PARTS if issubclass(each, Source) and each.place < kind.place)
    names = (*COSTS, *LAYER_TIMES, *(name for each in earlier for name in each.called_by))
    known = {*kind.reads, *(each.name for each in list_options(kind))}
    return tuple(name for name in names if name not in known)


def _list_part_needs(kind: type[Part]) -> Iterator[Need]:
    """Yield the rules of a part's options: its ``needs``, and for a source that it gives all
    times.
    """
    yield from kind.needs
    options = {each.name: each.spelling for each in list_options(kind)}
    calling = [name for name in kind.called_by if name in options]
    if issubclass(kind, Source) and calling:
        yield Need(
            list_unread(kind),
            lambda given: not any(is_given(given[name]) for name in calling),
            f"{options[calling[0]]} gives the times of all ops, so {{options}} cannot be given too",
        )


if TYPE_CHECKING:
    # for type checkers, which run no scan: the parts whose options are read elsewhere by name
    @dataclass(frozen=True)
    class CostOptions(
        Recompute,
        FunctionOfSchedule,
        ModelOnCluster,
        EncoderFile,
        SegmentFile,
        MeasuredProfile,
        Unit,
        LayoutString,
        Devices,
        Unequal,
        Chunks,
        Steps,
        Links,
        Others,
        Copies,
        Numbers,
    ):
        """Options of op costs; None is the default."""

else:

    def _options_of_parts() -> Iterator[tuple[str, str, object]]:
        for kind in PARTS:
            for each in fields(kind):
                yield each.name, each.type, each

    NEEDS: tuple[Need, ...] = tuple(need for kind in PARTS for need in _list_part_needs(kind))
    CostOptions = make_dataclass(
        "CostOptions",
        _options_of_parts(),
        frozen=True,
        namespace={
            "__doc__": "Options of op costs; None is the default.",
            "__module__": __name__,
            "needs": NEEDS,
        },
    )


def ask_costs(
    costs: CostOptions,
    network: NetworkOptions | None = None,
    measured: Costs | None = None,
    model: TrainedModel | None = None,
) -> Asked:
    """Return the parts that the options call.

    Args:
        costs: the options of costs.
        network: the options of messages.
        measured: the costs of a real run, which replace those of all parts.
        model: the trained model.
    """
    values = {each.name: getattr(costs, each.name) for each in fields(costs)}
    called = tuple(
        make_part(kind, costs)
        for kind in reversed(PARTS)
        if not kind.called_by or any(is_given(values[name]) for name in kind.called_by)
    )
    return Asked(values, called, network, measured, model)


def make_part(kind: type[P], costs: CostOptions) -> P:
    """Return a part with its options, called or not."""
    return kind(**{each.name: getattr(costs, each.name) for each in fields(kind)})


def is_given(value: object) -> bool:
    """Return True if the value of an option of costs is set and not switched off."""
    return value is not None and value is not False and value != ()
