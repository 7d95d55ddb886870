"""Columns of a table of ops that grow batch by batch; equal texts share one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.unpack.limits import Meter
from ppsim.real.traces.tables.words import is_text

Column = NDArray[Any]
CELL, TEXT = 8, 64  # bytes of a number, and of a text in addition to its characters
USUAL, ROW = 13, 200  # number of columns of a table of ops; bytes of a row in all our structures


class GrowingColumns:
    """Columns to which rows are added.

    Attributes:
        rows: number of rows.
    """

    def __init__(self, meter: Meter, names: Sequence[str] = ()) -> None:
        self.rows = 0
        self._meter, self._words = meter, dict[str, str]()
        self._parts: dict[str, list[Column]] = {name: [] for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in the order in which they first occurred."""
        return tuple(self._parts)

    def add(self, rows: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows; a new column is empty in earlier rows (InputError: too much memory)."""
        extra = max(len(columns) - USUAL, 0)
        self._meter.take(rows * (ROW + CELL * extra))
        for name, values in columns.items():
            if name not in self._parts:
                self._meter.take(CELL * self.rows)
                self._parts[name] = [np.full(self.rows, None, object)] if self.rows else []
            self._parts[name].append(
                self._texts(values) if is_text(name) else self._numbers(values)
            )
        self.rows += rows

    def columns(self) -> dict[str, Column]:
        """Return the columns, each of shape (rows,)."""
        found = {name: _join(parts) for name, parts in self._parts.items()}
        self._parts = {}
        return found

    def _texts(self, values: Sequence[Any]) -> Column:
        """Return a column of texts, in which equal texts share one object."""
        found = np.empty(len(values), object)
        for row, value in enumerate(values):
            found[row] = self._words.get(value) if isinstance(value, str) else value
            if isinstance(value, list | dict):  # refused later, when all columns are known
                self._meter.take(_size(value))
            if found[row] is None and value is not None:
                self._meter.take(_size(value))
                found[row] = self._words[value] = value
        return found

    def _numbers(self, values: Sequence[Any]) -> Column:
        """Return a column of numbers if all values are numbers, else one of objects."""
        kinds = set(map(type, values))
        if kinds == {str}:
            digits = "".join(values)
            if digits.isascii() and "_" not in digits:  # as plain_float wants it
                if (found := _converted(values, np.int64)) is not None:
                    return found
                filled = [value or "nan" for value in values]
                if (found := _converted(filled, np.float64)) is not None:
                    return found
        elif kinds <= {int, float, type(None)}:
            exact = kinds == {int} and _converted(values, np.int64)
            found = exact if isinstance(exact, np.ndarray) else _converted(values, np.float64)
            if found is not None:
                return found
        self._meter.take(sum(map(_size, values)))
        objects = np.empty(len(values), object)
        objects[:] = values
        return objects


def _size(value: object) -> int:
    """Return an upper bound of the bytes of memory of a JSON value."""
    if isinstance(value, str):
        return TEXT + 4 * len(value)
    return TEXT * (1 + len(str(value))) if isinstance(value, list | dict) else TEXT


def _converted(values: Sequence[Any], kind: type[Any]) -> Column | None:
    """Return values as an array of a type, or None if one cannot be converted."""
    try:
        return np.array(values, kind)
    except (ValueError, TypeError, OverflowError):
        return None


def _join(parts: Sequence[Column]) -> Column:
    """Return the parts of a column as one; it has objects if a part has."""
    if not parts:
        return np.empty(0, object)
    if any(part.dtype == object for part in parts):
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)
