"""Readers of tables of ops in CSV, JSON lines and Parquet, into columns of numbers and texts.

A file may begin with a header, a JSON object with facts about all rows: the first line of JSON
lines, the first line of CSV after ``#``, or the metadata ``ppsim`` of Parquet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from ppsim.base.source import name_of
from ppsim.base.text import quote, shorten
from ppsim.base.unpack.json_objects import decode_object, decode_row, find_object
from ppsim.base.unpack.limits import Meter
from ppsim.base.unpack.parquet import MAGIC, open_parquet
from ppsim.base.unpack.texts import Lines, csv_rows
from ppsim.core.job import OPS_SCHEMA
from ppsim.errors import InputError
from ppsim.real.traces.tables.columns import ROW, Column, GrowingColumns
from ppsim.real.traces.tables.words import is_known, is_text, meanings

SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")
# most cells of a table from JSON lines for each cell in the file, and in addition to these
SPARSE, SLACK = 50, 1_000_000
BATCH_ROWS, BATCH_CHARACTERS = 20_000, 4 << 20
LONGEST_KIND, LONGEST_NUMBER = 10_000, 1000  # most bytes of a text in Parquet: a kind, a number
MOST_DEVICES = 1 << 20
HINT = (
    "a table of ops: CSV, JSON lines or Parquet, a row per op, with columns such as stage, "
    "kind, microbatch, start, end"
)
T = TypeVar("T")
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\{")
_NAME = 100  # bytes of memory of a column's name in addition to its characters


@dataclass(frozen=True)
class File:
    """The columns of one file.

    Attributes:
        path: path of the file.
        names: names of all columns in the file.
        rows: number of rows.
        columns: the known columns of a table of ops, each of shape (rows,).
        header: the header.
        units: units of columns whose type states one.
    """

    path: str
    names: tuple[str, ...]
    rows: int
    columns: Mapping[str, Column]
    header: Mapping[str, Any]
    units: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.rows


def read_file(path: str, data: bytes, meter: Meter) -> File:
    """Read one file, and count the memory of its cells in ``meter``.

    Raises:
        InputError: the file is not a table, is truncated, or needs too much memory.
        MissingDependency: the file is Parquet and pyarrow is not installed.
    """
    if data.startswith(MAGIC):
        return _read_parquet(path, data, meter)
    try:
        return (_read_json_lines if _OBJECT.match(data) else _read_csv)(path, data, meter)
    except UnicodeDecodeError:
        raise InputError(f"'{name_of(path)}' is neither text nor Parquet", HINT) from None
    except ValueError as error:
        raise InputError(f"'{name_of(path)}' is not CSV: {shorten(str(error))}", HINT) from None


def check_headers(source: str, files: Sequence[File]) -> None:
    """Refuse files whose headers name two runs, or lack the file of a device (InputError)."""
    first = files[0]
    for file in files[1:]:
        runs = [each.header.get("run") for each in (first, file)]
        if None not in runs and runs[0] != runs[1]:
            raise InputError(
                f"{source} has files of two runs: '{name_of(file.path)}' and "
                f"'{name_of(first.path)}' are of different runs",
                "a folder for each run, without files of an older one",
            )
    _refuse_same_device(source, files)
    stated = [
        tuple(file.header.get(name, -1) for name in ("replica", "device", "devices"))
        for file in files
    ]
    if not all(isinstance(n, int) and n > -1 for row in stated for n in row[1:]):
        return
    devices = min(max(row[2] for row in stated), MOST_DEVICES)
    for replica in sorted({row[0] for row in stated}):
        present = {row[1] for row in stated if row[0] == replica}
        missing = next((device for device in range(devices) if device not in present), None)
        if missing is not None:
            which = f" of replica {replica}" if len({row[0] for row in stated}) > 1 else ""
            raise InputError(
                f"{source}: there is no file of device {missing}{which}, of {devices}",
                "the files of all processes in one folder",
            )


def _refuse_same_device(source: str, files: Sequence[File]) -> None:
    """Refuse two files whose headers name the same device (InputError)."""
    seen = dict[str, File]()
    for file in files:
        header = file.header
        if not {"ppsim", "device"} <= header.keys():
            continue
        device = f"device {quote(header['device'])} of replica {quote(header.get('replica', 0))}"
        first = seen.setdefault(device, file)
        if first is not file:
            raise InputError(
                f"{source}: '{name_of(first.path)}' and '{name_of(file.path)}' both record "
                f"{device}: two runs, or two processes that did not know their ranks",
                "a folder for each run, and record(..., device=RANK) where no launcher sets the "
                "rank",
            )


def find_names(data: bytes) -> list[str]:
    """Return the columns that a file seems to have by its first lines; [] if it is not a table."""
    if data.startswith(MAGIC):
        return ["parquet"]
    lines = (
        line for line in data[:100_000].decode("utf-8-sig", "replace").splitlines() if line.strip()
    )
    first = next(lines, "")
    if first.startswith("#"):
        first = next(lines, "")
    if not first.startswith("{"):
        return _names_in(first) if "," in first else []
    found = [_object_or_none(line) for line in (first, next(lines, ""))]
    if found[0] is None or "traceEvents" in found[0]:
        return []
    return [name for row in found for name in row or ()]


def _names_in(line: str) -> list[str]:
    """Return the cells of one line of CSV, or [] if it is not CSV."""
    try:
        return [name.strip() for name in next(csv_rows(Lines(line.encode(), "")), [])]
    except ValueError:
        return []


def _read_csv(path: str, data: bytes, meter: Meter) -> File:
    """Return the columns of a CSV file."""
    lines, source = Lines(data, f"'{name_of(path)}'"), f"'{name_of(path)}'"
    first = next(lines, "")
    header = _object_or_none(first.lstrip("# ")) or {} if first.startswith("#") else {}
    table = csv_rows(lines, "" if first.startswith("#") else first)
    names = [name.strip() for name in next(table, [])]
    if not names:
        raise InputError(f"{source} is empty", HINT)
    _refuse_same_names(source, names)
    wanted = set(meanings(names).values())
    growing = GrowingColumns(meter, tuple(name for name in names if name in wanted))
    indices = [index for index, name in enumerate(names) if name in wanted]
    # an additional index makes the result a tuple for a single column too
    wanted_cells = itemgetter(*indices, 0)
    for batch in _batches(table, lambda row: sum(map(len, row))):
        uneven = next((n for n, row in enumerate(batch) if len(row) != len(names)), None)
        if uneven is not None:
            number, cells = growing.rows + uneven + 1, len(batch[uneven])
            raise InputError(
                f"{source}: row {number} has {cells:,} cells for {len(names)} columns",
                "a complete file, with one cell per column in each row",
            )
        columns = list(zip(*map(wanted_cells, batch), strict=True))[:-1]
        growing.add(len(batch), dict(zip(growing.names, columns, strict=True)))
    return File(path, tuple(names), growing.rows, growing.columns(), header)


def _batches(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield lists of at most ``BATCH_ROWS`` rows and about ``BATCH_CHARACTERS`` characters."""
    batch, length = list[T](), 0
    for row in rows:
        batch.append(row)
        length += size(row)
        if len(batch) >= BATCH_ROWS or length > BATCH_CHARACTERS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _read_json_lines(path: str, data: bytes, meter: Meter) -> File:
    """Return the columns of a file of JSON lines."""
    source = f"'{name_of(path)}'"
    lines = Lines(data, source)
    header, growing, cells, number = dict[str, Any](), GrowingColumns(meter), 0, 0
    names = dict[str, None]()
    for batch in _batches(_filled_lines(lines), len):
        rows = list[dict[str, Any]]()
        for line in batch:
            number += 1
            rows.append(_row(line, number, source))
            if number > 1 and rows[-1].get("schema") == OPS_SCHEMA:
                raise InputError(
                    f"{source} is of two processes: line {number} begins another recording",
                    "a file for each process, in one folder",
                )
        if number == len(batch) and "schema" in rows[0]:
            header = rows.pop(0)
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if name not in names:
                meter.take(_NAME + 4 * len(name))
                names[name] = None
        cells += sum(map(len, rows))
        known = [name for name in names if is_known(name)]
        growing.add(len(rows), {name: [row.get(name) for row in rows] for name in known})
        if growing.rows * len(names) > SPARSE * cells + SLACK:
            raise InputError(
                f"{source}: {growing.rows:,} rows have {len(names):,} columns, and each row few "
                f"of them",
                "the same columns in every row",
            )
    return File(path, tuple(names), growing.rows, growing.columns(), header)


