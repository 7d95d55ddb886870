"""Schedules in JSON: the output of ``ppsim run --json`` or only its ``ops``, times optional."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import shorten
from ppsim.base.typed_json import decode
from ppsim.core.draft import Draft
from ppsim.core.ops import STAGELESS, Kind
from ppsim.core.soundness import LONGEST
from ppsim.errors import InputError

SUFFIXES = (".json",)
_SHAPE = (
    'a schedule is {"ops": {"device": [0, 0], "kind": ["F", "B"], "stage": [0, 0], '
    '"microbatch": [0, 0]}}'
)


class Ops(msgspec.Struct, frozen=True):
    """Columns of the ops, one entry per op."""

    device: list[int]
    kind: list[str]
    stage: list[int]
    microbatch: list[int]
    pair: list[int] | None = None
    start: list[float] | None = None
    end: list[float] | None = None


class Transfers(msgspec.Struct, frozen=True):
    """The columns of messages that are read: the times at which each left and arrived."""

    leave: list[float]
    arrive: list[float]


class Run(msgspec.Struct, frozen=True):
    """One run; other keys are skipped."""

    ops: Ops | None = None
    runs: list[msgspec.Raw] | None = None
    schedule: str = ""
    unit: str = "t_F"
    makespan: float | None = None
    slices: Annotated[int, msgspec.Meta(ge=1)] = 1
    steps: Annotated[int, msgspec.Meta(ge=1)] = 1
    feeds_back: bool = False
    flushes: bool = True
    partly: list[Annotated[int, msgspec.Meta(ge=0)]] = []
    transfers: Transfers | None = None


SOME_KINDS = 9  # kinds that the message on an unknown kind lists
KEYS = frozenset((*Run.__struct_fields__, *Ops.__struct_fields__, *Transfers.__struct_fields__))


def matches(text: str) -> bool:
    """Return whether the text is a JSON object."""
    return text.lstrip().startswith("{")


def parse(text: str, source: str) -> Draft:
    """Return the ops of one run; on each device they keep the order of the file.

    Raises:
        InputError: there are no ops or several runs, or columns differ in length or have the wrong
            type.
    """
    run = decode(text, Run, source, _SHAPE, KEYS)
    if run.runs is not None:
        if len(run.runs) != 1:
            raise InputError(f"{source} contains {len(run.runs)} runs", "write one run per file")
        run = decode(run.runs[0], Run, f"{source}: runs[0]", _SHAPE)
    if run.ops is None:
        raise InputError(f"{source} has no ops", _SHAPE)
    times = _times(run.ops, source)
    finish = None
    if run.makespan is not None and times is not None:
        finish = _finite([run.makespan], "makespan", source)[0]
        if finish < times[:, 1].max(initial=0.0):
            raise InputError(
                f"{source}: the makespan, {finish:g}, is before the end of the last op",
                "leave it out",
            )
    messages = run.transfers and [
        _finite(getattr(run.transfers, n), n, source) for n in ("leave", "arrive")
    ]
    if messages and len(messages[0]) != len(messages[1]):
        raise InputError(
            f"{source}: the columns of transfers differ in length", "give every message both times"
        )
    draft = Draft.from_table(
        source,
        _table(run.ops, source),
        times,
        name=shorten(run.schedule),
        unit=shorten(run.unit),
        finish=finish,
        messages=np.stack(messages, axis=1) if messages else None,
        n_slices=run.slices,
    )
    rounds: dict[str, Any] = {
        "n_rounds": run.steps,
        "feeds_back": run.feeds_back,
        "flushes": run.flushes,
    }
    return replace(draft, partial_recompute=tuple(run.partly), **rounds)


def _table(ops: Ops, source: str) -> NDArray[np.int64]:
    """Return the table of a draft, shape (ops, 7)."""
    numbers = {kind.name: int(kind) for kind in Kind}
    if unknown := set(ops.kind) - numbers.keys():
        given = shorten(min(unknown), 40)
        some = ", ".join(list(numbers)[:SOME_KINDS])
        message = (
            f"{source}: ops.kind must be a list of {some} and other kinds of ops, and has '{given}'"
        )
        raise InputError(message, _SHAPE)
    kind = np.array([numbers[name] for name in ops.kind], np.int64)
    device, stage, microbatch = (
        _integers(ops, name, source) for name in ("device", "stage", "microbatch")
    )
    if len(stage) == len(kind) and ((stage < 0) & ~np.isin(kind, STAGELESS)).any():
        raise InputError(f"{source}: ops.stage has -1", "count from 0")
    pair = np.full(len(kind), -1) if ops.pair is None else _integers(ops, "pair", source)
    if any(len(column) != len(kind) for column in (device, stage, microbatch, pair)):
        raise InputError(
            f"{source}: the columns of ops differ in length",
            "give every op an entry in every column",
        )
    index = np.arange(len(kind))
    paired = pair >= 0
    if paired.any() and not np.array_equal(
        pair[pair.clip(0, len(pair) - 1)][paired], index[paired]
    ):
        raise InputError(
            f"{source}: ops.pair does not go both ways",
            "the two ops of a pair have each other's index, other ops -1",
        )
    part = np.where(paired, np.where(pair > index, 1, 2), 0)
    begins = np.searchsorted(np.sort(device), device)
    cell = np.empty(len(kind), np.int64)
    order = np.argsort(device, kind="stable")
    cell[order] = index + 1
    return np.stack([device, kind, stage, microbatch, device + 1, cell - begins, part], axis=1)


def _times(ops: Ops, source: str) -> NDArray[np.float64] | None:
    """Return start and end of each op, shape (ops, 2), or None if the file has no times."""
    if ops.start is None and ops.end is None:
        return None
    if ops.start is None or ops.end is None:
        raise InputError(f"{source}: ops has one of start and end", "give both, or none")
    if not len(ops.start) == len(ops.end) == len(ops.kind):
        raise InputError(
            f"{source}: the columns of ops differ in length",
            "give every op an entry in every column",
        )
    return np.stack(
        [_finite(ops.start, "ops.start", source), _finite(ops.end, "ops.end", source)], axis=1
    )


def _integers(ops: Ops, name: str, source: str) -> NDArray[np.int64]:
    """Return a column of whole numbers from 0, or from -1 where that means none."""
    try:
        array = np.array(getattr(ops, name), np.int64)
    except OverflowError:
        raise InputError(
            f"{source}: ops.{name} has a number that is too large", "count from 0"
        ) from None
    least = -1 if name in ("pair", "microbatch", "stage") else 0
    if ((array < least) | (array >= 1 << 31)).any():
        worst = array.min() if (array < least).any() else array.max()
        raise InputError(f"{source}: ops.{name} has {worst}", "count from 0")
    return array


def _finite(values: list[float], name: str, source: str) -> NDArray[np.float64]:
    """Return times as an array (InputError: one is too large)."""
    array = np.array(values, np.float64)
    if (np.abs(array) > LONGEST).any():
        raise InputError(
            f"{source}: {name} has a value beyond {LONGEST:g}", "give times in a larger unit"
        )
    return array
