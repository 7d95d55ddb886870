"""Read any table of ops, whatever its columns are called: a row per op of a training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.numbers import plain_float
from ppsim.base.source import name_of
from ppsim.base.text import quote, shorten
from ppsim.base.unpack.limits import Meter
from ppsim.core.job import OPS_SCHEMA
from ppsim.core.ops import COMPUTES, Kind
from ppsim.errors import InputError
from ppsim.real.traces.tables.file import HINT, File, check_headers, find_names, read_file
from ppsim.real.traces.tables.words import (
    COLUMNS,
    GROUPS,
    PER_SECOND,
    UNITS,
    kind_of,
    meanings,
    split_unit,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NUMBERS = ("iteration", "replica", "device", "stage", "chunk", "microbatch", "order")
TIMES = ("start", "end", "duration", "posted")
LARGEST = 1 << 24  # of a device, stage or microbatch
UNKNOWN = -1
SIMULATED = "t_F"  # the unit of simulated runs without real times
OTHER = len(Kind)  # the code of rows outside the pipeline, such as collectives and the optimizer
TYPICAL = 0.02  # seconds of an op of a training run, to guess an unknown unit
# the smallest times since 1970 in each unit
EPOCHS = {"s": 1e9, "ms": 1e12, "us": 1e15, "ns": 1e18}


@dataclass(frozen=True)
class OpTable:
    """All rows of a run's files.

    Attributes:
        source: the file or files, for messages.
        columns: values of each column in :data:`NUMBERS`, shape (rows,), -1 where a row has none.
        kind: code of each op's kind, shape (rows,); ``OTHER`` for ops outside the pipeline.
        name: index in ``names`` of each op's name, shape (rows,).
        names: the file's names of ops.
        group: index in ``GROUPS`` of each collective's group, shape (rows,); -1 where the file
            does not contain it.
        start, end, posted: times in ``unit``, shape (rows,); NaN where a row has none.
        unit: unit of the times.
        row: number of each row in its file, from 1, shape (rows,).
        column_notes: sentences on the interpretation of the columns.
        notes: sentences on guesses.
    """

    source: str
    columns: Mapping[str, Ints]
    kind: NDArray[np.uint8]
    name: Ints
    names: tuple[str, ...]
    group: Ints
    start: Floats
    end: Floats
    posted: Floats
    unit: str
    row: Ints
    column_notes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def has(self, column: str) -> bool:
        """Return whether any row has a value in a column."""
        return bool((self.columns[column] != UNKNOWN).any())

    def keep(self, rows: NDArray[np.bool_]) -> OpTable:
        """Return a table of the selected rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        names = ("kind", "name", "group", "start", "end", "posted", "row")
        return replace(self, columns=columns, **{name: getattr(self, name)[rows] for name in names})

    def shift(self, offset: Floats) -> OpTable:
        """Return a table with an offset subtracted from the times of each row, shape (rows,)."""
        return replace(
            self, start=self.start - offset, end=self.end - offset, posted=self.posted - offset
        )


def is_table(data: bytes) -> bool:
    """Return whether a file's content is a table with a column of kinds and a column of times."""
    names = find_names(data)
    if names == ["parquet"] or "schema" in names:
        return names == ["parquet"] or OPS_SCHEMA.encode() in data[:1000]
    found = meanings(names)
    return "kind" in found and bool({"start", "end"} & found.keys())


def read_table(source: str, files: Mapping[str, bytes], unit: str = "") -> OpTable:
    """Read the tables of one run, from a single file or from one file per process.

    Args:
        source: name of the run for messages.
        files: content by path.
        unit: unit of times for columns without a unit; guessed if it is empty and no header
            contains a unit.

    Raises:
        InputError: a file is not a table, a column is missing, or a value does not fit its column.
        MissingDependency: Parquet without pyarrow.
    """
    meter = Meter(f"'{source}'")
    read = [read_file(path, data, meter) for path, data in files.items()]
    check_headers(source, read)
    tables = [_Columns(file) for file in read]
    for table in tables:
        table.require()
    unit, guess = _unit_of(tables, unit)
    start, end, posted, is_reversed = _times(tables, unit)
    numbers = {name: np.concatenate([t.numbers(name) for t in tables]) for name in NUMBERS}
    kind, name, names = _kinds(tables)
    if len(tables) > 1 and not (numbers["device"] != UNKNOWN).any():
        numbers["device"] = _device_of_files(tables, numbers["stage"])
    rows = np.concatenate([np.arange(1, len(file) + 1) for file in read])
    group = np.concatenate([t.groups() for t in tables])
    column_notes = (
        *_column_sentences(tables[0]),
        *_kind_sentences(kind, name, names),
        f"times: in {unit}",
    )
    found = OpTable(
        source, numbers, kind, name, names, group, start, end, posted, unit, rows, column_notes
    )
    return replace(found, notes=(*guess, *_reversed_sentences(found, is_reversed)))


