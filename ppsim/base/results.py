"""Files of finished rows, from which interrupted work continues."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ppsim.base.atomic_file import rehearse
from ppsim.base.tables import Row, read_table, save_table, table_suffix
from ppsim.base.text import quote
from ppsim.base.unpack.json_objects import objects_size
from ppsim.base.unpack.limits import OBJECTS, Meter
from ppsim.errors import InputError
from ppsim.version import VERSION

IsSound = Callable[[str, Row], bool]
KEPT = (".csv", ".parquet")
EVERY_S = 5.0
SHARE = 0.05  # of the time is spent on writing, at most
# Further columns: the key, a fingerprint of the inputs, a digest that detects changes, and the row
# as JSON.
KEY, MARK, DIGEST, WHOLE = "key", "inputs", "digest", "row"


class Results:
    """Finished rows by key, in a file that is rewritten every few seconds and at the end of the
    block.

    Rows are plain data: texts, numbers, lists of them. Without a path they are only in memory. Runs
    with the same inputs may share a file: each keeps the rows written by the others.

    Attributes:
        path: of the file, or None.
        mark: a fingerprint of the inputs.
        rows: the rows of the file and the finished rows, by key.
        cut: whether the last row of the CSV file was incomplete, so that it was ignored.
    """

    def __init__(
        self, path: str | None, inputs: object, is_sound: IsSound = lambda key, row: True
    ) -> None:
        """Read the existing rows of a CSV or Parquet file.

        Args:
            path: the file, or None.
            inputs: plain data that the rows depend on.
            is_sound: returns whether this work can have written a key and its row; the digest of a
                row is no proof, as anybody can compute it.

        Raises:
            InputError: the file cannot be read or written, its rows have other inputs, or a row is
                not sound.
            MissingDependency: pyarrow is not installed.
        """
        self.path = path
        self.mark = fingerprint(inputs)
        self._is_sound = is_sound
        self.rows: dict[str, Row] = {}
        self.cut = False
        self._seen: object = None
        self._due = time.monotonic() + EVERY_S
        self._changed = False
        if path is not None:
            table_suffix(path, KEPT)
            rehearse(path, plain=True)
            self.rows, self.cut = self._take_others()

    def add(self, key: str, row: Row) -> None:
        """Add a finished row."""
        self.rows[key] = row
        self._changed = True
        if self.path and time.monotonic() > self._due:
            self.write()

    def write(self) -> None:
        """Merge the rows with the file, and rewrite it if any is new.

        Raises:
            InputError: a run with other inputs has written the file, or it cannot be written.
        """
        if not self.path or not self._changed:
            return
        begin = time.monotonic()
        self.rows = self._take_others()[0] | self.rows
        save_table([self._stored_row(key, row) for key, row in self.rows.items()], self.path)
        self._seen = _state(self.path)
        self._changed = False
        end = time.monotonic()
        self._due = end + max(EVERY_S, (end - begin) / SHARE)

    def _stored_row(self, key: str, row: Row) -> Row:
        text = json.dumps(row)
        scalars = {
            name: value
            for name, value in row.items()
            if not isinstance(value, list | tuple | Mapping)
        }
        return {**scalars, KEY: key, MARK: self.mark, DIGEST: fingerprint([key, text]), WHOLE: text}

    def _take_others(self) -> tuple[dict[str, Row], bool]:
        """Return the rows of the file if it has changed since, and whether it was cut."""
        state = _state(self.path)
        if self.path is None or state in (None, self._seen):
            return {}, False
        self._seen = state
        return _read(self.path, self.mark, self._is_sound)

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self.write()


def fingerprint(inputs: object) -> str:
    """Return a short text that identifies the inputs and the version of ppsim."""
    text = json.dumps([VERSION, inputs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _state(path: str | None) -> object:
    """Return a value that changes when the file is written again, or None if there is no file."""
    if path is None or not os.path.isfile(path):
        return None
    found = Path(path).stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: str, mark: str, is_sound: IsSound) -> tuple[dict[str, Row], bool]:
    """Return the rows by key, and whether a CSV file was cut; then its last row is ignored."""
    rows = read_table(path, columns=(KEY, MARK, DIGEST, WHOLE))
    cut = len(rows) > 1 and _full_row(rows[-1]) is None
    rows = rows[:-1] if cut else rows
    empty = not rows and Path(path).stat().st_size
    if empty or any(
        not isinstance(row.get(name), str) for row in rows for name in (KEY, MARK, DIGEST, WHOLE)
    ):
        raise InputError(
            f"'{path}' is not a file of results of ppsim, or damaged", "give the name of a new file"
        )
    if any(row[MARK] != mark for row in rows):
        raise InputError(
            f"the rows of '{path}' were computed from other inputs, or by another version of ppsim",
            "the options of that run, or another file",
        )
    for row in rows:
        if row[DIGEST] != fingerprint([row[KEY], row[WHOLE]]):
            raise _damaged(path, row[KEY])
    meter, found = Meter(f"'{path}'", OBJECTS), dict[str, Row]()
    for row in rows:
        meter.take(objects_size(row[WHOLE]))
        whole = _full_row(row)
        if whole is None:
            raise InputError(
                f"'{path}' is not a file of results of ppsim, or damaged",
                "give the name of a new file",
            )
        if not is_sound(row[KEY], whole):
            raise _damaged(path, row[KEY])
        found[row[KEY]] = whole
    return found, cut


def _damaged(path: str, key: str) -> InputError:
    return InputError(
        f"'{path}': the row of {quote(key)} is damaged, or was changed since it was written",
        "remove that row, and it is computed again; or give the name of a new file",
    )


def _full_row(row: Row) -> Row | None:
    """Return the row stored as JSON; None if the text is incomplete."""
    try:
        found = json.loads(row.get(WHOLE) or "")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Mapping) else None
