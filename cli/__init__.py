"""The command line: one module per command, found by its file's name and imported when it is used.

A module here whose name does not begin with an underscore holds one click command named ``command``, and the first
line of its docstring is what the list of commands says about it.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from ppsim.errors import PpsimError
from ppsim.version import VERSION

EPILOG = "Exit codes: 0 done, 1 the answer is no, 2 bad usage or unreadable input, 3 something is not installed."


class Commands(click.Group):
    """The group of all commands, loaded on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name, sorted."""
        files = map(os.path.splitext, os.listdir(__path__[0]))
        return sorted(name for name, suffix in files if suffix == ".py" and not name.startswith("_"))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name."""
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{name}").command
        command.short_help = _summary(name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, but importing no command: all of them together take longer than everything else."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> object:
        """As click does, but a closed pipe reaches :func:`main`: click and rich each make an exit with 1 of it."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, SystemExit) as error:
            if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
                raise _Closed from error
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the closest name where there is no such command."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            import difflib

            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            guess = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{args[0]}'.{guess}")
        return super().resolve_command(ctx, args)


class _Closed(Exception):
    """Whoever read standard output has gone."""


def _summary(name: str) -> str:
    """The first line of a command's module, which is read as text and not run."""
    with open(os.path.join(__path__[0], f"{name}.py"), encoding="utf-8") as source:
        return source.readline().strip().strip('"')


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="ppsim")
def group() -> None:
    """Simulate, measure and draw pipeline-parallel training schedules.

    \b
      ppsim run --schedule 1f1b --stages 4 --mb 8
      ppsim compare gpipe 1f1b interleaved zb-1p --devices 4 --mb 8
    """


def main() -> None:
    """Run the command line and exit: errors are one message on stderr, never a traceback."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="replace")
    try:
        code = group.main(prog_name="ppsim", standalone_mode=False) or 0
        if sys.stdout:
            sys.stdout.flush()
    except PpsimError as error:
        _complain(str(error), error.hint)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        code = 130
    except (BrokenPipeError, _Closed):
        # The reader has what it wanted; keep the interpreter's own flush from failing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError:
        _complain("not enough memory for a run of this size", "fewer microbatches or stages")
        code = 1
    except OSError as error:
        where = f" '{error.filename}'" if error.filename else ""
        _complain(f"{error.strerror or error}{where}", "check the path, its permissions and the room on its disk")
        code = 2
    sys.exit(code)


def _complain(message: str, hint: str) -> None:
    click.echo(f"Error: {message}" + (f"\n  try: {hint}" if hint else ""), err=True)