def _filled_lines(lines: Lines) -> Iterator[str]:
    """Yield the lines that are not empty."""
    for line in lines:
        lines.length = 0
        if line.strip():
            yield line


def _row(line: str, number: int, source: str) -> dict[str, Any]:
    """Return the object of a line (InputError: it is not one, or the file is truncated)."""
    try:
        return _object(line, f"{source}, line {number}")
    except InputError:
        if line.endswith(("\n", "\r")):
            raise
        raise InputError(
            f"{source} is truncated in line {number}", "leave out that line, or a complete file"
        ) from None


def _object(text: str, where: str) -> dict[str, Any]:
    """Return the object of a JSON text (InputError: it is not one)."""
    try:
        return decode_row(text)
    except ValueError as error:
        raise InputError(f"{where}: {shorten(str(error))}", HINT) from None


def _object_or_none(text: str) -> dict[str, Any] | None:
    """Return the object of a JSON text, which may have a key twice; None if it is not one."""
    try:
        found: dict[str, Any] = decode_object(text, dict[str, Any])
    except ValueError:
        return None
    return found


def _refuse_same_names(source: str, names: Sequence[str]) -> None:
    """Refuse two columns of the same name (InputError)."""
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{source} has two columns '{shorten(repeated[0])}'", "rename one of them")


def _read_parquet(path: str, data: bytes, meter: Meter) -> File:
    """Return the columns of a Parquet file."""
    table = open_parquet(data, f"'{name_of(path)}'", HINT, meter)
    meter.take(table.rows * ROW)
    wanted = set(meanings(table.columns).values())
    columns = {
        name: table.array(name, LONGEST_KIND if is_text(name) else LONGEST_NUMBER)
        for name in table.columns
        if name in wanted
    }
    units = {name: "ns" for name in columns if table.has_times(name)}
    header = find_object(table.header)
    return File(
        path,
        tuple(table.columns),
        table.rows,
        columns,
        header if isinstance(header, dict) else {},
        units,
    )