def _reversed_sentences(table: OpTable, is_reversed: NDArray[np.bool_]) -> Iterator[str]:
    """Yield a sentence on the ops that end before they start, which count as ops without times.

    Raises:
        InputError: most ops end before they start.
    """
    computes = np.append(COMPUTES, False)[table.kind]
    lost = np.flatnonzero(computes & is_reversed)
    if not len(lost):
        return
    said = f"{table.names[table.name[lost[0]]]} in row {table.row[lost[0]]} ends before it starts"
    said += f", and so do {len(lost)} of {computes.sum()} ops" * (len(lost) > 1)
    if len(lost) * 2 > computes.sum():
        raise InputError(f"{table.source}: {said}", "times of start and end in the same unit")
    yield f"{said}: taken as if without times"


class _Columns:
    """The columns of one file, found by meaning."""

    def __init__(self, file: File) -> None:
        self.file = file
        constants = [name for name in file.header if name in COLUMNS and name not in file.names]
        self.found = meanings([*file.names, *constants])

    def require(self) -> None:
        """Refuse a file without rows or required columns (InputError)."""
        source, found = f"'{name_of(self.file.path)}'", self.found
        schema = self.file.header.get("schema", OPS_SCHEMA)
        if schema != OPS_SCHEMA:
            raise InputError(
                f"the schema of {source} is {quote(schema)}", f"{OPS_SCHEMA}, or no header"
            )
        if not len(self.file):
            raise InputError(f"{source} has no rows", HINT)
        missing = [name for name in ("kind", "microbatch") if name not in found]
        if (
            not {"start", "end"} & found.keys()
            or not len({"start", "end", "duration"} & found.keys()) > 1
        ):
            missing.append("start" if "start" not in found else "end")
        if not {"device", "stage"} & found.keys():
            missing.append("device")
        if missing:
            known = ", ".join(COLUMNS[missing[0]][:6])
            alternative = (
                " or a duration"
                if missing[0] in ("start", "end")
                else " or a stage"
                if missing[0] == "device"
                else ""
            )
            here = ", ".join(shorten(name, 40) for name in self.file.names[:20])
            raise InputError(
                f"{source} has no column of {missing[0]}{alternative}, only {here}",
                f"one named {known}",
            )

    def values(self, meaning: str) -> NDArray[np.generic] | None:
        """Return the values of a column, or the constant in the header, repeated; None if the file
        has neither.
        """
        name = self.found.get(meaning)
        if name is None:
            return None
        if name in self.file.columns:
            return self.file.columns[name]
        return np.full(len(self.file), self.file.header[name], object)

    def numbers(self, meaning: str) -> Ints:
        """Return a column of integers, -1 where a row has none."""
        values = self.values(meaning)
        if values is None:
            return np.full(len(self.file), UNKNOWN, np.int64)
        found = self._floats(meaning, values)
        known = np.where(np.isnan(found), UNKNOWN, found)
        most = LARGEST if meaning != "iteration" else 1 << 53
        wrong = np.flatnonzero((known != np.floor(known)) | (known < UNKNOWN) | (known > most))
        if len(wrong):
            raise self._cell_error(meaning, int(wrong[0]), values, "a whole number from 0")
        return known.astype(np.int64)

    def times(self, meaning: str, unit: str, base: int) -> Floats:
        """Return times in ``unit`` minus ``base``, NaN where a row has none.

        Integers are subtracted exactly, since nanoseconds since 1970 exceed the precision of
        floats.
        """
        values = self.values(meaning)
        if values is None:
            return np.full(len(self.file), np.nan)
        base = 0 if meaning == "duration" else base
        own = self.unit_of(meaning) or unit
        factor = PER_SECOND[unit] / PER_SECOND[own] if own != unit else 1.0
        exact = values.dtype == object and not any(
            isinstance(value, float) for value in values.tolist()
        )
        if factor == 1.0 and base and (values.dtype.kind in "iu" or exact):
            try:
                return (values.astype(np.int64) - base).astype(np.float64)
            except (ValueError, TypeError, OverflowError):
                pass  # fractions, or rows without a time
        found = self._floats(meaning, values) * factor - base
        return np.where(np.isfinite(found), found, np.nan)

    def _floats(self, meaning: str, values: NDArray[np.generic]) -> Floats:
        if values.dtype.kind in "iuf":
            return values.astype(np.float64)
        if values.dtype.kind == "b":
            raise self._cell_error(meaning, 0, values, "a number")
        found = [_number(value) for value in values.tolist()]
        if None in found:
            raise self._cell_error(meaning, found.index(None), values, "a number")
        return np.array(found, np.float64)

    def kinds(self) -> NDArray[np.object_]:
        """Return the table's word for the kind of each row."""
        values = np.asarray(self.values("kind"), object)
        if nested := [
            n for n, value in enumerate(values.tolist()) if isinstance(value, list | dict)
        ]:
            raise self._cell_error("kind", nested[0], values, "a word such as F or B")
        return values

    def groups(self) -> Ints:
        """Return each row's index in ``GROUPS``, -1 where the file does not contain it."""
        values = self.values("group")
        if values is None:
            return np.full(len(self.file), UNKNOWN, np.int64)
        texts, place = np.unique(
            [str(value or "") for value in values.tolist()], return_inverse=True
        )
        for text in texts.tolist():
            if text and text not in GROUPS:
                raise InputError(
                    f"'{name_of(self.file.path)}': group {quote(text)}",
                    f"one of {', '.join(GROUPS)}",
                )
        return np.array([GROUPS.index(t) if t else UNKNOWN for t in texts.tolist()], np.int64)[
            place
        ]

    def unit_of(self, meaning: str) -> str:
        """Return the unit in a column's name, its type or the header; empty without one."""
        name = self.found.get(meaning, "")
        unit = self.file.units.get(name) or split_unit(name)[1]
        header = self.file.header.get("unit", "")
        if header and header not in (*UNITS, SIMULATED):
            raise InputError(
                f"'{name_of(self.file.path)}': unit {quote(header)}",
                f"one of {', '.join(PER_SECOND)}",
            )
        return unit or UNITS.get(header, header)

    def _cell_error(
        self, meaning: str, at: int, values: NDArray[np.generic], wanted: str
    ) -> InputError:
        where = f"'{name_of(self.file.path)}', row {at + 1}"
        return InputError(f"{where}: {self.found[meaning]} is {quote(values.tolist()[at])}", wanted)


