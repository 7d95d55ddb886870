"""Columns as a file: CSV, JSON lines or Parquet, with a header, an object of what holds for all rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ppsim.base.json_output import dump_json
from ppsim.base.tables import require_pyarrow


def write_columns(header: Mapping[str, Any], columns: Mapping[str, Any], suffix: str) -> bytes:
    """Make a file of columns that are all as long.

    The header is a line after ``#`` in CSV, the first line of JSON lines, the metadata ``ppsim`` in Parquet.

    Raises:
        MissingDependency: Parquet without pyarrow.
    """
    lists = {name: np.asarray(column).tolist() for name, column in columns.items()}
    if suffix.endswith(".parquet"):
        return _parquet(header, lists)
    rows = zip(*lists.values(), strict=True)
    if suffix.endswith(".csv"):
        text = io.StringIO(newline="")
        text.write(f"# {json.dumps(header)}\n")
        csv.writer(text, lineterminator="\n").writerows([list(lists), *rows])
        return text.getvalue().encode()
    lines = (dump_json(dict(zip(lists, row, strict=True)), end=b"\n") for row in rows)
    return b"".join([dump_json(header, end=b"\n"), *lines])


def _parquet(header: Mapping[str, Any], columns: Mapping[str, list[Any]]) -> bytes:
    require_pyarrow()
    import pyarrow
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, metadata={"ppsim": json.dumps(header)}), out, compression="zstd")
    return out.getvalue()
