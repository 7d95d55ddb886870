"""Parquet files made by hand, byte by byte, so that footers and pages can state what is not
true.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

INT32, INT64, DOUBLE, BYTES, FIXED = 1, 2, 5, 6, 7  # physical types
PLAIN, DELTA_BYTES, RLE_DICTIONARY = 0, 7, 8  # encodings
NONE, GZIP = 0, 2  # codecs
UTF8 = 0  # the converted type of texts


def varint(value: int) -> bytes:
    found = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def zigzag(value: int) -> bytes:
    return varint(value << 1 ^ value >> 63)


class Text(str):
    """A text, as Thrift writes it."""


def thrift(*fields: tuple[int, object]) -> bytes:
    """A struct of fields by their ids: int is i32, float stands for i64, bytes for a struct that is
    written already.
    """
    out, last = bytearray(), 0
    for number, value in fields:
        kind, content = _value(value)
        out += bytes([number - last << 4 | kind]) + content
        last = number
    return bytes(out) + b"\0"


def _value(value: object) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return (1 if value else 2), b""
    if isinstance(value, int):
        return 5, zigzag(value)
    if isinstance(value, float):
        return 6, zigzag(int(value))
    if isinstance(value, Text):
        return 8, varint(len(value)) + value.encode()
    if isinstance(value, bytes):
        return 12, value
    assert isinstance(value, list)
    kind = _value(value[0])[0] if value else 12
    size = (
        bytes([len(value) << 4 | kind])
        if len(value) < 15
        else bytes([0xF0 | kind]) + varint(len(value))
    )
    return 9, size + b"".join(_value(each)[1] for each in value)


@dataclass(frozen=True)
class Column:
    """A column chunk of one data page, and of a dictionary page where there is a dictionary.

    Attributes:
        name: of the column.
        physical: its type.
        values: how many the page and the footer state.
        page: the bytes of the data page, unpacked.
        encoding: of the data page.
        dictionary: the bytes of the dictionary page, unpacked; None for none.
        entries: how many the dictionary's page states.
        length: of a value of fixed length.
        lies: what the headers and the footer state instead of the truth, by name.
    """

    name: str
    physical: int
    values: int
    page: bytes
    encoding: int = RLE_DICTIONARY
    dictionary: bytes | None = None
    entries: int = 1
    length: int = 0
    codec: int = NONE
    lies: dict[str, int] = field(default_factory=dict)


def repeat(count: int, width: int = 1) -> bytes:
    """The indices of a dictionary in a page of ``count`` values, all the first: one run."""
    return bytes([width]) + varint(count << 1) + b"\0" * ((width + 7) // 8)


def number(name: str, count: int, value: int = 0, **more: Any) -> Column:
    """A column of ``count`` equal whole numbers in a few bytes."""
    held = value.to_bytes(8, "little", signed=True)
    return replace(Column(name, INT64, count, repeat(count), dictionary=held), **more)


def text(name: str, count: int, value: bytes, **more: Any) -> Column:
    """A column of ``count`` equal texts, which is stored once."""
    held = len(value).to_bytes(4, "little") + value
    return replace(Column(name, BYTES, count, repeat(count), dictionary=held), **more)


def _pack(content: bytes, codec: int) -> bytes:
    if codec == NONE:
        return content
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(content) + packer.flush()


def parquet(
    columns: Sequence[Column], groups: int = 1, rows: int | None = None, **lies: int
) -> bytes:
    """A file of these columns; several row groups are all the same bytes."""
    out, chunks, stored = bytearray(b"PAR1"), list[bytes](), list[bytes]()
    for column in columns:
        told = column.lies.get
        begin, unpacked = len(out), 0
        dictionary_at = None
        if column.dictionary is not None:
            dictionary_at, packed = len(out), _pack(column.dictionary, column.codec)
            about = thrift((1, told("entries", column.entries)), (2, PLAIN))
            size = told("dictionary_size", len(column.dictionary))
            out += thrift((1, 2), (2, size), (3, len(packed)), (7, about)) + packed
            unpacked += len(column.dictionary)
        data_at, packed = len(out), _pack(column.page, column.codec)
        about = thrift(
            (1, told("page_values", column.values)), (2, column.encoding), (3, 3), (4, 3)
        )
        size = told("page_size", len(column.page))
        out += thrift((1, 0), (2, size), (3, told("packed", len(packed))), (5, about)) + packed
        unpacked += len(column.page)
        size = told("unpacked", unpacked)
        parts: list[tuple[int, object]] = [
            (1, column.physical),
            (2, [PLAIN, 3, column.encoding]),
            (3, [Text(column.name)]),
            (4, column.codec),
            (5, float(told("values", column.values))),
            (6, float(size)),
            (7, float(told("chunk", len(out) - begin))),
            (9, float(told("data_at", data_at))),
        ]
        if dictionary_at is not None:
            parts.append((11, float(told("dictionary_at", dictionary_at))))
        chunks.append(thrift((2, float(begin)), (3, thrift(*parts))))
        kind: list[tuple[int, object]] = [(1, column.physical)]
        kind += [(2, column.length)] if column.length else []
        kind += [(3, told("repetition", 0)), (4, Text(column.name))]
        kind += [(6, UTF8)] if column.physical == BYTES else []
        stored.append(thrift(*kind))
    each = columns[0].values if rows is None else rows
    group = thrift((1, chunks), (2, float(len(out))), (3, float(lies.get("group_rows", each))))
    schema = [thrift((4, Text("schema")), (5, lies.get("children", len(columns)))), *stored]
    total = float(lies.get("rows", each * groups))
    footer = thrift((1, 1), (2, schema), (3, total), (4, [group] * groups))
    out += footer + lies.get("footer", len(footer)).to_bytes(4, "little") + b"PAR1"
    return bytes(out)
