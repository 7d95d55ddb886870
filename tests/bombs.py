"""Small files that want much memory: Parquet by hand and by pyarrow, CSV, JSON, JSON lines, gzip,
pdf, png.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow
from pyarrow import parquet as library

from tests.parquet_files import (
    BYTES,
    DELTA_BYTES,
    FIXED,
    GZIP,
    INT64,
    PLAIN,
    Column,
    number,
    parquet,
    repeat,
    text,
)

MANY = 1 << 28
NAMES = ("microbatch", "start", "end", "device")


def ops(count: int = 8, **changes: Column) -> list[Column]:
    """The columns of a table of ops, some of them replaced."""
    columns = {name: number(name, count, name == "end") for name in NAMES} | {
        "kind": text("kind", count, b"F")
    }
    return list((columns | changes).values())


def delta_texts(count: int, longest: int) -> bytes:
    """Texts of which each repeats the one before: lengths of the prefixes, then one long suffix and
    empty ones.
    """

    def numbers(first: int, rest: int, size: int) -> bytes:
        head = _varint(128) + _varint(4) + _varint(size) + _varint(first << 1)
        steps = [rest - first, *[0] * (size - 2)]
        out = bytearray(head)
        for block in range(0, len(steps), 128):
            mine = steps[block : block + 128]
            least = min(mine)
            width = max(step - least for step in mine).bit_length()
            width = 0 if width == 0 else 32
            out += _varint(least << 1 ^ least >> 63)
            out += bytes([width] * 4)
            for at in range(0, 128, 32):
                part = [*mine[at : at + 32], *[least] * 32][:32]
                out += b"".join(struct.pack("<I", step - least) for step in part) if width else b""
        return bytes(out)

    prefixes = numbers(0, longest, count)
    suffixes = numbers(longest, 0, count) + b"F" * longest
    return prefixes + suffixes


def _varint(value: int) -> bytes:
    found, value = bytearray(), value & (1 << 64) - 1
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def written(columns: dict[str, Any], **how: Any) -> bytes:
    """A table as pyarrow writes it."""
    out = io.BytesIO()
    library.write_table(pyarrow.table(columns), out, **how)
    return out.getvalue()


def zeros(columns: int, rows: int) -> bytes:
    """A page of zeros for each column, packed about a thousand to one."""
    page = bytes(8 * rows)
    each = [
        Column(name, INT64, rows, b"\x02\0\0\0" + repeat(rows) + page, PLAIN, codec=GZIP)
        for name in NAMES[:columns]
    ]
    return parquet(each)


PARQUET: dict[str, Callable[[], bytes]] = {
    "rows that one run repeats": lambda: parquet(ops(MANY)),
    "rows of other columns": lambda: parquet([number(f"c{n}", 1 << 30) for n in range(40)]),
    "row groups of the same bytes": lambda: parquet(ops(1 << 15), groups=40_000),
    "row groups without rows": lambda: parquet(ops(0), groups=45_000),
    "more row groups than are read": lambda: parquet(ops(1), groups=90_000),
    "a long text in every row": lambda: parquet(
        ops(MANY >> 8, kind=text("kind", MANY >> 8, b"F" * 9_000_000, codec=GZIP))
    ),
    "a long text in some rows": lambda: parquet(
        ops(60_000, kind=text("kind", 60_000, b"F" * 200_000_000, codec=GZIP))
    ),
    "a long text for a number": lambda: parquet(
        ops(60_000, start=text("start", 60_000, b"1" * 90_000_000, codec=GZIP))
    ),
    "numbers of many bytes": lambda: parquet(
        ops(
            60_000,
            start=Column(
                "start",
                FIXED,
                60_000,
                repeat(60_000),
                dictionary=b"1" * 10_000_000,
                length=10_000_000,
                codec=GZIP,
            ),
        )
    ),
    "bytes for numbers": lambda: parquet(
        ops(
            60_000,
            start=Column(
                "start",
                BYTES,
                60_000,
                repeat(60_000),
                dictionary=b"\0\0\x0f\0" + b"1" * 983_040,
                codec=GZIP,
            ),
        )
    ),
    "texts that repeat the one before": lambda: parquet(
        ops(
            50_000,
            kind=Column(
                "kind", BYTES, 50_000, delta_texts(50_000, 1_000_000), DELTA_BYTES, codec=GZIP
            ),
        )
    ),
    "pages of zeros": lambda: zeros(4, 9_000_000),
    "a dictionary of two thousand million": lambda: parquet(
        ops(start=number("start", 8, entries=2**31 - 1))
    ),
    "a dictionary of texts that is said to be huge": lambda: parquet(
        ops(kind=text("kind", 8, b"F", entries=2**31 - 1))
    ),
    "a dictionary page that is said to be huge": lambda: parquet(
        ops(start=number("start", 8, codec=GZIP, lies={"dictionary_size": 2**31 - 1}))
    ),
    "a page that is said to be huge": lambda: parquet(
        ops(start=number("start", 8, codec=GZIP, lies={"page_size": 2**31 - 1}))
    ),
    "a page of huge packed size": lambda: parquet(
        ops(start=number("start", 8, lies={"packed": 2**31 - 1}))
    ),
    "a page with more values than its footer says": lambda: parquet(
        ops(start=number("start", 8, lies={"page_values": MANY}))
    ),
    "a footer with more values than its pages": lambda: parquet(
        ops(start=number("start", 8, lies={"values": MANY}))
    ),
    "a footer of many columns": lambda: written({f"c{n}": [1] for n in range(20_000)}),
    "a footer that is longer than the file": lambda: parquet(ops(), footer=2**31 - 1),
    "many small texts": lambda: written(
        {"kind": [f"F{n}" for n in range(400_000)], **dict.fromkeys(NAMES, range(400_000))}
    ),
    "many pages": lambda: written(
        dict.fromkeys(("kind", *NAMES), range(300_000)), data_page_size=1, write_batch_size=1
    ),
    "nulls": lambda: written({name: pyarrow.nulls(1 << 25) for name in ("kind", *NAMES)}),
    "a header of much JSON": lambda: _with_header(b"[" + b"[]," * 2_000_000 + b"[]]"),
}


def _with_header(header: bytes) -> bytes:
    out = io.BytesIO()
    table = pyarrow.table({name: [1] for name in ("kind", *NAMES)}).replace_schema_metadata(
        {"ppsim": header}
    )
    library.write_table(table, out)
    return out.getvalue()


LIMIT = 16 << 20  # the largest size that a file may have where these are read
SIZE = LIMIT * 15 // 16  # bytes of the texts
OP = '{"kind":"F","microbatch":0,"start":0,"end":1,"device":0%s}\n'


def filled(begin: str, part: str, end: str = "", size: int = SIZE) -> bytes:
    """A text that repeats a part until it has about so many bytes."""
    return begin.encode() + part.encode() * (size // len(part.encode())) + end.encode()


EVENT = '{"ph":"X","name":"PP:0F0","cat":"user_annotation","ts":1.5,"dur":1.5},'
HEAD = "kind,microbatch,start,end,device\n"
# The first letter says which commands take a file: t, k and l a real run, s a schedule, f factors,
# r a table of runs or of results, p peaks, x whatever says how it was made.
TEXTS: dict[str, Callable[[], bytes]] = {
    "t.csv: rows": lambda: filled(HEAD, "F,0,0,1,0\n"),
    "t.csv: rows that count": lambda: (
        HEAD + "".join(f"F,{n},{n},{n + 1},0\n" for n in range(LIMIT >> 5))
    ).encode(),
    "t.csv: kinds": lambda: (
        HEAD + "".join(f"F{n},0,0,1,0\n" for n in range(LIMIT // 22))
    ).encode(),
    "t.csv: cells of one row": lambda: filled(HEAD, "1,"),
    "t.csv: columns": lambda: filled("kind,microbatch,start,end,device,", "a,"),
    "t.csv: one cell": lambda: filled(HEAD + '"', "a"),
    "t.csv: lines in quotes": lambda: filled(HEAD + '"', '\n","'),
    "t.csv: blank lines": lambda: filled(HEAD, "\n"),
    "t.csv: wide letters": lambda: filled(HEAD, "\U0001f600"),
    "t.csv: texts for numbers": lambda: (
        HEAD + "".join(f"F,0,x{n},1,0\n" for n in range(LIMIT // 22))
    ).encode(),
    "t.jsonl: rows": lambda: filled("", OP % ""),
    "t.jsonl: short rows": lambda: filled(OP % "", "{}\n"),
    "t.jsonl: lists for kinds": lambda: filled(
        OP % "", '{"kind":[[],[],[],[],[]],"start":[[],[],[]]}\n'
    ),
    "t.jsonl: lists nobody wants": lambda: filled(OP % "", OP % (',"x":[%s0]' % ("[]," * 9000))),
    "t.jsonl: columns": lambda: "".join(OP % f',"c{n}":1' for n in range(LIMIT // 110)).encode(),
    "t.jsonl: one line": lambda: filled('{"kind":"F","start":0,"end":1,"x":[', "[],", "0]}"),
    "t.jsonl: blank lines": lambda: filled(OP % "", "\n"),
    "s.json: numbers": lambda: filled(
        '{"ops":{"kind":[],"device":[],"stage":[],"microbatch":[],"start":[', "0,", "0]}}"
    ),
    "s.json: texts": lambda: filled(
        '{"ops":{"device":[],"stage":[],"microbatch":[],"kind":[', '"ab",', '""]}}'
    ),
    "s.json: lists": lambda: filled('{"ops":[', "[],", "0]}"),
    "s.json: objects": lambda: filled('{"runs":[', '{"a":{}},', "0]}"),
    "s.json: wide letters": lambda: filled('{"schedule":"', "\U0001f600", '"}'),
    "s.trace.json: events": lambda: filled(
        '{"traceEvents":[{"ph":"M","name":"process_name","pid":0,"args":{"name":"device 0"}},',
        '{"ph":"X","name":"0F0","pid":0,"ts":0.5,"dur":1.5},',
        "{}]}",
    ),
    "s.csv: ops of one line": lambda: filled("", "0F0,", "0B0"),
    "s.csv: ops of one line in quotes": lambda: filled('"0F0",', "0F0,", "0B0"),
    "s.csv: lines": lambda: filled("", "0F0\n"),
    "s.csv: empty cells": lambda: filled("0F0,", ","),
    "s.csv: blank lines": lambda: filled("0F0", "\n"),
    "s.mmd: bars": lambda: filled("gantt\nsection device 0\n", "0F0:0,1\n"),
    "s.mmd: blank lines": lambda: filled("", "\n", "flowchart"),
    "s.mmd: lines": lambda: filled("gantt\n", "%%\n"),
    "k.kineto.json: events": lambda: filled(
        '{"traceEvents":[', '{"ph":"X","name":"PP:0F0","ts":1.5,"dur":1.5},', "{}]}"
    ),
    "k.otel.json: lines": lambda: filled("", '{"resourceSpans":[{},{},{},{}]}\n'),
    "l.log: timers": lambda: filled("times across ranks (ms):\n", " a:\n rank 0: 1\n"),
    "l.log: ranks": lambda: filled("times across ranks (ms):\n a:\n", " rank 99999: 1\n"),
    "f.txt: factors": lambda: filled("", "10,", "1"),
    "r.csv: rows": lambda: filled("id,gbs\n", "1,2\n"),
    "r.csv: rows of many columns": lambda: filled(
        ",".join(f"c{n}" for n in range(9000)) + "\n", "1\n"
    ),
    "r.json: rows": lambda: filled('{"rows":[', '{"a":1},', "{}]}"),
    "p.json: peaks": lambda: filled('{"memory":[', "1,", "1]}"),
    "x.pdf: letters": lambda: filled("%PDF /Subject (", "a"),
    "x.pdf: begins": lambda: filled("%PDF", "/Subject ("),
    "x.svg: begins": lambda: filled("<svg>", "<dc:description>"),
    "x.html: begins": lambda: filled("<!doctype html>", 'id="ppsim-data">'),
    "x.json: objects": lambda: filled('{"command":[', "{},", "{}]}"),
    "x.csv: one cell": lambda: filled('made_by\n"', "a"),
}


# Files just below the limits: what may be read may take so much.
ROWS = 2 * LIMIT // 201
OBJECTS = 5 * LIMIT
NEAR: dict[str, Callable[[], bytes]] = {
    "t.parquet: rows": lambda: written(
        {
            "kind": ["F"] * ROWS,
            "microbatch": range(ROWS),
            "start": [n + 0.5 for n in range(ROWS)],
            "end": [n + 0.7 for n in range(ROWS)],
            "device": [0] * ROWS,
        }
    ),
    "t.csv: rows": lambda: (HEAD + "".join(f"F,{n},{n},{n + 1},0\n" for n in range(ROWS))).encode(),
    "s.json: numbers": lambda: filled(
        '{"ops":{"kind":[],"device":[],"stage":[],"microbatch":[],"start":[',
        "0,",
        "0]}}",
        OBJECTS // 17,
    ),
    "s.csv: ops": lambda: (
        ",".join(f"0F{n}" for n in range(ROWS)) + "," + ",".join(f"0B{n}" for n in range(ROWS))
    ).encode(),
    "s.mmd: bars": lambda: (
        b"gantt\nsection device 0\n"
        + b"".join(b"0F%d:%d,%d\n" % (n, n, n + 1) for n in range(LIMIT // 134))
    ),
    "k.kineto.json: events": lambda: filled(
        '{"traceEvents":[', EVENT, "{}]}", len(EVENT) * (OBJECTS // 590)
    ),
    "p.primus.json: numbers": lambda: filled(
        '{"1":{"fwd_start":[', "0,", '0],"bwd_start":[]}}', OBJECTS // 17
    ),
}


def png(width: int, height: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    row = bytes(1 + width * 4)
    packer = zlib.compressobj(9, wbits=-15)
    # the same bytes wherever it stands
    packed_row = packer.compress(row) + packer.flush(zlib.Z_FULL_FLUSH)
    check = (height * len(row)) % 65521 << 16 | 1  # Adler-32 of zeros
    pixels = b"\x78\xda" + packed_row * height + packer.flush() + struct.pack(">I", check)
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )
