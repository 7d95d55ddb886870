"""Repeat the command that a file was made by."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import ClassVar

import click

from ppsim.base.text import quote, shorten
from ppsim.cli._command import Question
from ppsim.errors import InputError
from ppsim.questions.options import Request, common, flag, option
from ppsim.version import VERSION


@dataclass(frozen=True, kw_only=True)
class RerunRequest(Request):
    """Repeat the command that FILE was made by, and write FILE again.

    Files of ppsim say how they were made: figures, pages, JSON, traces, Mermaid text and tables. Equal inputs give
    equal bytes, so a file of the same version comes out as it was. torch's CSV of a schedule has no place for it: write
    the JSON in the same command (-o x.csv -o x.json) and repeat that.

    Only what shapes, costs and draws is repeated, and only your -o, or FILE, is written. A command that needs other
    files, runs code or connects is refused, and given for you to run.

    \b
      ppsim rerun gallery/compare.svg -o again.svg
    """

    question: ClassVar[str] = "rerun"
    file: str = option(metavar="FILE", type=click.Path(), required=True)
    targets: tuple[str, ...] = common(
        "--output", "-o", multiple=True, metavar="FILE", help="Write there, and not to FILE itself."
    )
    only_print: bool = flag("--print", help="Print the command, and run nothing.", common=True)


def _rerun(ctx: click.Context, asked: RerunRequest) -> None:
    from ppsim.cli import group
    from ppsim.cli._door import admit, by_hand, shell_line
    from ppsim.show.files.provenance import read_inputs

    file, inputs = asked.file, read_inputs(asked.file)
    try:
        program, *words = shlex.split(inputs["command"])
    except ValueError:
        program, words = "", []
    if program != "ppsim":
        raise InputError(f"'{file}' was made by {quote(inputs['command'])}, which is no command of ppsim")
    line = shell_line(["ppsim", *words])
    if asked.only_print:
        click.echo(line)
        return
    made, (name, *rest) = admit(words, f"'{file}'"), words
    if all(param.name != "output" for param in made.params):
        raise InputError(f"'{file}' was made by '{name}', which writes no file", by_hand(words))
    click.echo(line, err=True)
    if (made_by := inputs.get("ppsim")) != VERSION:
        click.echo(f"it was made by ppsim {shorten(str(made_by))}; this is {VERSION}", err=True)
    targets = [word for target in asked.targets or (file,) for word in ("-o", target)]
    group.main([name, *targets, *rest], prog_name="ppsim", standalone_mode=False)


command = Question(RerunRequest, _rerun)
