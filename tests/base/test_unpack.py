"""Files that unpack to much are refused before they take the memory, and none ends ppsim in any
other way.

SECURITY.md states the limits: a file takes at most 3 GiB, 12 times the size that it may have.
"""

from __future__ import annotations

import ast
import gzip
import os
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from ppsim.base.source import read_bytes
from ppsim.base.unpack import texts
from ppsim.base.unpack.json_objects import objects_size
from ppsim.base.unpack.limits import CELLS, FILES, LARGEST, OBJECTS
from ppsim.base.unpack.texts import LEAST_LINE, MOST_LINE, Lines, csv_rows, split_lines
from ppsim.errors import InputError
from ppsim.real.traces.tables import file as table_file
from ppsim.real.traces.tables.table import read_table
from ppsim.show.files.provenance import read_origin
from tests.bombs import LIMIT, NEAR, PARQUET, TEXTS, ops, png, written
from tests.commands import ROOT, SOURCE, answer, refused
from tests.parquet_files import parquet
from tests.parquet_fuzz import OPS

LITTLE = 512 << 20  # bytes that a process may take beyond what it has, for one small file
BOMBS = {
    name: make
    for name, make in PARQUET.items()
    if not name.startswith(("many", "row groups", "nulls"))
}


@pytest.fixture
def little_memory():
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LITTLE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_parquet_file_takes_little_memory(name, tmp_path, little_memory):
    """Each is a few kilobytes to a few megabytes, and would take gigabytes."""
    path = tmp_path / "x.parquet"
    path.write_bytes(BOMBS[name]())
    sweep = ("sweep", "1f1b", "--devices", "2", "--mb", "2", "-q", "--results")
    for words in (("read",), ("plan", "--against"), sweep):
        code, _, err = answer(*words, str(path))
        assert code in (0, 2), err
        assert "MemoryError" not in err


def test_the_limit_is_said_with_the_setting_that_raises_it(tmp_path):
    (tmp_path / "x.parquet").write_bytes(parquet(ops(1 << 22)))
    error = refused("read", str(tmp_path / "x.parquet"))
    assert str(error) == f"'{tmp_path}/x.parquet', in memory, is larger than 512 MiB"
    assert error.hint == "PPSIM_MAX_SIZE=1GiB in the environment raises the limit"


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"start": np.array([1, 2, 3], "datetime64[D]")}, "column 'start' is of type date32"),
        ({"kind": [b"F", b"B", b"F"]}, "column 'kind' is of type binary"),
        ({"microbatch": [[0], [0], [1]]}, "has no column of microbatch"),
        ({"kind": ["F" * 20_000] * 3}, "column 'kind' has a text of 20,000 bytes"),
    ],
)
def test_a_column_of_another_type_is_named(columns, says, tmp_path):
    (tmp_path / "x.parquet").write_bytes(written(OPS | columns))
    assert says in str(refused("read", str(tmp_path / "x.parquet")))


@pytest.mark.parametrize("command", [("read",), ("plan", "--against")])
def test_two_columns_of_one_name_are_refused(command, tmp_path):
    (tmp_path / "x.parquet").write_bytes(parquet([*ops(), *ops()]))
    assert "has two columns 'microbatch'" in str(refused(*command, str(tmp_path / "x.parquet")))


