"""The further figures of a gallery: a TOML list of commands, each with what it shows, and their
pictures.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ppsim.base.text import shell_line
from ppsim.base.toml import RefusedValue, read
from ppsim.errors import InputError

SCHEMA = "ppsim.figures/1"
TERMINAL = ".terminal.svg"
COLUMNS = "100"
COLOURED = {
    "COLUMNS": COLUMNS,
    "FORCE_COLOR": "1",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
}
# Pages and commands that take long are not drawn inside the index.
PICTURES = (".svg", ".png", ".gif")
WIDEST = 92  # letters of a line of a command, which pages of words show whole


@dataclass(frozen=True)
class FigureEntry:
    """One figure of the list.

    Attributes:
        file: its name in the gallery; one that ends in ``.terminal.svg`` is what the command prints
            in a terminal.
        title: its heading.
        command: the words after ``ppsim``, without ``-o``.
        see: one sentence of what to see in it.
        alt: the picture in words.
    """

    file: str
    title: str
    command: str
    see: str
    alt: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w-]*(\.\w+)+", self.file):
            raise RefusedValue(
                "file", f"must be a name without a folder, such as a.svg, got {self.file!r}"
            )
        try:
            words = self.words
        except ValueError as error:
            raise RefusedValue("command", f"is no command line: {error}") from error
        if not words or any(re.match("-o|--output", word) for word in words):
            raise RefusedValue(
                "command", f"must be the words after ppsim, without -o, got {self.command!r}"
            )

    @property
    def words(self) -> list[str]:
        """The words of the command."""
        return shlex.split(self.command)

    @property
    def line(self) -> str:
        """The command for a shell, which takes each word as it is."""
        return shell_line(["ppsim", *self.words])


@dataclass(frozen=True)
class FigureList:
    """The file: figures in the order in which the index shows them."""

    figure: tuple[FigureEntry, ...] = ()

    def __post_init__(self) -> None:
        twice = [
            name for name, times in Counter(each.file for each in self.figure).items() if times > 1
        ]
        if twice:
            raise RefusedValue("figure", f"must have a file each, got {twice[0]!r} twice")


def read_figures(path: str) -> tuple[FigureEntry, ...]:
    """Read a list of figures."""
    return read(
        path, FigureList, SCHEMA, "and a [[figure]] for each: file, title, command, see, alt"
    ).figure


def draw_entry(entry: FigureEntry, folder: Path) -> None:
    """Run the command of a figure, with its file in ``folder``; raises what the command raises."""
    target = str(folder / entry.file)
    if entry.file.endswith(TERMINAL):
        return _draw_terminal(entry, target)
    name, *rest = entry.words
    run_quietly([name, "-o", target, *rest])
    return None


def run_quietly(words: list[str]) -> None:
    """Run a command for the files that it writes; raises what the command raises."""
    from ppsim.cli import group

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        group.main(words, prog_name="ppsim", standalone_mode=False)


def _draw_terminal(entry: FigureEntry, target: str) -> None:
    """Draw what a command prints in a terminal of 100 columns, as svg."""
    from rich.console import Console
    from rich.terminal_theme import DIMMED_MONOKAI
    from rich.text import Text

    from ppsim.base.atomic_file import open_atomically

    environment = {**os.environ, **COLOURED, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("NO_COLOR", None)
    shown = subprocess.run(
        # -P: no module of the folder that one stands in
        [sys.executable, "-P", "-m", "ppsim", *entry.words],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if shown.returncode:
        raise InputError(f"'{entry.line}' ended with {shown.returncode}: {shown.stderr.strip()}")
    console = Console(record=True, width=int(COLUMNS), file=io.StringIO(), color_system="truecolor")
    console.print(Text.from_ansi(f"$ {entry.line}\n{shown.stdout.rstrip()}"), soft_wrap=True)
    picture = console.export_svg(
        title="ppsim", theme=DIMMED_MONOKAI, unique_id="ppsim", code_format=_without_fonts()
    )
    with open_atomically(target) as out:
        out.write(picture.encode())


def _without_fonts() -> str:
    """Rich's svg without the fonts that it would load from the network."""
    from rich._export_format import CONSOLE_SVG_FORMAT

    return re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def fold_command(line: str, before: str) -> str:
    """Break a command's line where it is wider than pages of words, each option beside its value;
    ``before`` each.
    """
    words = re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+", line)
    lines = [before]
    while words:
        pair = len(words) > 1 and words[0].startswith("-") and not words[1].startswith("-")
        part = " ".join(words.pop(0) for _ in range(1 + pair))
        if len(lines[-1]) + len(part) > WIDEST and lines[-1].strip():
            lines[-1] += " \\"
            lines.append(f"{before}    {part}")
        else:
            lines[-1] += f" {part}" if lines[-1].strip() else part
    return "\n".join(lines)


def photograph_of(entry: FigureEntry) -> str:
    """The picture of a page in a browser, where the page has words for it; empty for others."""
    return (
        f"readme/{Path(entry.file).stem}.png"
        if entry.alt and not entry.file.endswith(PICTURES)
        else ""
    )


def entry_section(entry: FigureEntry) -> str:
    """A figure's part of the index: heading, what to see, picture or link, command."""
    page = None if entry.file.endswith(PICTURES) else entry.file
    drawn = f'<img alt="{entry.alt}" src="{photograph_of(entry) or entry.file}" width="100%">'
    picture = f'<a href="{page}">{drawn if entry.alt else page}</a>' if page else drawn
    output = "" if entry.file.endswith(TERMINAL) else f" -o {entry.file}"
    command = fold_command(entry.line + output, "    ")
    return f"## {entry.title}\n\n{entry.see}\n\n{picture}\n\n{command}\n"


def differing(folder: Path, drawn: Path) -> list[str]:
    """Name what differs between a gallery and one drawn afresh, changed or missing.

    Pictures of pixels depend on the libraries that draw them; only whether they are there is
    compared.
    """
    found = []
    for path in sorted(drawn.iterdir()):
        kept = folder / path.name
        if not kept.exists():
            found.append(f"{path.name}: missing")
        elif path.suffix not in (".png", ".gif", ".pdf") and _plain(kept) != _plain(path):
            found.append(f"{path.name}: changed")
    return found


def _plain(path: Path) -> str:
    """A file's text without the version that wrote it."""
    return re.sub(
        r'(?<="ppsim": ")[^"]*|(?<="ppsim":")[^"]*|(?<=<dc:title>ppsim )[^<]*', "", path.read_text()
    )
