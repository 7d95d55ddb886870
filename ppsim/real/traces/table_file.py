"""Tables of ops as files hold them: CSV, JSON lines and Parquet, into columns of numbers and texts.

A file may begin with a header, an object of what holds for all of it: the first line of JSON lines, the first line of
CSV after ``#``, the metadata ``ppsim`` of Parquet.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ppsim.base.source import name_of
from ppsim.base.tables import parquet_metadata, require_pyarrow
from ppsim.base.text import quote, shorten
from ppsim.core.job import OPS_SCHEMA
from ppsim.errors import InputError

SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")
MAGIC = b"PAR1"
MOST_VALUES = 400_000_000
SPARSE, SLACK = 50, 1_000_000  # cells of JSON lines for each that a row holds, and besides
MOST_DEVICES = 1 << 20
HINT = (
    "a table of ops: CSV, JSON lines or Parquet, a row per op, with columns such as stage, kind, microbatch, start, end"
)
Column = NDArray[Any]
_OBJECT = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True)
class File:
    """One file's columns, all as long, its header, and the columns whose type says their unit."""

    path: str
    columns: Mapping[str, Column]
    header: Mapping[str, Any]
    units: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def read_file(path: str, data: bytes) -> File:
    """Read one file (InputError: it is no table, or is cut short; MissingDependency: Parquet without pyarrow)."""
    if data.startswith(MAGIC):
        return _read_parquet(path, data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"'{name_of(path)}' is neither text nor Parquet", HINT) from None
    return _read_json_lines(path, text) if text.lstrip().startswith("{") else _read_csv(path, text)


def check_headers(source: str, files: Sequence[File]) -> None:
    """Refuse files that are, by the recorder's headers, of two runs or lack a device's (InputError)."""
    first = files[0]
    for file in files[1:]:
        runs = [each.header.get("run") for each in (first, file)]
        if None not in runs and runs[0] != runs[1]:
            raise InputError(
                f"{source} holds files of two runs: '{name_of(file.path)}' is of another than '{name_of(first.path)}'",
                "a folder for each run, without files of an older one",
            )
    _refuse_two_of_a_device(source, files)
    told = [tuple(file.header.get(name, -1) for name in ("replica", "device", "devices")) for file in files]
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
                f"{source}: '{name_of(first.path)}' and '{name_of(file.path)}' both record {device}: two runs, or two "
                "processes that were told no rank",
                "a folder for each run, and record(..., device=RANK) where no launcher tells the rank",
            )


def find_names(data: bytes) -> list[str]:
    """List the columns that a file seems to have, from its head; empty where it is no table."""
    if data.startswith(MAGIC):
        return ["parquet"]
    lines = (line for line in data[:100_000].decode("utf-8-sig", "replace").splitlines() if line.strip())
    first = next(lines, "")
    if first.startswith("#"):
        first = next(lines, "")
    if not first.startswith("{"):
        return [name.strip() for name in next(csv.reader([first]), [])] if "," in first else []
    found = [_object_or_none(line) for line in (first, next(lines, ""))]
    if found[0] is None or "traceEvents" in found[0]:
        return []
    return [name for row in found for name in row or ()]


def _read_csv(path: str, text: str) -> File:
    header, (line, rest) = {}, _first_line(text)
    if line.startswith("#"):
        header = _object_or_none(line.lstrip("# ")) or {}
        text = rest
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))  # of the whole process
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise InputError(f"'{name_of(path)}' is no CSV: {error}", HINT) from None
    if not rows:
        raise InputError(f"'{name_of(path)}' is empty", HINT)
    names, rows = [name.strip() for name in rows[0]], rows[1:]
    uneven = next((n for n, row in enumerate(rows) if len(row) != len(names)), None)
    if uneven is not None:
        what = f"row {uneven + 1} has {len(rows[uneven])} cells for {len(names)} columns"
        raise InputError(f"'{name_of(path)}': {what}", "a file that is whole, with one cell per column in each row")
    return _file(path, names, zip(*rows, strict=True) if rows else [()] * len(names), header)


def _first_line(text: str) -> tuple[str, str]:
    first, _, rest = text.partition("\n")
    return first.strip(), rest


def _read_json_lines(path: str, text: str) -> File:
    lines = [line for line in text.splitlines() if line.strip()]
    if not text.endswith("\n") and _object_or_none(lines[-1]) is None:
        raise InputError(f"'{name_of(path)}' is cut short in line {len(lines)}", "leave that line out, or a whole file")
    rows = [_object(line, f"'{name_of(path)}', line {number}") for number, line in enumerate(lines, start=1)]
    header = rows.pop(0) if "schema" in rows[0] else {}
    again = next((n for n, row in enumerate(rows) if row.get("schema") == OPS_SCHEMA), None)
    if again is not None:
        what = f"line {again + len(lines) - len(rows) + 1} begins another recording"
        raise InputError(f"'{name_of(path)}' is of two processes: {what}", "a file for each process, in one folder")
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(rows) * len(names) > SPARSE * sum(map(len, rows)) + SLACK:
        what = f"{len(rows):,} rows name {len(names):,} columns, and each row few of them"
        raise InputError(f"'{name_of(path)}': {what}", "the same columns in every row")
    return _file(path, names, ([row.get(name) for row in rows] for name in names), header)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{where}: {shorten(str(error))}", HINT) from None


def _object_or_none(text: str) -> dict[str, Any] | None:
    try:
        return _object(text, "")
    except InputError:
        return None


def _file(path: str, names: Sequence[str], columns: Iterable[Sequence[Any]], header: Mapping[str, Any]) -> File:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"'{name_of(path)}' has two columns '{shorten(twice[0])}'", "rename one of them")
    found = {name: np.array(column, object) for name, column in zip(names, columns, strict=True)}
    return File(path, found, header)


def _read_parquet(path: str, data: bytes) -> File:
    require_pyarrow()
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        size = file.metadata.num_rows * file.metadata.num_columns
        if size > MOST_VALUES:
            raise InputError(f"'{name_of(path)}' holds {size:,} values, more than {MOST_VALUES:,}", "fewer steps")
        flat = [f.name for f in file.schema_arrow if not pyarrow.types.is_nested(f.type)]
        table = file.read(columns=flat)
        units = {n: "ns" for n in flat if pyarrow.types.is_temporal(table[n].type)}
        columns = {name: _numpy(table[name]) for name in flat}
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"'{name_of(path)}' is no whole Parquet file: {shorten(str(error))}", HINT) from None
    header = _object_or_none(parquet_metadata(data)) or {}
    return File(path, columns, header, units)


def _numpy(column: Any) -> Column:
    """A column as numbers where it holds numbers or times, else as objects; null is NaN or None."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif pyarrow.types.is_timestamp(kind) or pyarrow.types.is_duration(kind):
        column = column.cast(f"{'timestamp' if pyarrow.types.is_timestamp(kind) else 'duration'}[ns]").cast("int64")
    elif pyarrow.types.is_decimal(kind):
        column = column.cast("float64")
    found: Column = column.to_numpy()
    return found