def _number(value: Any) -> float | None:
    """Return a cell as a number, NaN for an empty one; None if it is not a number."""
    if value is None or value == "":
        return np.nan
    if isinstance(value, bool):
        return None
    try:
        return plain_float(value) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError):
        return None


def _unit_of(tables: Sequence[_Columns], given: str) -> tuple[str, tuple[str, ...]]:
    """Return the unit of all times, and a note if it is a guess."""
    units = [[unit for name in TIMES if (unit := table.unit_of(name))] for table in tables]
    if found := (units[0] or [given])[0] or next(chain(*units), ""):
        return found, ()
    start, end, _ = _raw_times(tables, "", 0)
    since_1970 = float(np.nanmedian(start)) if np.isfinite(start).any() else 0.0
    for unit, least in reversed(EPOCHS.items()):
        if since_1970 >= least:
            return unit, ()
    took = (end - start)[np.append(COMPUTES, False)[_kinds(tables)[0]]]
    took = took[took > 0]
    typical = float(np.median(took)) if len(took) else TYPICAL
    unit = min(PER_SECOND, key=lambda unit: abs(np.log10(typical / PER_SECOND[unit] / TYPICAL)))
    return unit, (
        f"times are assumed to be in {unit}, since half the ops take over {typical:.3g}: --unit "
        f"sets another unit",
    )


def _raw_times(tables: Sequence[_Columns], unit: str, base: int) -> tuple[Floats, Floats, Floats]:
    """Return start, end and posted of all rows by the clocks of their files, minus ``base``."""
    rows = []
    for table in tables:
        start, end, duration, posted = (table.times(name, unit, base) for name in TIMES)
        start = np.where(np.isnan(start), end - duration, start)
        rows.append((start, np.where(np.isnan(end), start + duration, end), posted))
    start, end, posted = (np.concatenate(column) for column in zip(*rows, strict=True))
    return start, end, posted


