"""Sizes that the page headers of a Parquet column state, read without unpacking any page.

The footer of a Parquet file states sizes too, and may lie; the library allocates what the page
headers state. They are Thrift structs in the compact protocol:
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

DICTIONARY_PAGE = 2
DELTA_BYTE_ARRAY = 7  # texts that repeat the beginning of the text before
_LONGEST_HEADER = 1 << 20  # bytes; a header holds the least and the greatest value of its page
_DEEPEST = 8
_FIXED = {3: 1, 7: 8}  # bytes of a value by its Thrift type: byte, double
_TRUE, _FALSE, _BINARY, _STRUCT = 1, 2, 8, 12


@dataclass(frozen=True)
class Page:
    """One page of a column chunk: its kind, its bytes in the file and unpacked, and its values."""

    kind: int
    packed: int
    unpacked: int
    values: int
    encoding: int


class BadPage(ValueError):
    """A page header that is damaged."""


def pages(data: memoryview, begin: int, end: int) -> Iterator[Page]:
    """Yield the pages of a column chunk that lies between two places of a file.

    Raises:
        BadPage: a header that no writer makes.
    """
    at = begin
    while at < end:
        header = _Header(data, at, min(end, at + _LONGEST_HEADER))
        fields = header.struct()
        kind, unpacked, packed = (_whole(fields, number) for number in (1, 2, 3))
        about = next((fields[n] for n in (5, 7, 8) if isinstance(fields.get(n), dict)), {})
        assert isinstance(about, dict)
        encoding = about.get(4 if 8 in fields else 2, 0)
        values = about.get(1, 0)
        if not isinstance(encoding, int) or not isinstance(values, int) or values < 0:
            raise BadPage("a page header is damaged")
        yield Page(kind, packed, unpacked, values, encoding)
        at = header.at + packed


def _whole(fields: dict[int, object], number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise BadPage("a page header is damaged")
    return value


class _Header:
    """A reader of one Thrift struct, which keeps whole numbers and structs by their field ids."""

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def struct(self, depth: int = 0) -> dict[int, object]:
        if depth > _DEEPEST:
            raise BadPage("a page header is nested too deeply")
        found, number = dict[int, object](), 0
        while byte := self.byte():
            kind = byte & 15
            number = number + (byte >> 4) if byte >> 4 else self.zigzag()
            found[number] = self.value(kind, depth)
        return found

    def value(self, kind: int, depth: int) -> object:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in _FIXED or kind == _BINARY:
            self.skip(_FIXED[kind] if kind in _FIXED else self.varint())
            return None
        raise BadPage("a page header holds a list")  # which the format does not have there

    def byte(self) -> int:
        if self.at >= self.end:
            raise BadPage("a page header is cut short")
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise BadPage("a page header is damaged")
        return value | byte << shift

    def zigzag(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def skip(self, size: int) -> None:
        if size > self.end - self.at:
            raise BadPage("a page header is cut short")
        self.at += size
