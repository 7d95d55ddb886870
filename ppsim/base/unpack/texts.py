"""Decode text, lines and CSV rows from a file's bytes, piece by piece."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from ppsim.base.unpack.limits import OBJECTS, WIDE_TEXT, Meter, size_limit, too_large
from ppsim.errors import InputError

MOST_LINE = 8 << 20  # characters of one row of CSV, or of one line of JSON
MOST_FIELDS = 20_000  # of one row
LINE = 64  # bytes of memory per line besides its characters
# a file has at most one line for so many bytes of the largest size, as lines take time
LEAST_LINE = 16
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]")  # with one of these, each character takes four bytes


def decode_text(data: bytes, name: str, errors: str = "strict") -> str:
    """Return decoded UTF-8 without a byte order mark.

    Raises:
        UnicodeDecodeError: the data is not UTF-8, and ``errors`` is ``strict``.
        InputError: the text would take too much memory.
    """
    most = WIDE_TEXT * size_limit()
    if 4 * len(data) > most and _FOUR_BYTES.search(data):
        what = f"{name}, as text of four bytes a character,"
        raise too_large(what, most, 4 * len(data), WIDE_TEXT)
    return data.decode("utf-8-sig", errors)


def split_lines(text: str, name: str, each: int = LINE) -> list[str]:
    """Return the lines of a text, each of which takes ``each`` bytes of memory in a reader.

    Raises:
        InputError: there are too many lines.
    """
    meter = Meter(name, OBJECTS)
    if len(text) * each > meter.most:
        meter.take(each * sum(map(text.count, _LINE_ENDS)))
    return text.splitlines()


class Lines:
    r"""The lines of a file, decoded one at a time; a line end is ``\n``, ``\r`` or both.

    Attributes:
        name: of the file, for messages.
        length: characters since the reader last set it to 0; it has a limit.
    """

    def __init__(self, data: bytes, name: str, *, may_be_cut: bool = False) -> None:
        """``may_be_cut``: whether the last character may be incomplete; it is then ignored."""
        cut = _cut_letter(data) if may_be_cut else 0
        content = io.BytesIO(data[:-cut] if cut else data)
        self.text = io.TextIOWrapper(content, "utf-8-sig", newline="")
        self.name, self.length = name, 0
        self._left = self._most = size_limit() // LEAST_LINE

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self.text.readline(MOST_LINE + 1)
        if not line:
            raise StopIteration
        self.length += len(line)
        self._left -= 1
        if self._left < 0:
            what = f"{self.name} has more than {self._most:,} lines"
            raise InputError(what, "no empty lines, or several files")
        if self.length > MOST_LINE:
            what = f"{self.name} has a row of more than {MOST_LINE:,} characters"
            raise InputError(what, "a line for each row")
        return line


def csv_rows(lines: Lines, first: str = "") -> Iterator[list[str]]:
    """Yield the rows of CSV that are not empty; ``first`` is a line that was already read.

    Raises:
        ValueError: the lines are not CSV, or not UTF-8.
        InputError: a row is too long.
    """

    def each_line() -> Iterator[str]:
        if first:
            yield first
        yield from lines

    csv.field_size_limit(max(csv.field_size_limit(), MOST_LINE + 1))  # of the whole process
    try:
        for row in csv.reader(each_line()):
            lines.length = 0
            if len(row) > MOST_FIELDS:
                what = f"{lines.name} has a row of {len(row):,} cells, more than {MOST_FIELDS:,}"
                raise InputError(what, "a row for each op or run")
            if row:
                yield row
    except csv.Error as error:
        raise ValueError(str(error)) from error


def _cut_letter(data: bytes) -> int:
    """Return the number of bytes of an incomplete character at the end of UTF-8 text."""
    for size in range(1, min(3, len(data)) + 1):
        byte = data[-size]
        if 0xC2 <= byte <= 0xF4:
            return size if size < 2 + (byte >= 0xE0) + (byte >= 0xF0) else 0
        if not 0x80 <= byte < 0xC0:
            return 0
    return 0
