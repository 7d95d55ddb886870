"""Read the sizes in a Parquet file's footer and page headers, without unpacking a page.

The library allocates the sizes of page headers, which the footer may contradict, and some damaged
footers crash it. Both are Thrift structs in the compact protocol:
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DICTIONARY_PAGE = 2
DELTA_BYTE_ARRAY = 7  # texts that repeat the beginning of the previous text
_LONGEST_HEADER = 1 << 20  # bytes; a header has the smallest and the largest value of its page
_DEEPEST = 16
_BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 3, 4, 5, 6, 7, 8, 9, 12
# The fields that are read, by number: a kind, the fields of a struct, or the fields of structs in a
# list.
_CHUNK = {5: _I64, 7: _I64, 9: _I64, 11: _I64}
_FOOTER = {4: [{1: [{3: _CHUNK}], 3: _I64}]}
_PAGE = {1: _I32, 2: _I32, 3: _I32, 5: {1: _I32, 2: _I32}, 7: {1: _I32}, 8: {1: _I32, 4: _I32}}


@dataclass(frozen=True)
class Chunk:
    """The place of one column of one row group in the file, and its number of values."""

    begin: int
    end: int
    values: int


@dataclass(frozen=True)
class Page:
    """One page of a column chunk: kind, bytes in the file and unpacked, and number of values."""

    kind: int
    packed: int
    unpacked: int
    values: int
    encoding: int


class DamagedFooter(ValueError):
    """A footer or a page header is invalid."""


def chunks_by_group(data: bytes, columns: int) -> list[tuple[int, list[Chunk]]]:
    """Return the number of rows of each row group, and the places of its ``columns``.

    Raises:
        DamagedFooter: the footer is incomplete, or a row group lacks a column.
    """
    end = len(data) - 8
    begin = end - int.from_bytes(data[-8:-4], "little")
    if begin < 0:
        raise DamagedFooter("the footer is cut short")
    footer = _ThriftReader(memoryview(data), begin, end).struct(_FOOTER)
    return [(_need(group, 3), _chunks(group, columns)) for group in footer.get(4, [])]


def _chunks(group: dict[int, Any], columns: int) -> list[Chunk]:
    found = []
    for column in group.get(1, []):
        stated = column.get(3, {})
        values, size, begin = (_need(stated, number) for number in (5, 7, 9))
        dictionary = stated.get(11, 0)
        begin = dictionary if 0 < dictionary < begin else begin
        found.append(Chunk(begin, begin + size, values))
    if len(found) != columns:
        raise DamagedFooter(f"a row group has {len(found):,} of {columns:,} columns")
    return found


def pages(data: memoryview, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a column chunk, up to its number of values.

    Raises:
        DamagedFooter: a header is incomplete.
    """
    at, seen = chunk.begin, 0
    while at < chunk.end and seen < chunk.values:
        header = _ThriftReader(data, at, min(chunk.end, at + _LONGEST_HEADER))
        fields = header.struct(_PAGE)
        kind, unpacked, packed = (_need(fields, number) for number in (1, 2, 3))
        about = fields.get(5) or fields.get(8) or fields.get(7) or {}
        encoding = about.get(4 if 8 in fields else 2, 0)
        values = max(about.get(1, 0), 0)
        yield Page(kind, packed, unpacked, values, encoding)
        seen += values if kind != DICTIONARY_PAGE else 0
        at = header.at + packed


def _need(fields: dict[int, Any], number: int) -> int:
    """Return the number in a field (DamagedFooter: it is missing or negative)."""
    value = fields.get(number, -1)
    if value < 0:
        raise DamagedFooter("a size is missing or below 0")
    return int(value)


class _ThriftReader:
    """A reader of Thrift structs that returns the wanted fields and skips the others."""

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def struct(self, wanted: Any, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise DamagedFooter("nested too deeply")
        found, number = dict[int, Any](), 0
        while byte := self.byte():
            kind = byte & 15
            number = number + (byte >> 4) if byte >> 4 else self.zigzag()
            want = wanted.get(number)
            if number in found:
                raise DamagedFooter("a field occurs twice")
            if want == kind:
                found[number] = self.zigzag()
            elif isinstance(want, dict) and kind == _STRUCT:
                found[number] = self.struct(want, depth + 1)
            elif isinstance(want, list) and kind == _LIST:
                found[number] = self.list(want[0], depth)
            else:
                self.skip(kind, depth)
        return found

    def list(self, wanted: Any, depth: int) -> list[dict[int, Any]]:
        count, kind = self.head_of_list()
        if count and kind != _STRUCT:
            raise DamagedFooter("a list has entries that are not structs")
        return [self.struct(wanted, depth + 1) for _ in range(count)]

    def head_of_list(self) -> tuple[int, int]:
        byte = self.byte()
        count = byte >> 4 if byte >> 4 < 15 else self.varint()
        if count > self.end - self.at:
            raise DamagedFooter("a list is cut short")
        return count, byte & 15

    def skip(self, kind: int, depth: int, *, listed: bool = False) -> None:
        if kind in (1, 2):  # true and false, which take a byte in lists only
            self.at += listed
        elif kind in (_I16, _I32, _I64):
            self.varint()
        elif kind in (_BYTE, _DOUBLE, _BINARY):
            size = self.varint() if kind == _BINARY else {_BYTE: 1, _DOUBLE: 8}[kind]
            self.at += size
        elif kind == _STRUCT:
            self.struct({}, depth + 1)
        elif kind == _LIST and depth < _DEEPEST:
            count, inner = self.head_of_list()
            for _ in range(count):
                self.skip(inner, depth + 1, listed=True)
        else:
            raise DamagedFooter("a field of an unknown kind")

    def byte(self) -> int:
        if self.at >= self.end:
            raise DamagedFooter("cut short")
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise DamagedFooter("a number is too long")
        return value | byte << shift

    def zigzag(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)
