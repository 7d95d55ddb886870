"""Tables as CSV, JSON and Parquet files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppsim.base.atomic_file import open_atomically
from ppsim.base.json_output import dump_json
from ppsim.base.source import name_of, read_bytes
from ppsim.base.text import quote, shorten
from ppsim.base.unpack.limits import Meter
from ppsim.base.unpack.texts import Lines, csv_rows
from ppsim.errors import InputError

Row = Mapping[str, Any]
MADE_BY = "made_by"
TABLES = (".csv", ".json", ".parquet")
MOST_COLUMNS = 2000
_ROW, _CELL = 200, 64  # bytes of memory besides the characters
# Texts that a spreadsheet would run as formulas, some after trimming. An apostrophe in front makes
# them text. Texts that begin with apostrophes and a formula get one more, so that reading restores
# them.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")

# Control characters that colour a printed table, move the cursor or reverse the text. They are
# written as escapes such as \\x1b, and so is the backslash of a text that looks like an escape.
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    r"|\\(?=x(?:0[0-8bcef]|1[0-9a-f]|5c|7f|[89][0-9a-f])|u(?:202[a-e]|206[6-9]))"
)
_ESCAPE = re.compile(r"\\(?:x(0[0-8bcef]|1[0-9a-f]|5c|7f|[89][0-9a-f])|u(202[a-e]|206[6-9]))")


def table_suffix(path: str, suffixes: Sequence[str] = TABLES) -> str:
    """Return the suffix of a table's file, which decides its format.

    Raises:
        InputError: no format has this suffix.
        MissingDependency: pyarrow, which Parquet needs, is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in suffixes:
        raise InputError(
            f"a table cannot be kept in '{path}'", f"a name that ends in {' or '.join(suffixes)}"
        )
    if suffix == ".parquet":
        from ppsim.base.unpack.parquet import require_pyarrow

        require_pyarrow()
    return suffix


def save_table(
    rows: Sequence[Row], target: str, suffix: str = "", inputs: Row | None = None
) -> None:
    """Write rows with one column for each key; a list is JSON text in CSV.

    ``inputs``, the version and the command, are written as the last column in CSV, which survives
    when tables are joined, and as the metadata ``ppsim`` in Parquet.

    Raises:
        InputError: an unknown suffix, or a file that cannot be written.
        MissingDependency: pyarrow is not installed.
    """
    suffix = suffix or table_suffix(target)
    if suffix == ".json":
        data = dump_json(list(rows), end=b"\n")
    elif suffix == ".csv":
        made_by = {MADE_BY: f"ppsim {inputs['ppsim']}: {inputs['command']}"} if inputs else {}
        data = _csv_of([{**row, **made_by} for row in rows])
    else:
        data = _parquet_of(rows, inputs)
    with open_atomically(target) as out:
        out.write(data)


def write_columns(header: Mapping[str, Any], columns: Mapping[str, Any], suffix: str) -> bytes:
    """Return the bytes of a file with columns of equal length: CSV, JSON lines or Parquet.

    The header, an object that describes all rows, is a comment line in CSV, the first line of JSON
    lines, the metadata ``ppsim`` in Parquet (MissingDependency: pyarrow is not installed).
    """
    import numpy as np

    lists = {name: np.asarray(column).tolist() for name, column in columns.items()}
    if suffix.endswith(".parquet"):
        return _write_parquet(lists, header, compression="zstd")
    if suffix.endswith(".csv"):
        lists = {name: _escaped_column(column) for name, column in lists.items()}
    rows = zip(*lists.values(), strict=True)
    if suffix.endswith(".csv"):
        text = io.StringIO(newline="")
        text.write(f"# {json.dumps(header)}\n")
        csv.writer(text, lineterminator="\n").writerows([list(lists), *rows])
        return text.getvalue().encode()
    lines = (dump_json(dict(zip(lists, row, strict=True)), end=b"\n") for row in rows)
    return b"".join([dump_json(header, end=b"\n"), *lines])


def _escaped_column(column: list[Any]) -> list[Any]:
    """Return a column with escaped texts; equal texts are escaped once."""
    escaped = {cell: _escape(cell) for cell in {cell for cell in column if isinstance(cell, str)}}
    return [escaped.get(cell, cell) for cell in column] if escaped else column