@pytest.mark.slow
def test_a_thousand_parquet_files_end_in_an_answer_or_a_refusal(tmp_path):
    """No traceback, no exit 70, no signal: a file that ends the process is the last one in the
    folder.
    """
    words = [
        sys.executable,
        "-m",
        "tests.parquet_fuzz",
        str(tmp_path),
        "1000",
        os.environ.get("PPSIM_SEED", "1"),
    ]
    done = subprocess.run(words, cwd=ROOT, env=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    read, answers, memory = map(int, done.stdout.split())
    assert read == 1000
    assert answers > 120
    assert memory < 1 << 30


def command_for(path: str) -> tuple[str, ...]:
    """The command that takes a file, by the first letter of its name."""
    small = ("--devices", "2", "--mb", "2")
    return {
        "s": ("check", path),
        "f": ("run", "1f1b", *small, "--mb-scale", path),
        "r": ("plan", "--against", path),
        "p": ("read", path)
        if "primus" in path
        else ("memory", "-s", "1f1b", *small, "--measured", path),
        "x": ("read", path),
    }.get(Path(path).name[0], ("read", path))


# A process in between: a process counts the memory of the one that started it as its own.
MEASURED = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024)
"""


def memory_of(path: Path, make: Callable[[], bytes], size: int) -> tuple[int, int, str]:
    """Write a file in a process of its own, read it in another: exit code, memory in bytes, and
    what it said.
    """
    if os.fork() == 0:  # so that no process inherits what making the file took
        path.write_bytes(make())
        os._exit(0)
    os.wait()
    words = [sys.executable, "-c", MEASURED, sys.executable, "-m", "ppsim", *command_for(str(path))]
    environment = SOURCE | {"PPSIM_MAX_SIZE": str(size)}
    with open(path.parent / "said", "w+b") as said:
        found = subprocess.run(
            words, env=environment, stdout=subprocess.PIPE, stderr=said, text=True, check=True
        )
        said.seek(0)
        code, memory = map(int, found.stdout.split()[-2:])
        return code, memory, said.read().decode(errors="replace")


@cache
def memory_of_little(letter: str, suffix: str) -> int:
    """The memory of the command that takes a file of this letter, of a file that it refuses at
    once.
    """
    content = written({"kind": ["F"]}) if suffix == ".parquet" else b"{}"
    with TemporaryDirectory() as folder:
        code, memory, _ = memory_of(Path(folder) / f"{letter}{suffix}", lambda: content, LIMIT)
    assert code in (0, 1, 2)
    return memory


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TEXTS, *(f"near: {name}" for name in NEAR)])
def test_a_large_file_takes_at_most_twelve_times_its_size(name, tmp_path):
    size = LIMIT
    make = NEAR[name.removeprefix("near: ")] if name.startswith("near: ") else TEXTS[name]
    file = name.removeprefix("near: ").partition(":")[0]
    code, memory, said = memory_of(tmp_path / file, make, size)
    assert code in (0, 1, 2), said[-1000:]
    assert "Traceback" not in said
    assert memory < 12 * size + memory_of_little(file[0], Path(file).suffix) + (48 << 20)


def test_security_states_the_limits():
    text = " ".join((ROOT / "SECURITY.md").read_text().split())
    assert (
        f"one line for {LEAST_LINE} bytes of S, which is {LARGEST // LEAST_LINE >> 20} Mi" in text
    )
    assert f"{LARGEST >> 20} MiB" in text
    assert f"{CELLS} times" in text
    assert f"{OBJECTS} times" in text
    assert f"{FILES} times" in text
    assert f"{12 * LARGEST >> 30} GiB" in text
    assert f"{MOST_LINE >> 20} Mi characters" in text


def test_gzip_unpacks_to_no_more_than_a_hundred_times_its_size(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(17 << 20)))
    with pytest.raises(InputError, match="decompressed, is more than 100 times as large") as caught:
        read_bytes(str(path))
    assert "gunzip" in caught.value.hint
    path.write_bytes(gzip.compress(bytes(15 << 20)))
    assert len(read_bytes(str(path))) == 15 << 20
    path.write_bytes(gzip.compress(random.Random(1).randbytes(1 << 20) + bytes(17 << 20)))
    assert len(read_bytes(str(path))) == 18 << 20


def test_files_of_one_run_have_one_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("PPSIM_MAX_SIZE", "1MiB")
    for number in range(5):
        (tmp_path / f"{number}.json").write_bytes(b" " * (1 << 20))
    assert "the whole of these files, in memory, is larger than 4 MiB" in str(
        refused("read", str(tmp_path))
    )


@pytest.mark.parametrize(
    ("text", "at_least"),
    [
        ("[" + "0," * 1000 + "0]", 32_000),
        ('["a",' * 1000, 64_000),
        ("[[]," * 1000, 88_000),
        ("[{}," * 1000, 100_000),
        ('{"\\":":"\\":"}' * 1000, 160_000),
    ],
)
def test_the_estimate_of_json_counts_each_value(text, at_least):
    """Letters that look like keys within texts take nothing off."""
    assert objects_size(text) >= at_least


def test_rows_and_lines_have_limits(monkeypatch):
    with monkeypatch.context() as small:
        small.setattr(texts, "MOST_LINE", 1000)
        assert list(csv_rows(Lines(b'"' + b"a\n" * 499 + b'"', "x"))) == [["a\n" * 499]]
        with pytest.raises(InputError, match="a row of more than 1,000 characters"):
            list(csv_rows(Lines(b'"' + b"a\n" * 500 + b'"', "x")))
    with pytest.raises(InputError, match="a row of 20,001 cells"):
        list(csv_rows(Lines(b"," * 20_000, "x")))
    assert list(csv_rows(Lines(b"\xef\xbb\xbfa,b\r1,2\r\n\n3,4", "x"))) == [
        ["a", "b"],
        ["1", "2"],
        ["3", "4"],
    ]
    assert list(csv_rows(Lines("a,\u00e9".encode()[:-1], "x", may_be_cut=True))) == [["a", ""]]
    monkeypatch.setenv("PPSIM_MAX_SIZE", "1KiB")
    assert list(csv_rows(Lines(b"\n" * 64, "x"))) == []
    with pytest.raises(InputError, match="x has more than 64 lines"):
        list(csv_rows(Lines(b"\n" * 65, "x")))
    assert split_lines("a\nb", "x") == ["a", "b"]
    with pytest.raises(InputError, match="in memory, is larger than 6 KiB"):
        split_lines("\n" * 100, "x")


@pytest.mark.parametrize("cells", ["0.5", "nan", "", "9007199254740993", "99999999999999999999"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_where_batches_end_changes_nothing(suffix, cells, monkeypatch):
    """A cell that is not a whole number makes its batch one of fractions, and not the others."""
    rows = [["F", str(n), str(n), str(n + 1), "0"] for n in range(10)]
    rows[7][2] = cells
    if suffix == ".csv":
        data = "\n".join(
            [",".join(("kind", "microbatch", "start_ns", "end_ns", "device")), *map(",".join, rows)]
        )
    else:
        rows[7][2] = cells if cells not in ("", "nan") else "null"
        names = ("microbatch", "start_ns", "end_ns", "device")
        cells = [
            ", ".join(f'"{name}": {cell}' for name, cell in zip(names, row[1:], strict=True))
            for row in rows
        ]
        data = "\n".join(f'{{"kind": "F", {each}}}' for each in cells)
    read = []
    for size in (3, 20_000):
        monkeypatch.setattr(table_file, "BATCH_ROWS", size)
        read.append(read_table("x", {f"x{suffix}": data.encode()}))
    for name in ("start", "end", "kind", "row", "name"):
        assert np.array_equal(
            getattr(read[0], name), getattr(read[1], name), equal_nan=name in ("start", "end")
        )
    assert all(
        np.array_equal(read[0].columns[name], read[1].columns[name]) for name in read[0].columns
    )


def test_pictures_and_pdfs_take_little(tmp_path, little_memory):
    files = {
        "x.png": png(9000, 9000),
        "y.png": png(8, 8),
        "x.pdf": b"%PDF /Subject (" + b"a" * (20 << 20),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert read_origin(str(tmp_path / name)) is None
        assert isinstance(refused("read", str(tmp_path / name)), InputError)


# What unpacks, and the modules that may: the door, TOML of 4 MiB at most, values within what the
# door let in.
UNPACKS = {
    "gzip",
    "zlib",
    "bz2",
    "lzma",
    "zipfile",
    "tarfile",
    "csv",
    "pyarrow",
    "pyarrow.parquet",
    "tomllib",
    "PIL",
}
CALLS = {"json.loads", "json.load", "orjson.loads", "msgspec.json.decode", "msgspec.json.Decoder"}
ALLOWED = {
    "show/files/page_parts.py": "writes gzip",
    "show/files/writers/animation.py": "draws pictures",
    "show/files/writers/trace.py": "writes gzip",
    "base/tables.py": "writes csv and Parquet",
    "ask/answer.py": "an answer of ours",
    "base/toml.py": "TOML, of 4 MiB at most",
    "base/typed_json.py": "behind the door's estimate",
    "base/results.py": "texts of cells, whose objects are counted",
    "real/runs/record.py": "writes gzip",
    "real/runs/record_file.py": "a part of what typed_json let in",
    "real/traces/kineto_json.py": "a part of what typed_json let in",
    "inputs/drafts/readers/trace.py": "a part of what typed_json let in",
}


def unpacking(tree: ast.Module) -> set[str]:
    """The libraries that unpack which a module imports, and the calls that decode JSON."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & UNPACKS
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} & UNPACKS
        elif isinstance(node, ast.Attribute):
            found |= {ast.unparse(node)} & CALLS
    return found


def test_nothing_but_the_door_unpacks():
    paths = [
        path for folder in ("ppsim", "cli", "schedules") for path in (ROOT / folder).rglob("*.py")
    ]
    named = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in UNPACKS | CALLS))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    found = {
        name for name, text in texts.items() if named.search(text) and unpacking(ast.parse(text))
    }
    others = {name for name in found if not name.startswith("ppsim/base/unpack/")}
    assert others == {f"ppsim/{name}" for name in ALLOWED}


def test_a_table_of_runs_with_a_nested_layout_is_refused(tmp_path):
    """In JSON a layout may be a list; in Parquet it would be left out in silence."""
    (tmp_path / "x.parquet").write_bytes(
        written({"id": ["a"], "layout": [[1, 2]], "tags": [["x"]]})
    )
    assert "column 'layout' contains lists or objects" in str(
        refused("plan", "--against", str(tmp_path / "x.parquet"))
    )
    (tmp_path / "x.parquet").write_bytes(written({"id": ["a"], "tags": [["x"]]}))
    assert answer("plan", "--against", str(tmp_path / "x.parquet"))[0] == 0
