"""Tables of ops as files hold them: CSV, JSON lines and Parquet, into columns of numbers and texts.

A file may begin with a header, an object with facts about all rows: the first line of JSON lines,
the first line of CSV after ``#``, the metadata ``ppsim`` of Parquet.
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
from ppsim.base.unpack.json_objects import decode_object, find_object
from ppsim.base.unpack.limits import Meter
from ppsim.base.unpack.parquet import MAGIC, open_parquet
from ppsim.base.unpack.texts import Lines, csv_rows
from ppsim.core.job import OPS_SCHEMA
from ppsim.errors import InputError
from ppsim.real.traces.tables.columns import ROW, Column, GrowingColumns
from ppsim.real.traces.tables.words import is_known, is_text, meanings

SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")
SPARSE, SLACK = 50, 1_000_000  # cells of JSON lines for each that a row holds, and besides
BATCH_ROWS, BATCH_CHARACTERS = 20_000, 4 << 20
LONGEST_KIND, LONGEST_NUMBER = 10_000, 1000  # bytes of a text in Parquet
MOST_DEVICES = 1 << 20
HINT = (
    "a table of ops: CSV, JSON lines or Parquet, a row per op, with columns such as stage, "
    "kind, microbatch, start, end"
)
T = TypeVar("T")
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\{")
_NAME = 100  # bytes of memory of a column's name besides its characters


@dataclass(frozen=True)
class File:
    """One file's columns.

    Attributes:
        path: of the file.
        names: of all its columns.
        rows: how many there are.
        columns: the columns of a table of ops that the file has, each of shape (rows,).
        header: an object with facts about all rows.
        units: the units of columns whose type says them.
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
    """Read one file, and count in ``meter`` the memory that its cells take.

    Raises:
        InputError: it is not a table, is cut short, or takes too much memory.
        MissingDependency: Parquet without pyarrow.
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
    """Refuse files that are, by the recorder's headers, of two runs or lack a device's
    (InputError).
    """
    first = files[0]
    for file in files[1:]:
        runs = [each.header.get("run") for each in (first, file)]
        if None not in runs and runs[0] != runs[1]:
            raise InputError(
                f"{source} holds files of two runs: '{name_of(file.path)}' is of another than "
                f"'{name_of(first.path)}'",
                "a folder for each run, without files of an older one",
            )
    _refuse_two_of_a_device(source, files)
    told = [
        tuple(file.header.get(name, -1) for name in ("replica", "device", "devices"))
        for file in files
    ]
    if not all(isinstance(n, int) and n > -1 for row in told for n in row[1:]):
        return
    devices = min(max(row[2] for row in told), MOST_DEVICES)
    for replica in sorted({row[0] for row in told}):
        have = {row[1] for row in told if row[0] == replica}
        missing = next((device for device in range(devices) if device not in have), None)
        if missing is not None:
            which = f" of replica {replica}" if len({row[0] for row in told}) > 1 else ""
            raise InputError(
                f"{source}: there is no file of device {missing}{which}, of {devices}",
                "the files of all processes in one folder",
            )


def _refuse_two_of_a_device(source: str, files: Sequence[File]) -> None:
    """Refuse two files that, by the recorder's headers, are of one device (InputError)."""
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
                f"{device}: two runs, or two processes that were told no rank",
                "a folder for each run, and record(..., device=RANK) where no launcher tells the "
                "rank",
            )


def find_names(data: bytes) -> list[str]:
    """List the columns that a file seems to have, from its head; empty where it is not a table."""
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
    """List the cells of one line of CSV; empty where it is not CSV."""
    try:
        return [name.strip() for name in next(csv_rows(Lines(line.encode(), "")), [])]
    except ValueError:
        return []


def _read_csv(path: str, data: bytes, meter: Meter) -> File:
    lines, source = Lines(data, f"'{name_of(path)}'"), f"'{name_of(path)}'"
    first = next(lines, "")
    header = _object_or_none(first.lstrip("# ")) or {} if first.startswith("#") else {}
    table = csv_rows(lines, "" if first.startswith("#") else first)
    names = [name.strip() for name in next(table, [])]
    if not names:
        raise InputError(f"{source} is empty", HINT)
    _refuse_twice(source, names)
    wanted = set(meanings(names).values())
    gathered = GrowingColumns(meter, tuple(name for name in names if name in wanted))
    places = [place for place, name in enumerate(names) if name in wanted]
    pick = itemgetter(*places, 0)  # with one more, so that it is a tuple for one place too
    for batch in _batches(table, lambda row: sum(map(len, row))):
        uneven = next((n for n, row in enumerate(batch) if len(row) != len(names)), None)
        if uneven is not None:
            at, cells = gathered.rows + uneven + 1, len(batch[uneven])
            what = f"row {at} has {cells:,} cells for {len(names)} columns"
            raise InputError(
                f"{source}: {what}", "a file that is whole, with one cell per column in each row"
            )
        columns = list(zip(*map(pick, batch), strict=True))[:-1]
        gathered.add(len(batch), dict(zip(gathered.names, columns, strict=True)))
    return File(path, tuple(names), gathered.rows, gathered.columns(), header)


def _batches(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Split rows into lists of at most ``BATCH_ROWS`` rows and about ``BATCH_CHARACTERS``."""
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
    source = f"'{name_of(path)}'"
    lines = Lines(data, source)
    header, gathered, cells, number = dict[str, Any](), GrowingColumns(meter), 0, 0
    names = dict[str, None]()
    for batch in _batches(_filled(lines), len):
        rows = list[dict[str, Any]]()
        for line in batch:
            number += 1
            rows.append(_row(line, number, source))
            if number > 1 and rows[-1].get("schema") == OPS_SCHEMA:
                what = f"line {number} begins another recording"
                hint = "a file for each process, in one folder"
                raise InputError(f"{source} is of two processes: {what}", hint)
        if number == len(batch) and "schema" in rows[0]:
            header = rows.pop(0)
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if name not in names:
                meter.take(_NAME + 4 * len(name))
                names[name] = None
        cells += sum(map(len, rows))
        known = [name for name in names if is_known(name)]
        gathered.add(len(rows), {name: [row.get(name) for row in rows] for name in known})
        if gathered.rows * len(names) > SPARSE * cells + SLACK:
            what = f"{gathered.rows:,} rows name {len(names):,} columns, and each row few of them"
            raise InputError(f"{source}: {what}", "the same columns in every row")
    return File(path, tuple(names), gathered.rows, gathered.columns(), header)


def _filled(lines: Lines) -> Iterator[str]:
    for line in lines:
        lines.length = 0
        if line.strip():
            yield line


def _row(line: str, number: int, source: str) -> dict[str, Any]:
    try:
        return _object(line, f"{source}, line {number}")
    except InputError:
        if line.endswith(("\n", "\r")):
            raise
        what = f"{source} is cut short in line {number}"
        raise InputError(what, "leave that line out, or a whole file") from None


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = decode_object(text, dict[str, Any])
    except ValueError as error:
        raise InputError(f"{where}: {shorten(str(error))}", HINT) from None
    return found


def _object_or_none(text: str) -> dict[str, Any] | None:
    try:
        return _object(text, "")
    except InputError:
        return None


def _refuse_twice(source: str, names: Sequence[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{source} has two columns '{shorten(twice[0])}'", "rename one of them")


def _read_parquet(path: str, data: bytes, meter: Meter) -> File:
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
