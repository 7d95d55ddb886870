"""Guides replayed: their files written, their commands run, and what these print put in place of
what is there.

In a guide, a block fenced as ``console`` holds commands after ``$`` with their output; one fenced
as ``LANG FILE`` is a file; one fenced as ``sh`` holds commands that measure or open something, and
are only parsed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ppsim.cli import group
from ppsim.errors import PpsimError
from tests.commands import invoke

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "gallery" / "guides"
SITE = ROOT / "gallery" / "site"  # whose pages on formats and numbers are run as guides are
_FENCE = re.compile(r"^```(\w*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.\-/])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/])")
# Smaller whole numbers count things and need no proof.
COUNTS = 12


@dataclass(frozen=True)
class Block:
    """A fenced block: what it is, the file it is for, and its text."""

    language: str
    file: str
    text: str


def blocks(guide: str) -> Iterator[Block]:
    """The fenced blocks of a guide, in order."""
    return (Block(*match.groups()) for match in _FENCE.finditer(guide))


def replay(guide: str, folder: Path) -> str:
    """Run a guide in a folder and return it with the outputs of today; pictures are left in the
    folder's ``images``.

    The folder has the repository's ``gallery`` and ``tests`` in it, as a clone has.
    """
    for name in ("gallery", "tests"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    (folder / "images").mkdir(exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        return _FENCE.sub(lambda match: _replayed(match[0], Block(*match.groups())), guide)
    finally:
        os.chdir(before)


def _replayed(whole: str, block: Block) -> str:
    if block.file:
        Path(block.file).write_text(block.text)
    if block.language == "sh":
        for line in block.text.splitlines():
            _parse(line.partition("#")[0])
    if block.language != "console":
        return whole
    # a command goes on after a backslash
    lines = re.findall(r"^\$ (?:.*\\\n)*.*", block.text, re.MULTILINE)
    return "```console\n" + "".join(f"{line}\n{_output(line[2:])}" for line in lines) + "```"


def _output(line: str) -> str:
    program, *words = shlex.split(line.replace("\\\n", " "))
    if program == "python":
        with contextlib.redirect_stdout(io.StringIO()) as text:
            runpy.run_path(words[0])
        return "".join(f"{printed.rstrip()}\n" for printed in text.getvalue().splitlines())
    assert program == "ppsim", line
    result = invoke(*words)
    said = result.output
    if isinstance(result.exception, PpsimError):
        said += f"Error: {result.exception}\n" + f"  try: {result.exception.hint}\n" * bool(
            result.exception.hint
        )
    elif result.exception and not isinstance(result.exception, SystemExit):
        raise AssertionError(line) from result.exception
    return "".join(
        f"{text.rstrip()}\n" for text in said.splitlines() if not text.startswith("wrote ")
    )


def _parse(line: str) -> None:
    program, *words = shlex.split(line) or [""]
    if program != "ppsim":
        return
    command = group.get_command(None, words[0])  # type: ignore[arg-type]
    assert command, line
    command.make_context(words[0], words[1:])


def unproved(guide: str) -> list[str]:
    """The numbers in a guide's prose that none of its commands, files and outputs has."""
    proof = "\n".join(block.text for block in blocks(guide))
    known = set(_NUMBER.findall(proof))
    prose = re.sub(
        r"\]\([^)]*\)|src=.*>|`[^`]*`|arXiv \S+|https?://\S+", " ", _FENCE.sub("", guide)
    )
    return [
        number
        for number in _NUMBER.findall(prose)
        if number not in known and ("." in number or int(number.replace(",", "")) > COUNTS)
    ]