def _times(
    tables: Sequence[_Columns], unit: str
) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Return start, end and posted of all rows on one clock, and True for rows that end before they
    start, whose start and end are NaN.
    """
    first = _raw_times(tables[:1], unit, 0)[0]
    base = int(np.nanmin(first)) if np.isfinite(first).any() else 0
    start, end, posted = _raw_times(tables, unit, base)
    epochs = [_epoch(table) for table in tables]
    shift = np.repeat(
        [(epoch - epochs[0]) * PER_SECOND.get(unit, 1.0) for epoch in epochs],
        [len(t.file) for t in tables],
    )
    wrong = ~(end >= start)
    return (
        np.where(wrong, np.nan, start + shift),
        np.where(wrong, np.nan, end + shift),
        posted + shift,
        end < start,
    )


def _epoch(table: _Columns) -> float:
    """Return the start of the file's clock in seconds since 1970; 0 without one."""
    epoch = table.file.header.get("epoch", 0)
    if not isinstance(epoch, int | float) or not 0 <= epoch < 1e11:
        raise InputError(
            f"'{name_of(table.file.path)}': epoch {quote(epoch)}", "seconds since 1970"
        )
    return float(epoch)


def _kinds(tables: Sequence[_Columns]) -> tuple[NDArray[np.uint8], Ints, tuple[str, ...]]:
    """Return the kind of each row, the index of its name, and all names."""
    words = np.concatenate([t.kinds() for t in tables])
    codes, place, names = dict[object, int](), np.empty(len(words), np.int64), list[str]()
    for word in dict.fromkeys(words.tolist()):
        codes[word] = len(codes)
        names.append(shorten(str(word if word is not None else "")))
    place[:] = [codes[word] for word in words.tolist()]
    kinds = [kind_of(name) for name in names]
    if not any(kind is not None and COMPUTES[kind] for kind in kinds):
        raise InputError(
            f"no op is a forward or a backward: the kinds are {', '.join(names[:8])}",
            "F, B, forward-compute, bwd, ...",
        )
    code = [OTHER if kind is None or kind >= Kind.UNSHARD else int(kind) for kind in kinds]
    return np.array(code, np.uint8)[place], place, tuple(names)


def _device_of_files(tables: Sequence[_Columns], stage: Ints) -> Ints:
    """Return the device of each row: files are numbered in the order of their first stages."""
    ends = np.cumsum([0, *(len(table.file) for table in tables)])
    least = [stage[a:b][stage[a:b] >= 0].min(initial=LARGEST) for a, b in pairwise(ends.tolist())]
    return np.repeat(np.argsort(np.argsort(least, kind="stable")), np.diff(ends)).astype(np.int64)


def _column_sentences(table: _Columns) -> Iterator[str]:
    """Yield a sentence on the meaning of columns, and a sentence on ignored columns."""
    found, file = table.found, table.file
    yield "columns: " + ", ".join(
        name if simple == name else f"{name} ({simple})"
        for name, simple in found.items()
        if name in COLUMNS
    )
    ignored = [name for name in file.names if name not in found.values()]
    if ignored:
        yield (
            f"not read: "
            f"{', '.join(shorten(name, 40) for name in ignored[:12])}"
            f"{' ...' * (len(ignored) > 12)}"
        )


def _kind_sentences(kind: NDArray[np.uint8], name: Ints, names: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence on the meaning of kinds, and a sentence on ops outside the pipeline."""
    kind_of_name = np.zeros(len(names), np.int64)
    kind_of_name[name] = kind
    pairs = [
        f"{Kind(code).name} is {n}"
        for n, code in zip(names, kind_of_name.tolist(), strict=True)
        if code != OTHER
    ]
    if any(text.partition(" is ")[0] != text.partition(" is ")[2] for text in pairs):
        yield "kinds: " + ", ".join(pairs[:8]) + " ..." * (len(pairs) > 8)
    others = [n for n, code in zip(names, kind_of_name.tolist(), strict=True) if code == OTHER]
    if others:
        yield f"between: {', '.join(others[:8])}{' ...' * (len(others) > 8)}"
