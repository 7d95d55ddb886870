"""Read columns of a Parquet file one at a time, in batches, after a check of their size.

A few bytes of Parquet may state any number of rows, repeat a text in each row, or let several row
groups refer to the same bytes. Therefore the rows in the footer and the pages of a column are
counted before the library unpacks them, and equal texts become a single object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import quote, shorten
from ppsim.base.unpack.limits import Meter, size_limit, too_large
from ppsim.base.unpack.parquet_sizes import (
    DELTA_BYTE_ARRAY,
    DICTIONARY_PAGE,
    Chunk,
    chunks_by_group,
    pages,
)
from ppsim.errors import InputError, MissingDependency, PpsimError
from ppsim.version import INSTALL_TABLES

MAGIC = b"PAR1"
MOST_FOOTER = 4 << 20  # bytes of the description at the end of a file
MOST_LISTED = 50_000  # columns, row groups or remarks
PAGE = 4  # ratio of the largest size of a file to that of a page
MOST_TEXT = 1 << 20  # characters of a cell
MOST_PAGES = 200_000
LONGEST_NUMBER = 32  # bytes of a value of fixed length
BATCH = 1 << 16  # rows
_ENTRY, _TEXT = 16, 64  # bytes of a dictionary's entry, and of a text besides its characters
TYPES = "whole numbers, fractions, true and false, timestamps or texts"


def require_pyarrow() -> None:
    """Import pyarrow; raises MissingDependency if that fails."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        what = f"Parquet needs pyarrow, which cannot be imported: {error}"
        raise MissingDependency(what, INSTALL_TABLES) from error


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file, whose columns are read on demand.

    Attributes:
        name: of the file, for messages.
        rows: number of rows in the footer.
        columns: the columns that are not nested, and the index of each among the stored columns.
        nested: the names of the nested columns.
        header: ppsim's text in the file's metadata; empty if there is none.
    """

    name: str
    hint: str
    rows: int
    columns: dict[str, int]
    nested: tuple[str, ...]
    header: str
    _data: bytes
    _file: Any  # pyarrow's ParquetFile
    _groups: list[list[Chunk]]  # the columns of each row group
    _meter: Meter
    _pages: Meter

    def has_times(self, column: str) -> bool:
        """Return whether a column's type is a calendar time or a duration."""
        from pyarrow import types

        with refuse_faults(self.name, self.hint):
            kind = self._file.schema_arrow.field(column).type
            return bool(types.is_timestamp(kind) or types.is_duration(kind))

    def array(self, column: str, longest: int = MOST_TEXT) -> NDArray[Any]:
        """Return a column as an array: times in ns, null as NaN among numbers, None among texts.

        Args:
            column: its name.
            longest: the maximum length of a text in bytes.

        Raises:
            InputError: the column is too large, damaged, or has an unsupported type.
        """
        with refuse_faults(self.name, self.hint):
            words = _Words(self, column, longest)
            found = [self._numpy(column, chunk, words) for chunk in self._chunks(column)]
            return np.concatenate(found) if found else np.empty(0)

    def values(self, column: str) -> list[Any]:
        """Return a column as plain values: times as text, null as None; errors as in
        :meth:`array`.
        """
        with refuse_faults(self.name, self.hint):
            words, found = _Words(self, column, MOST_TEXT), list[Any]()
            for chunk in self._chunks(column):
                found += self._plain_values(column, chunk, words)
            return found

    def count(self, size: int) -> None:
        """Count bytes of memory for the file (InputError: the limit is exceeded)."""
        self._meter.take(size)

    def _chunks(self, column: str) -> Iterator[Any]:
        """Yield pieces of a column of at most ``BATCH`` rows."""
        self._check_pages(column)
        read = 0
        for batch in self._file.iter_batches(BATCH, columns=[column], use_threads=False):
            chunk = batch.column(0)
            read += len(chunk)
            if read > self.rows:
                raise ValueError(f"column {quote(column)} has more rows than the footer states")
            yield chunk
        if read < self.rows:
            raise ValueError(f"column {quote(column)} has {read:,} of {self.rows:,} rows")

    def _check_pages(self, column: str) -> None:
        """Count the bytes that the library would allocate for a column's pages."""
        place, footer = self.columns[column], self._file.metadata
        stored, kind = footer.schema.column(place), self._file.schema_arrow.field(column).type
        is_text = stored.physical_type == "BYTE_ARRAY"
        if is_text != _is_text(kind) or (stored.length or 0) > LONGEST_NUMBER:
            raise self._unread(column, kind)
        data, most, count = memoryview(self._data), size_limit() // PAGE, 0
        for chunks in self._groups:
            chunk, text = chunks[place], 0
            if chunk.end > len(data):
                raise ValueError("a column lies outside the file")
            for page in pages(data, chunk):
                count, text = count + 1, text + page.unpacked
                if count > MOST_PAGES:
                    raise ValueError(f"a column of more than {MOST_PAGES:,} pages")
                if page.unpacked > most:
                    what = f"{self.name}: a page of column {quote(column)}"
                    raise too_large(what, most, PAGE * page.unpacked)
                self._pages.take(max(page.packed, page.unpacked))
                if page.kind == DICTIONARY_PAGE:
                    self._pages.take(_ENTRY * page.values)
                elif is_text and page.encoding == DELTA_BYTE_ARRAY:  # a text may repeat all before
                    self._pages.take(min(page.values, BATCH) * text)

    def _unread(self, column: str, kind: Any) -> InputError:
        kind = getattr(kind, "value_type", kind)  # texts are read as dictionaries
        what = f"{self.name}: column {quote(column)} is of type {shorten(str(kind), 80)}"
        return InputError(what, f"a column of {TYPES}")

    def _numpy(self, column: str, chunk: Any, words: _Words) -> NDArray[Any]:
        from pyarrow import types

        kind = chunk.type
        if _is_text(kind):
            return words.array(chunk)
        if types.is_dictionary(kind):
            return self._numpy(column, chunk.cast(kind.value_type), words)
        if types.is_timestamp(kind) or types.is_duration(kind):
            unit = "timestamp" if types.is_timestamp(kind) else "duration"
            chunk = chunk.cast(f"{unit}[ns]").cast("int64")
        elif types.is_decimal(kind):
            chunk = chunk.cast("float64")
        elif not _is_number(kind):
            raise self._unread(column, kind)
        found: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
        return found

    def _plain_values(self, column: str, chunk: Any, words: _Words) -> list[Any]:
        from pyarrow import types

        kind = chunk.type
        if _is_text(kind):
            return words.array(chunk).tolist()
        if types.is_dictionary(kind):
            return self._plain_values(column, chunk.cast(kind.value_type), words)
        if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
            chunk = chunk.cast("string")
        elif types.is_decimal(kind) or types.is_floating(kind):
            chunk = chunk.cast("float64")
        elif not _is_number(kind):
            raise self._unread(column, kind)
        plain: list[Any] = chunk.to_pylist()
        return plain