def read_table(
    path: str,
    hint: str = "give the name of a new file",
    columns: Collection[str] = (),
    lists: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the rows of a CSV file, whose cells are texts, or of a Parquet file.

    Args:
        path: the file.
        hint: the suggestion if it cannot be read.
        columns: the columns to read; all by default.
        lists: columns in which lists or objects are an error; other columns with lists or objects
            are left out.

    Raises:
        InputError: the file cannot be read, or is too large in memory.
        MissingDependency: pyarrow is not installed.
    """
    data, name = read_bytes(path), f"the table '{name_of(path)}'"
    meter = Meter(name)
    if table_suffix(path) != ".csv":
        return _rows_of_parquet(data, name, hint, columns, lists, meter)
    try:
        return _rows_of_csv(Lines(data, name, may_be_cut=True), columns, meter)
    except ValueError as error:
        raise InputError(f"cannot read {name}: {shorten(str(error))}", hint) from error


def _rows_of_csv(lines: Lines, columns: Collection[str], meter: Meter) -> list[dict[str, Any]]:
    table, rows = csv_rows(lines), list[dict[str, Any]]()
    names = [_strip_formula_guard(cell) for cell in next(table, [])]
    wanted = [(place, name) for place, name in enumerate(names) if name in columns or not columns]
    _refuse_columns(lines.name, len(wanted))
    _refuse_twice(lines.name, [name for _, name in wanted])
    for number, row in enumerate(table, 1):
        if any(map(str.strip, row[len(names) :])):
            raise InputError(
                f"{lines.name}: row {number} has {len(row)} cells for {len(names)} columns",
                "one cell for each column; a cell with a comma stands in quotation marks",
            )
        cells = {
            name: _strip_formula_guard(row[place]) if place < len(row) else None
            for place, name in wanted
        }
        meter.take(_ROW + sum(_CELL + len(cell or "") for cell in cells.values()))
        rows.append(cells)
    return rows


def _rows_of_parquet(
    data: bytes,
    name: str,
    hint: str,
    columns: Collection[str],
    lists: Collection[str],
    meter: Meter,
) -> list[dict[str, Any]]:
    from ppsim.base.unpack.parquet import open_parquet

    table = open_parquet(data, name, hint, meter)
    if nested := [column for column in table.nested if column in lists]:
        message = f"{name}: column {quote(nested[0])} contains lists or objects"
        raise InputError(message, "a number or a text in each cell, or a .json file")
    wanted = [column for column in table.columns if column in columns or not columns]
    _refuse_columns(name, len(wanted))
    meter.take(table.rows * (_ROW + _CELL * len(wanted)))
    values = [table.values(column) for column in wanted]
    if not wanted:
        return [{} for _ in range(table.rows)]
    return [dict(zip(wanted, row, strict=True)) for row in zip(*values, strict=True)]


def _refuse_columns(name: str, count: int) -> None:
    if count > MOST_COLUMNS:
        raise InputError(
            f"{name} has {count:,} columns, more than {MOST_COLUMNS:,}", "a column for each number"
        )


def _refuse_twice(name: str, columns: Sequence[str]) -> None:
    """Refuse two columns of one name, of which a reader would take the last."""
    counts = Counter(column for column in columns if column.strip())
    for column, count in counts.most_common(1):
        if count > 1:
            raise InputError(f"{name} has two columns {quote(column)}", "rename one of them")


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _csv_of(rows: Sequence[Row]) -> bytes:
    out = io.StringIO(newline="")
    columns = _columns(rows)
    lines = [[*map(_cell, columns)]]
    lines += map(
        list, zip(*([_cell(value) for value in column] for column in columns.values()), strict=True)
    )
    # csv does not quote a lone carriage return, at which readers begin a row.
    returns = any("\r" in cell for line in lines for cell in line if isinstance(cell, str))
    csv.writer(
        out, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    ).writerows(lines)
    return out.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    if isinstance(value, (bool, list, tuple, Mapping)):
        return _escape(json.dumps(value))
    if isinstance(value, str):
        text = _escape(value)
        return f"'{text}" if _FORMULA.match(text) else text
    return repr(value) if isinstance(value, float) else value


def _escape(text: str) -> str:
    """Return a text with control characters, except tabs and line ends, as escapes."""
    return _CONTROL.sub(_escape_of, text)


def _escape_of(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _strip_formula_guard(cell: Any) -> Any:
    """Return a cell's text as it was before :func:`_cell`."""
    if not isinstance(cell, str):
        return cell
    text = cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
    return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), text)


def _parquet_of(rows: Sequence[Row], inputs: Row | None) -> bytes:
    from ppsim.base.unpack.parquet import require_pyarrow

    require_pyarrow()
    import pyarrow

    made = {}
    for name, values in _columns(rows).items():
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int, float}:
            values = [None if value is None else float(value) for value in values]
        elif len(kinds) > 1 or kinds & {dict}:
            values = [None if value is None else str(_cell(value)) for value in values]
        made[name] = pyarrow.array(values)
    return _write_parquet(made, inputs)


def _write_parquet(
    columns: Mapping[str, Any], header: Row | None, compression: str = "snappy"
) -> bytes:
    from ppsim.base.unpack.parquet import require_pyarrow

    require_pyarrow()
    import pyarrow
    from pyarrow import parquet

    out, metadata = io.BytesIO(), {"ppsim": json.dumps(dict(header))} if header else None
    parquet.write_table(pyarrow.table(columns, metadata=metadata), out, compression=compression)
    return out.getvalue()
