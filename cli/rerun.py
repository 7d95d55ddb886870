"""Repeat the command that a file was made by."""

from __future__ import annotations

import click

from ppsim.cli._options import make_command

# Those that only compute. Others measure, start processes or serve, or run code of the user's.
REPEATED = {"compare", "convert", "diff", "explain", "jitter", "layout", "memory", "model", "optimize", "partition"}
REPEATED |= {"plan", "run", "sweep"}
CODE = ("--module", ".py")


@make_command("rerun")
@click.argument("file", type=click.Path())
@click.option("--output", "-o", multiple=True, metavar="FILE", help="Write there, and not to FILE itself.")
@click.option("--print", "only_print", is_flag=True, help="Print the command, and run nothing.")
def command(file: str, output: tuple[str, ...], only_print: bool) -> None:
    """Repeat the command that FILE was made by, and write FILE again.

    Files of ppsim say how they were made: figures, pages, JSON, traces, Mermaid text and tables. Equal inputs give
    equal bytes, so a file of the same version comes out as it was. torch's CSV of a schedule has no place for it: write
    the JSON in the same command (-o x.csv -o x.json) and repeat that.

    \b
      ppsim rerun gallery/1f1b.svg -o again.svg
    """
    import shlex

    from ppsim.cli import group
    from ppsim.errors import InputError
    from ppsim.files.provenance import read_inputs
    from ppsim.version import VERSION

    inputs = read_inputs(file)
    line = inputs["command"]
    if only_print:
        click.echo(line)
        return
    try:
        program, name, *words = shlex.split(line)
    except ValueError:
        program, name, words = "", "", []
    if program != "ppsim" or name not in REPEATED:
        raise InputError(f"'{file}' was made by '{line}', which is not repeated", "run it by hand, if you trust it")
    if any(word.startswith(CODE[0]) or CODE[1] in word for word in words):
        raise InputError(f"'{file}' was made by '{line}', which runs code", "run it by hand, if you trust it")
    click.echo(line, err=True)
    if (made_by := inputs.get("ppsim")) != VERSION:
        click.echo(f"it was made by ppsim {made_by}; this is {VERSION}", err=True)
    targets = [word for target in output or (file,) for word in ("-o", target)]
    group.main([name, *words, *targets], prog_name="ppsim", standalone_mode=False)
