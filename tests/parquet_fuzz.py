"""Thousands of Parquet files that a stranger might send, each given to a public command in this
process.

``python -m tests.parquet_fuzz FOLDER COUNT SEED`` prints how many files it read, how many answers
it got and the largest memory of the process in bytes, or what went wrong with which file, which
stays in the folder.
"""

from __future__ import annotations

import datetime
import decimal
import io
import random
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet as library

from tests.bombs import PARQUET, ops, written
from tests.commands import answer
from tests.parquet_files import BYTES, FIXED, GZIP, INT32, Column, number, parquet, repeat, text

DAY = datetime.date(2026, 1, 1)
NOON = datetime.datetime(2026, 1, 1, 12)
VALUES: dict[str, list[Any]] = {
    "int8": [0, 1, None],
    "uint64": [0, 2**64 - 1, None],
    "int64": [-(2**63), 2**63 - 1, None],
    "float16": [0, 1, None],
    "float32": [0.0, float("nan"), None],
    "float64": [1e308, float("-inf"), None],
    "bool": [True, False, None],
    "date32": [DAY, None, DAY],
    "date64": [DAY, None, DAY],
    "time32[s]": [datetime.time(1), None, None],
    "time64[ns]": [datetime.time(1), None, None],
    "timestamp[s]": [NOON, None, NOON],
    "timestamp[ns]": [NOON, None, NOON],
    "duration[us]": [datetime.timedelta(1), None, None],
    "string": ["F", "", None],
    "large_string": ["F", "1", None],
    "binary": [b"F", b"\xff", None],
    "large_binary": [b"F", b"\xff", None],
    "null": [None] * 3,
}
RUN: dict[str, list[Any]] = {
    "id": ["a", "b", "c"],
    "model": ["llama3-8b"] * 3,
    "gpu": ["h100"] * 3,
    "gpus": [8, 8, 8],
    "gbs": [8, 8, 8],
    "tp": [1, 1, 1],
    "pp": [2, 2, 2],
    "step_s": [1.0, 2.0, None],
}
OPS: dict[str, list[Any]] = {
    "kind": ["F", "B", "F"],
    "microbatch": [0, 0, 1],
    "start": [0, 1, 2],
    "end": [1, 2, 3],
    "device": [0, 0, 0],
}
OPS |= {
    "replica": [0, 0, 0],
    "iteration": [1, 1, 1],
    "stage": [0, 0, 0],
    "chunk": [0, 0, 0],
    "posted": [0.0, 1, 2],
}
OPS |= {"group": ["all", None, None], "duration": [1, 1, 1]}
KEPT: dict[str, list[Any]] = {"key": ["a"], "inputs": ["x"], "digest": ["x"], "row": ["{}"]}
LIES = (
    "values",
    "page_values",
    "packed",
    "page_size",
    "unpacked",
    "chunk",
    "data_at",
    "dictionary_at",
    "entries",
    "dictionary_size",
    "repetition",
)
NUMBERS = (-(2**31), -1, 0, 1, 2, 100, 2**16, 2**31 - 1, 2**40)
HEAVY = ("row groups", "many", "pages of zeros", "nulls", "much JSON", "long text")


