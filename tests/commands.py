"""ppsim's command line as tests call it: inside this process, or as a process of its own."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
from click.testing import CliRunner, Result

from ppsim.cli import _run as run_and_explain
from ppsim.cli import group
from ppsim.errors import PpsimError
from tests.clock import HANG_S

ROOT = Path(__file__).parents[1]
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1"}
# What processes of tests run with: this source tree, in lines of a fixed width.
SOURCE = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}

# A command, for ``python -c``, that writes its results file with the first row.
KEPT_AT_ONCE = """
from ppsim.base import results
from ppsim.cli import main

results.EVERY_S = 0.0
if __name__ == "__main__":
    main()
"""


def invoke(*words: str, text: str = "", env: dict[str, str] | None = None) -> Result:
    """Run a command in this process: its output, its exit code and the exception it ended with."""
    return CliRunner().invoke(group, words, input=text, env=PLAIN | (env or {}))


def screen_of(command: str, columns: int, **env: str) -> list[str]:
    """Return the lines that a command prints on a terminal of this width, without colours."""
    found = invoke(
        *command.split(),
        env={"COLUMNS": str(columns), "FORCE_COLOR": "1", "TERM": "xterm-256color", **env},
    )
    assert not found.exit_code, found.output
    assert "\x1b[" in found.stdout
    return re.sub(r"\x1b\[[\d;]*m", "", found.stdout).splitlines()


def refused(*words: str) -> PpsimError:
    """Return the error that a command ends with; fail if it ends without one."""
    result = invoke(*words)
    assert isinstance(result.exception, PpsimError), (result.exception, result.output)
    return result.exception


def answer(*words: str) -> tuple[int, str, str]:
    """Run a command in this process as its entry does: exit code, standard output and standard
    error.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["ppsim", *words]):
        code = run_and_explain()
    return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


def answers_with(package: str, folder: Path, lines: Sequence[Sequence[str]]) -> list[Any]:
    """Return what :func:`answer` says of command lines in an interpreter whose scan of a package
    finds the files of one more folder.
    """
    code = (
        f"import importlib, json, sys; sys.path.append({str(ROOT)!r})\n"
        f"importlib.import_module({package!r}).__path__.append({str(folder)!r})\n"
        "from tests.commands import answer\n"
        "print(json.dumps([answer(*line) for line in json.load(sys.stdin)]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    found: list[Any] = json.loads(ran.stdout)
    return found


def process(
    *words: str, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, in a process of its own."""
    command = [sys.executable, "-m", "ppsim", *words]
    environment = SOURCE | (env or {})
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        timeout=HANG_S,
        check=False,
        **options,
    )


def start_command(
    *words: str,
    how: Sequence[str] = ("-m", "ppsim"),
    env: dict[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[str]:
    """Start a command in a session of its own; its errors can be read."""
    return subprocess.Popen(
        [sys.executable, *how, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=SOURCE | (env or {}),
        start_new_session=True,
        **options,
    )


def with_options(words: Sequence[str], more: Sequence[str]) -> list[str]:
    """A command line with options, each in place of the value that it had, as a user edits the
    line.
    """
    command = group.get_command(click.Context(group), words[0])
    assert command
    kept = list(words)
    for option in more:
        param = next((each for each in command.params if option in each.opts), None)
        if param and not (isinstance(param, click.Option) and param.multiple):
            for at in [at for at, word in enumerate(kept) if word in param.opts]:
                del kept[at : at + 2]
    return [*kept, *more]
