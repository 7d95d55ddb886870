"""Files of finished rows, from which work that was interrupted is taken up again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppsim.base.atomic_file import rehearse
from ppsim.base.tables import Row, read_table, save_table, table_suffix
from ppsim.errors import InputError
from ppsim.version import VERSION

KEPT = (".csv", ".parquet")
EVERY_S = 5.0
SHARE = 0.05  # of the time, at most, goes into writing
# The columns beside the row's own: what it is kept under, what it was computed from, and all of it, exactly.
KEY, MARK, WHOLE = "key", "inputs", "row"


class Results:
    """Finished rows by key, in a file that is written every few seconds and at the end of the block, each time whole.

    Rows are plain data: texts, numbers, lists of them. Without a path they are kept in memory alone.
    """

    def __init__(self, path: str | None, inputs: object) -> None:
        """Read the rows that the file has already.

        Args:
            path: a CSV or Parquet file, there or not.
            inputs: plain data on which every row depends, beside its key.

        Raises:
            InputError: the file cannot be read or written, or its rows are of other inputs.
            MissingDependency: pyarrow is not installed.
        """
        self.path = path
        self.mark = fingerprint(inputs)
        self.rows: dict[str, Row] = {}
        self._due = time.monotonic() + EVERY_S
        self._changed = False
        if path is not None:
            table_suffix(path, KEPT)
            rehearse(path, plain=True)
            if Path(path).is_file():
                self.rows = _read(path, self.mark)

    def add(self, key: str, row: Row) -> None:
        """Keep a finished row."""
        self.rows[key] = row
        self._changed = True
        if self.path and time.monotonic() > self._due:
            self.write()

    def write(self) -> None:
        """Write all rows, unless none is new."""
        if not self.path or not self._changed:
            return
        begin = time.monotonic()
        kept = [{**_scalars(row), KEY: key, MARK: self.mark, WHOLE: json.dumps(row)} for key, row in self.rows.items()]
        save_table(kept, self.path)
        self._changed = False
        end = time.monotonic()
        self._due = end + max(EVERY_S, (end - begin) / SHARE)

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self.write()


def fingerprint(inputs: object) -> str:
    """Compute a short text that differs for other inputs, and for another version of ppsim."""
    text = json.dumps([VERSION, inputs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _scalars(row: Row) -> dict[str, Any]:
    """What of a row other programs can use as it is."""
    return {name: value for name, value in row.items() if not isinstance(value, list | tuple | Mapping)}


def _read(path: str, mark: str) -> dict[str, Row]:
    rows = read_table(path)
    if not rows and Path(path).stat().st_size:
        raise InputError(f"'{path}' is not a file of results of ppsim, or damaged", "give the name of a new file")
    if any(not isinstance(row.get(name), str) for row in rows for name in (KEY, MARK, WHOLE)):
        raise InputError(f"'{path}' is not a file of results of ppsim, or damaged", "give the name of a new file")
    if any(row[MARK] != mark for row in rows):
        raise InputError(
            f"the rows of '{path}' were computed from other inputs, or by another version of ppsim",
            "the options of that run, or another file",
        )
    try:
        kept = {row[KEY]: json.loads(row[WHOLE]) for row in rows}
    except ValueError as error:
        raise InputError(f"'{path}' is damaged: {error}", "give the name of a new file") from error
    if not all(isinstance(row, Mapping) for row in kept.values()):
        raise InputError(f"'{path}' is not a file of results of ppsim", "give the name of a new file")
    return kept