@cache
def typed() -> dict[str, pyarrow.Array]:
    """Three values of each type; made when asked for, as pyarrow imports pandas for them."""
    return {
        **{
            name: pyarrow.array(values, pyarrow.type_for_alias(name))
            for name, values in VALUES.items()
        },
        "string view": pyarrow.array(["F", "B", None], pyarrow.string_view()),
        "fixed bytes": pyarrow.array([b"1234", b"1234", None], pyarrow.binary(4)),
        "decimal": pyarrow.array([decimal.Decimal("1.5"), None, None], pyarrow.decimal128(38, 10)),
        "long decimal": pyarrow.array(
            [decimal.Decimal(10) ** 60, None, None], pyarrow.decimal256(76, 2)
        ),
        "late timestamp": pyarrow.array([2**52, 0, None], pyarrow.timestamp("s")),
        "zoned timestamp": pyarrow.array([0, 1, None], pyarrow.timestamp("ms", "Europe/Paris")),
        "bad zone": pyarrow.array([0, 1, None], pyarrow.timestamp("ms", "Nowhere/None")),
        "list": pyarrow.array([[1], [], None]),
        "nested list": pyarrow.array([[[1]], [], None]),
        "struct": pyarrow.array([{"a": 1}, {"a": None}, None]),
        "map": pyarrow.array(
            [[("a", 1)], [], None], pyarrow.map_(pyarrow.string(), pyarrow.int64())
        ),
        "dictionary": pyarrow.array(["F", "B", None]).dictionary_encode(),
        "dictionary of numbers": pyarrow.array([1, 2, None]).dictionary_encode(),
        "long text": pyarrow.array(["F" * 100_000, "1" * 5000, None]),
        "odd texts": pyarrow.array(["\x1b]0;x\x07", "=1+1", "\u2028"]),
    }


@cache
def originals() -> tuple[bytes, ...]:
    """Small whole files, in the ways in which writers pack them."""
    ways: list[dict[str, Any]] = [
        {"compression": name} for name in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
    ]
    ways += [
        {"use_dictionary": False, "column_encoding": dict.fromkeys(OPS, "PLAIN")},
        {"data_page_version": "2.0"},
    ]
    ways += [
        {"version": "1.0"},
        {"row_group_size": 1},
        {"store_schema": False},
        {"write_page_index": True},
    ]
    ways += [
        {
            "use_dictionary": False,
            "column_encoding": {"kind": "DELTA_BYTE_ARRAY", "start": "DELTA_BINARY_PACKED"},
        }
    ]
    found = [written(OPS, **way) for way in ways] + [written(RUN), written(KEPT)]
    found += [
        parquet(ops()),
        parquet(ops(), groups=3),
        parquet([number("start", 9, codec=GZIP), text("kind", 9, b"F")]),
    ]
    return tuple(found)


def by_type() -> Iterator[tuple[str, bytes]]:
    """Yield tables of which one column is of each type, named by the command that reads them."""
    for command, table in (("read", OPS), ("plan", RUN), ("sweep", KEPT)):
        for column, (name, values) in (
            (column, each) for column in table for each in typed().items()
        ):
            size = len(table[column])
            yield f"{command}: {column} is {name}", written(table | {column: values[:size]})


def by_lie() -> Iterator[tuple[str, bytes]]:
    """Yield tables whose headers or footers state a number that is not true."""
    for lie in LIES:
        for told in NUMBERS:
            for codec in (0, GZIP):
                odd = number("start", 8, codec=codec, lies={lie: told})
                yield f"lie: start {lie} {told}", parquet(ops(start=odd))
                yield (
                    f"lie: kind {lie} {told}",
                    parquet(ops(kind=text("kind", 8, b"F", codec=codec, lies={lie: told}))),
                )
    for told in NUMBERS:
        for name in ("rows", "group_rows", "children", "footer"):
            yield (
                f"lie: {name} {told}",
                parquet(ops(), **{name: told & 0xFFFFFFFF if name == "footer" else told}),
            )
    for physical, length in (
        (0, 0),
        (INT32, 0),
        (3, 0),
        (4, 0),
        (BYTES, 0),
        (FIXED, 2**31 - 1),
        (FIXED, 1),
        (9, 0),
    ):
        column = Column("start", physical, 8, repeat(8), dictionary=b"\0" * 64, length=length)
        yield f"lie: start is of physical type {physical}", parquet(ops(start=column))
    for encoding in range(-1, 11):
        for page in (b"", b"\0" * 9, b"\xff" * 99, repeat(8), repeat(2**40)):
            yield (
                f"lie: encoding {encoding}",
                parquet(ops(start=Column("start", 2, 8, page, encoding))),
            )
            yield (
                f"lie: encoding {encoding}",
                parquet(ops(kind=Column("kind", BYTES, 8, page, encoding))),
            )


