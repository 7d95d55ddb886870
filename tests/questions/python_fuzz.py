"""Values of other types in the questions that Python asks, each in a process with a limit of time.

    python -m tests.questions.python_fuzz SEED COUNT

prints every call that ends in anything but an answer or a refusal in one sentence.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import random
import resource
import select
import sys
import tempfile
import traceback
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import ppsim
from ppsim.ask.options import list_options
from ppsim.questions import list_functions, module_of
from tests.cli.option_fuzz import inputs

CPU_S, WALL_S, SPACE_BYTES = 20, 120, 6 << 30
MOST_MESSAGE = 2500
LATER = (  # options that would start workers, or run for real
    "dask",
    "quiet",
    "as_json",
    "own",
    "from_record",
    "from_trace",
)
PLAIN = {"devices": 4, "microbatches": 8}
# One sound call of each question; calls of the fuzz differ from it in one or two values.
CALLS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "run": (["1f1b"], PLAIN),
    "compare": ([["1f1b", "zb-1p"]], PLAIN),
    "sweep": ([["1f1b", "zb-1p"]], {"devices": [2, 4], "microbatches": 8}),
    "jitter": ([["1f1b"]], PLAIN | {"samples": 20}),
    "memory": (["1f1b"], PLAIN),
    "explain": (["1f1b"], PLAIN),
    "diff": (["1f1b", "zb-1p"], PLAIN),
    "partition": (["1f1b"], {"devices": 2, "microbatches": 4, "num_layers": 6, "time_limit": 1}),
    "optimize": ([], {"devices": 2, "microbatches": 3, "time_limit": 1}),
    "plan": (["llama3-8b", "dgx-h100"], {"gpus": 8, "gbs": 64, "pp": 1}),
    "model": (["llama3-8b"], {}),
    "layout": (["Et|tL"], {}),
    "read": (["recorded"], {}),
    "check": (["in.csv"], {}),
    "convert": (["in.csv", "out.json"], {}),
    "calibrate": ([], {"from_trace": ["trace0.json.gz", "trace1.json.gz"]}),
    "validate": ([], {"from_record": "record.json.gz"}),
}


class Odd:
    """An object of no known type."""

    def __repr__(self) -> str:
        return "Odd()"


ODD: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 3, 8, 10**30, 2.0, 2.5, 1e308, 5e-324),
    *(float("nan"), float("inf"), -float("inf"), Decimal("2"), Decimal("NaN"), Fraction(1, 3), 1j),
    *("", " ", "x", "nan", "inf", "1_0", "\uff12", "1e400", "\0", "\ud800", "\udcff", "-", "a\nb"),
    *("x" * 300, "x/" * 3000, "--help", "[/]", "in.csv", ".", "/dev/null", "/dev/zero"),
    *(b"1", bytearray(b"x"), memoryview(b"a"), Path("x"), Path("in.csv"), Path(".")),
    *(np.int64(2), np.float64(1.5), np.bool_(True), np.str_("2"), np.float64("nan")),
    *(np.array([1, 2]), np.array(2), np.array([]), np.array(["a"]), np.array([[1, 2], [3, 4]])),
    *([], (), {}, {"a": 1}, set(), {1}, [None], [1], [1, 2], [1, "2"], [[1]], ["x"], [True]),
    *([float("nan")], ["1f1b", "zb-1p"], range(3), range(2, 5), range(0), Odd, Odd(), len, ...),
]


def draw_call(draw: random.Random) -> tuple[str, list[Any], dict[str, Any]]:
    """Draw a question, its arguments and its options, one or two of which are odd."""
    name = draw.choice(list(CALLS))
    arguments, options = list(CALLS[name][0]), dict(CALLS[name][1])
    if arguments and draw.random() < 0.2:
        arguments[draw.randrange(len(arguments))] = draw.choice(ODD)
        return name, arguments, options
    module = importlib.import_module(str(module_of(name)))
    request = getattr(module, module.answer.__annotations__["request"])
    known = [each.name for each in list_options(request) if each.name not in LATER]
    for _ in range(draw.choice([1, 1, 1, 2])):
        options[draw.choice(known)] = draw.choice(ODD)
    return name, arguments, options


def end_of(name: str, arguments: list[Any], options: dict[str, Any]) -> str:
    """Ask a question; return what is wrong with its end, or nothing."""
    try:
        found = getattr(ppsim, name)(*arguments, **options)
        json.dumps(found.to_json() if hasattr(found, "to_json") else str(found))
        str(found)
    except ppsim.PpsimError as error:
        lines = f"{error}{error.hint}"
        return "" if 0 < len(lines) < MOST_MESSAGE else f"a message of {len(lines)} characters"
    except BaseException as error:
        # Python itself refuses a missing argument
        if isinstance(error, TypeError) and len(traceback.extract_tb(error.__traceback__)) == 1:
            return ""
        return traceback.format_exc()[-600:]
    return ""


def fault_of(name: str, arguments: list[Any], options: dict[str, Any]) -> str:
    """Ask a question in a process; return what is wrong with its end, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            resource.setrlimit(resource.RLIMIT_AS, (SPACE_BYTES, SPACE_BYTES))
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            text = end_of(name, arguments, options) or "sound"
            os.write(writing, text.encode("utf-8", "backslashreplace"))
        finally:
            os._exit(0)
    os.close(writing)
    ended = select.select([reading], [], [], WALL_S)[0]
    if not ended:
        os.kill(child, 9)
    found = os.read(reading, 1 << 16).decode() or "no end"
    os.close(reading)
    os.waitpid(child, 0)
    return "" if found == "sound" else found


def faults(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Yield the calls that end wrongly, each with the fault."""
    draw, before = random.Random(seed), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        inputs(Path(folder))
        os.chdir(folder)
        try:
            for _ in range(count):
                name, arguments, options = draw_call(draw)
                if fault := fault_of(name, arguments, options):
                    given = [*map(repr, arguments), *(f"{k}={v!r}" for k, v in options.items())]
                    yield f"{name}({', '.join(given)})"[:400], fault
        finally:
            os.chdir(before)


if __name__ == "__main__":
    assert {*CALLS} == {*list_functions()}, "each question has a sound call"
    assert all(inspect.isfunction(getattr(ppsim, each)) for each in CALLS)
    number = 0
    for call, wrong in faults(int(sys.argv[1]), int(sys.argv[2])):
        number += 1
        print(f"{call}\n  {wrong}".encode(errors="replace").decode(), flush=True)
    print(f"{number} of {sys.argv[2]} calls of seed {sys.argv[1]} end wrongly")
    sys.exit(number > 0)
