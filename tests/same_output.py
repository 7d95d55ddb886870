"""Compare what two checkouts print and write: ``python -m tests.same_output ../other`` from the one
with the list.

Some 700 command lines: every base of tests/cli/test_options.py, and each of them with one option as
it is typed there; none that measures. Each checkout runs all in one process; standard output,
standard error, exit code and files are equal byte for byte, or the line is printed with what
differs. Versions, and the seconds of a search, may differ.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MEASURING = ("calibrate", "validate")
CLOCKED = ("optimize",)  # whose answers depend on how fast the machine is where nothing is proved
SLOW = ("--time-limit", "--dask")
# how long a search took, and versions
NEVER_EQUAL = re.compile(r"in [\d.]+ ?m?s\b|[\d.]+ s\b|ppsim [\d.]+\+?\w*")


def list_lines() -> list[list[str]]:
    """List the command lines."""
    from tests.cli.test_options import ONE_BY_ONE, SAMPLES, options_of

    lines = []
    for words in ONE_BY_ONE.values():
        if words[0] not in MEASURING:
            typed = [SAMPLES[name].split() for name in options_of(words) if words[0] not in CLOCKED]
            lines += [
                words,
                [words[0], "--help"],
                *([*words, *each] for each in typed if each[0] not in SLOW),
            ]
    return lines


def run_lines(lines: list[list[str]]) -> list[Any]:
    """Run them in this process, each in an empty folder with one file of queues."""
    from tests.commands import answer

    found = []
    for words in lines:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Path("own.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
            said = [NEVER_EQUAL.sub("", str(part)) for part in answer(*words)]
            files = {
                path.name: path.read_bytes().decode("latin-1") for path in sorted(Path().iterdir())
            }
            found.append([*said, {name: NEVER_EQUAL.sub("", text) for name, text in files.items()}])
            os.chdir(ROOT)
    return found


def run_in(checkout: Path, lines: list[list[str]]) -> list[Any]:
    """Run them with the code of a checkout."""
    code = (
        f"import json, sys; sys.path.append({str(ROOT)!r}); from tests.same_output import "
        f"run_lines as run\n"
    )
    code += (
        f"import ppsim; assert ppsim.__file__ == {str(checkout / 'ppsim' / '__init__.py')!r}, "
        f"ppsim.__file__\n"
    )
    code += "print(json.dumps(run(json.load(sys.stdin))))"
    env = os.environ | {"PYTHONPATH": str(checkout), "COLUMNS": "100", "NO_COLOR": "1"}
    made = subprocess.run(
        [sys.executable, "-P", "-c", code],  # the folder it runs in would come before the checkout
        input=json.dumps(lines),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=env,
        check=True,
    )
    return list(json.loads(made.stdout))


def main() -> None:
    """Print what differs; exit with 1 if anything does."""
    lines = list_lines()
    ours, theirs = (run_in(checkout, lines) for checkout in (ROOT, Path(sys.argv[1]).resolve()))
    differ = [
        (words, one, other)
        for words, one, other in zip(lines, ours, theirs, strict=True)
        if one != other
    ]
    for words, one, other in differ:
        parts = [
            name
            for name, a, b in zip(("exit", "stdout", "stderr", "files"), one, other, strict=True)
            if a != b
        ]
        print(f"ppsim {' '.join(words)}: {', '.join(parts)}")
    print(f"{len(lines) - len(differ)} of {len(lines)} are the same")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