def by_shape() -> Iterator[tuple[str, bytes]]:
    """Yield files of odd shapes: names twice, no rows, no columns, cut, empty."""
    twice = pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, names=["start", "start"])
    out = io.BytesIO()
    library.write_table(twice, out)
    yield "two columns of one name", out.getvalue()
    yield "two columns of one name, by hand", parquet([*ops(), number("start", 8)])
    yield "no rows", written({name: values[:0] for name, values in OPS.items()})
    yield "no columns", parquet([number("a", 0)], rows=0, children=0)
    yield "names with dots", written({"a.b": [1], "a": [{"b": 1}], "start.x": [1]})
    yield "an empty name", written({"": [1], "\x1b": [2]})
    for content in (
        b"",
        b"PAR1",
        b"PAR1PAR1",
        b"PARE" * 4,
        b"PAR1" + b"\0" * 8 + b"PAR1",
        b"PAR1" * 1000,
    ):
        yield "not Parquet", content
    for original in originals():
        yield from (
            ("cut", original[:size])
            for size in range(4, len(original), max(len(original) // 12, 1))
        )
    for name, make in PARQUET.items():
        if not any(word in name for word in HEAVY):
            yield name, make()


def mutated(chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield whole files with a few bytes changed, most of them in headers and footers, for ever."""
    while True:
        data = bytearray(chance.choice(originals()))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            footer = max(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), 4)
            places = [
                range(4, min(60, len(data))),
                range(min(footer, len(data) - 1), len(data)),
                range(4, len(data)),
            ]
            at = chance.choice(chance.choice(places))
            kind = chance.randrange(5)
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << chance.randrange(8)
            elif kind == 2:
                data[at : at + 1] = chance.randbytes(chance.choice((0, 1, 4)))
            elif kind == 3:
                data[at : at + 4] = b"\xff\xff\xff\x7f"
            else:
                data[at : at + chance.randrange(1, 9)] = b"\x80\x80\x80\x80\x80\x80\x80\x80\x01"[
                    : chance.randrange(1, 9)
                ]
        yield "mutated", bytes(data)


def files(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield so many files: all made by hand, and mutated ones for the rest."""
    return islice(chain(by_type(), by_lie(), by_shape(), mutated(random.Random(seed))), count)


COMMANDS: dict[str, tuple[str, ...]] = {
    "read": ("read",),
    "plan": ("plan", "--against"),
    "sweep": ("sweep", "1f1b", "--devices", "2", "--mb", "2", "-q", "--results"),
}


def commands_for(name: str, number: int) -> list[tuple[str, ...]]:
    """The commands that read a file, without its path: all for one of odd shape, the one that needs
    its columns for a table, else one in turn.
    """
    if (command := name.partition(":")[0]) in COMMANDS:
        return [COMMANDS[command]]
    if name == "mutated" or name.startswith("lie"):
        return [list(COMMANDS.values())[number % len(COMMANDS)]]
    return list(COMMANDS.values())


def most_memory() -> int:
    """Return the most memory that this process itself held, in bytes; getrusage counts its parent's
    too.
    """
    status = Path("/proc/self/status").read_text()
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        * 1024
    )


def main(folder: Path, count: int, seed: int) -> int:
    """Read the files; 1 where one of them ends a command in any other way than an answer or a
    refusal.
    """
    path, read, answers = folder / "x.parquet", 0, 0
    for read, (name, data) in enumerate(files(count, seed), start=1):
        for words in commands_for(name, read):
            path.write_bytes(data)
            code, out, err = answer(*words, str(path))
            answers += code == 0
            if code not in (0, 1, 2) or "Traceback" in out + err:
                (folder / f"wrong-{read}.parquet").write_bytes(data)
                print(f"file {read} ({name}): {' '.join(words)} exits with {code}: {err[:1000]}")
                return 1
    print(read, answers, most_memory())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