class _Words:
    """The texts of a column; equal texts are the same object."""

    def __init__(self, table: ParquetTable, column: str, longest: int) -> None:
        self.table, self.column, self.longest = table, column, longest
        self.known = dict[str, str]()

    def array(self, chunk: Any) -> NDArray[Any]:
        """Return the texts of a chunk; null is None."""
        import pyarrow

        if not pyarrow.types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_encode()
        places = chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        used = np.unique(places)
        used = used[used >= 0]
        found = np.full(len(chunk.dictionary) + 1, None, object)
        texts = chunk.dictionary.take(pyarrow.array(used))
        for place, text in zip(used.tolist(), texts, strict=True):
            found[place] = self.take(text)
        return found[places]

    def take(self, text: Any) -> str | None:
        """Return the string of one of the library's texts; equal texts are the same object."""
        if not text.is_valid:
            return None
        size = text.as_buffer().size
        if size > self.longest:
            what = f"{self.table.name}: column {quote(self.column)} has a text of {size:,} bytes"
            raise InputError(what, f"{self.longest:,} at most")
        word = str(text.as_py())
        if word not in self.known:
            self.table.count(_TEXT + 4 * len(word))
            self.known[word] = word
        return self.known[word]


def open_parquet(data: bytes, name: str, hint: str, meter: Meter) -> ParquetTable:
    """Return a Parquet file with its footer read.

    Args:
        data: its content.
        name: the file, for messages.
        hint: a suggestion.
        meter: counts the texts that are read.

    Raises:
        InputError: the file is damaged, its footer is too large, or two columns have the same name.
        MissingDependency: pyarrow is not installed.
    """
    require_pyarrow()
    import pyarrow
    from pyarrow import parquet

    size = int.from_bytes(data[-8:-4], "little")
    if size > MOST_FOOTER:
        what = f"{name}: its footer has {size:,} bytes, more than {MOST_FOOTER:,}"
        raise InputError(what, "fewer columns and row groups")
    limits = {"thrift_string_size_limit": MOST_FOOTER, "thrift_container_size_limit": MOST_LISTED}
    with refuse_faults(name, hint):
        file = parquet.ParquetFile(pyarrow.BufferReader(data), pre_buffer=False, **limits)
        footer, fields = file.metadata, list(file.schema_arrow)
        flat = {field.name for field in fields if not pyarrow.types.is_nested(field.type)}
        stored = [footer.schema.column(place) for place in range(footer.num_columns)]
        columns = {
            column.path: place
            for place, column in enumerate(stored)
            if column.path in flat
            and not column.max_repetition_level
            and column.max_definition_level < 2
        }
        counts = Counter([field.name for field in fields]) + Counter(
            column.path for column in stored
        )
        twice = [column for column, count in counts.items() if count > 2]
        if twice:
            raise InputError(f"{name} has two columns '{shorten(twice[0])}'", "rename one of them")
        groups = chunks_by_group(data, footer.num_columns)
        if footer.num_rows != sum(rows for rows, _ in groups):
            raise ValueError("its numbers of rows contradict each other")
        nested = tuple(field.name for field in fields if field.name not in columns)
        texts = [
            column for column in columns if stored[columns[column]].physical_type == "BYTE_ARRAY"
        ]
        source = pyarrow.BufferReader(data)
        file = parquet.ParquetFile(source, pre_buffer=False, read_dictionary=texts, **limits)
        header = str((footer.metadata or {}).get(b"ppsim", b"").decode(errors="replace"))
    counted = meter, Meter(name)
    places = [chunks for _, chunks in groups]
    return ParquetTable(
        name, hint, footer.num_rows, columns, nested, header, data, file, places, *counted
    )


def parquet_header(data: bytes) -> str:
    """Return ppsim's text in a Parquet file's metadata; empty if there is none.

    Raises:
        MissingDependency: pyarrow is not installed.
    """
    try:
        return open_parquet(data, "", "", Meter("")).header
    except InputError:
        return ""


@contextmanager
def refuse_faults(name: str, hint: str) -> Iterator[None]:
    """Convert exceptions of the library within the block to InputError."""
    try:
        yield
    except PpsimError:
        raise
    except Exception as error:  # of any type, as the library has several
        message = f"{name} is not a complete Parquet file: {shorten(str(error))}"
        raise InputError(message, hint) from None


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)
