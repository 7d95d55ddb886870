"""The command line: one module per command, found by its name and imported when it is used.

A command is made of the question of its name, or is the ``command`` of a module here. The first
line of the module's docstring is the command's summary in the list of commands.
"""

from __future__ import annotations

import gc
import importlib
import os
import shlex
import signal
import sys
import traceback
import warnings
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

import click

from ppsim.base.notes import Report, shown
from ppsim.base.signals import first_signal, orderly_end
from ppsim.cli._help import HELP_ALL, help_all
from ppsim.cli._streams import STANDARD_OUTPUT, ReaderGone, repair_streams, silence
from ppsim.errors import InputError, PpsimError
from ppsim.questions import list_questions, module_of, place_of
from ppsim.version import VERSION

__all__ = ["main"]

EPILOG = (
    "Exit codes: 0 done, 1 the answer is no, 2 bad usage or unreadable input, 3 something is not "
    "installed, 4 measurements do not decide, 70 internal error. The environment variable "
    "PPSIM_MAX_SIZE, such as 1GiB, limits the size of files that are read."
)
INTERNAL = 70
# The sections of --help, in their order; each command names the section that lists it.
SECTIONS = (
    "How long a step takes, and which schedule is best",
    "Why, and what would help",
    "What a model needs",
    "Files of schedules and runs",
    "How accurate it is on your machine",
    "Schedules, and a live page",
)
RENAMED = {"describe": "list"}
WIDEST = 300


class Commands(click.Group):
    """The group of all commands, loaded on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names of all commands, sorted."""
        return sorted([*list_questions(), *_own_commands()])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command of a name; None if there is none."""
        name = RENAMED.get(name, name)
        known = name in _own_commands() or module_of(name)
        return _import_command(name) if known else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, but refuse words that are not valid text, which no message could
        show.
        """
        for number, word in enumerate(args, start=1):
            is_text = not any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in word)
            if is_text or ctx.resilient_parsing:
                continue
            from ppsim.base.text import shorten

            reason = f"is not text in {sys.getfilesystemencoding()}"
            if "\0" in word:
                reason = "has a NUL character"
            raise InputError(
                f"word {number} after ppsim, '{shorten(word)}', {reason}",
                "type it again; rename a file of such a name",
            )
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the main commands by section, and others only with --help-all.

        Modules of commands are read, but not imported.
        """
        places = {name: place_of(_source(name)) for name in self.list_commands(ctx)}
        for section in SECTIONS:
            ranks = {
                name: place[1] for name, place in places.items() if place and place[0] == section
            }
            with formatter.section(section):
                formatter.write_dl(
                    [(name, _summary(name)) for name in sorted(ranks, key=ranks.__getitem__)]
                )
        further = [name for name, place in places.items() if place is None]
        with formatter.section("More"):
            listed = [(name, _summary(name)) for name in further]
            formatter.write_dl(
                listed if HELP_ALL in ctx.meta else [("--help-all", f"Show {', '.join(further)}.")]
            )

    def invoke(self, ctx: click.Context) -> object:
        """Run as click does, but let an EOFError reach :func:`main`: click would make it an
        interrupt.
        """
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise _EndOfFile from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command as click does, and suggest the closest name if there is none."""
        if args[:1] == ["help"]:  # "ppsim help run" is "ppsim run --help"
            args = [*args[1:], "--help"]
        is_word = bool(args) and not args[0].startswith("-") and not ctx.resilient_parsing
        if is_word and self.get_command(ctx, args[0]) is None:
            from ppsim.base.text import guess_of, shorten

            if _is_schedule(args[0]):
                raise InputError(
                    f"{args[0]} is a schedule, not a command", f"ppsim run {shlex.join(args)}"
                )
            guess = guess_of(args[0], self.list_commands(ctx))
            raise InputError(
                f"there is no command '{shorten(args[0])}'{guess and '.' + guess}", "ppsim --help"
            )
        return super().resolve_command(ctx, args)


def _is_schedule(word: str) -> bool:
    """Return True if a word names a schedule of the registry; reads no file and runs no code."""
    from ppsim.schedules import find, split_chunks

    try:
        find(split_chunks(word)[0])
    except PpsimError:
        return False
    return True


class _EndOfFile(Exception):
    """A file ended too early."""


@cache
def _import_command(name: str) -> click.Command:
    """Import a command; that of a question is made of the request that its ``answer`` takes."""
    module = importlib.import_module(_module(name))
    if name in _own_commands():
        command: click.Command = module.command
    else:
        from ppsim.cli._command import ask_command

        command = ask_command(
            getattr(module, module.answer.__annotations__["request"]), module.answer
        )
    command.short_help = _summary(name)
    return command


@cache
def _own_commands() -> list[str]:
    """Return the names of commands that are modules of this folder, not questions."""
    return [path.stem for path in Path(__path__[0]).glob("[!_]*.py")]


def _module(name: str) -> str:
    """Return the full name of a command's module."""
    return f"{__name__}.{name}" if name in _own_commands() else str(module_of(name))


def _source(name: str) -> str:
    """Return the source of a command's module, without running it."""
    room, *inside = _module(name).split(".")[1:]
    return Path(__path__[0]).parent.joinpath(room, *inside).with_suffix(".py").read_text("utf-8")


def _summary(name: str) -> str:
    """Return the summary of a command: the first line of its module."""
    return _source(name).partition("\n")[0].strip('"')


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="ppsim")
@click.option(
    "--debug", is_flag=True, expose_value=False, help="Show where an internal error comes from."
)
def group() -> None:
    """Simulate, measure and draw pipeline-parallel training schedules.

    \b
      ppsim run 1f1b --stages 4 --mb 8
      ppsim compare gpipe 1f1b interleaved zb-1p --devices 4 --mb 8
    """
    shown.note, shown.progress = _note, _show_progress


group.params.append(help_all())


def _show_progress(wanted: bool = True) -> AbstractContextManager[Report]:
    """Return a context that shows the progress of its block on stderr, if wanted."""
    from ppsim.cli._progress import progress_bar

    return progress_bar(wanted)


def _show_work(what: str) -> AbstractContextManager[None]:
    """Return a context that prints the name of its work if the block takes long."""
    from ppsim.cli._progress import show_line

    return show_line(what)


def main() -> None:
    """Run the command line and exit: an error is one message on stderr, never a traceback."""
    repair_streams()
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    shown.work = _show_work
    with orderly_end():
        code = _run()
        silence()
    # else the interpreter's end searches all objects for cycles, for seconds after large runs
    gc.freeze()
    sys.exit(code)


def _run() -> int:
    """Run the command line and return its exit code."""
    try:
        code = group.main(prog_name="ppsim", standalone_mode=False) or 0
        sys.stdout.flush()
        return 128 + first_signal() if first_signal() else code
    except BaseException as error:
        if first_signal():
            number = signal.Signals(first_signal())
            return _complain(
                "Interrupted." if number == signal.SIGINT else f"Ended by {number.name}.",
                128 + number,
            )
        return _explain(error)


def _explain(error: BaseException) -> int:
    """Print an error as one message, and return the exit code."""
    if isinstance(error, _EndOfFile) and error.__cause__:
        error = error.__cause__
    if isinstance(error, PpsimError):
        return _complain(_message_and_hint(f"Error: {error}", error.hint), error.exit_code)
    if isinstance(error, click.ClickException):
        return _show_refusal(error)
    if isinstance(error, ReaderGone):  # the reader of a pipe has read enough
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if "--debug" in sys.argv or os.environ.get("PPSIM_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return _complain("Interrupted.", 130)
    if isinstance(error, MemoryError):
        return _complain(
            _message_and_hint(
                "Error: not enough memory for a run of this size", "fewer microbatches or stages"
            ),
            2,
        )
    if isinstance(error, OSError):
        return _complain(_describe(error), 2)
    *_, innermost = traceback.walk_tb(error.__traceback__)
    # a full disk may have cut a file of Python's bytecode
    if innermost[0].f_code.co_name == "_compile_bytecode":
        damaged = f"Error: a file of this installation is damaged ({error})"
        return _complain(
            _message_and_hint(damaged, "remove its __pycache__ folders, or install it again"), 3
        )
    from ppsim.base.text import shorten

    if isinstance(error, ImportError) and (error.name or "").split(".")[0] != "ppsim":
        broken = (
            f"Error: a package that ppsim needs cannot be imported: {shorten(str(error), WIDEST)}"
        )
        return _complain(
            _message_and_hint(broken, "install it again, or ppsim in an environment of its own"), 3
        )
    what = shorten(f"{type(error).__name__}: {error}", WIDEST)
    return _complain(
        f"Error: internal error: {what} (a fault of ppsim; please report what --debug prints)",
        INTERNAL,
    )


def _show_refusal(error: click.ClickException) -> int:
    """Print a refusal by click in the form of all errors; errors that show themselves, such as
    help, print unchanged.
    """
    shows_itself = type(error).show not in (click.UsageError.show, click.ClickException.show)
    if shows_itself or not isinstance(error, click.UsageError):
        error.show()
        return error.exit_code
    command = error.ctx.command_path if error.ctx else "ppsim"
    return _complain(
        _message_and_hint(f"Error: {_refusal(error)}", f"{command} --help"), error.exit_code
    )


def _refusal(error: click.UsageError) -> str:
    """Return the message of a refusal by click, in ppsim's words."""
    if isinstance(error, click.NoSuchOption):
        return f"there is no option '{error.option_name}'"
    if isinstance(error, click.BadOptionUsage):
        params = error.ctx.command.params if error.ctx else []
        option = next((each for each in params if error.option_name in each.opts), None)
        is_flag = isinstance(option, click.Option) and option.is_flag
        return f"{error.option_name} {'takes no value' if is_flag else 'needs a value'}"
    if isinstance(error, click.BadParameter) and error.param:
        name = error.param.opts[0].partition("/")[0]
        if isinstance(error.param, click.Argument):
            name = error.param.human_readable_name.removesuffix("...")
        is_missing = isinstance(error, click.MissingParameter)
        return f"{name} is missing" if is_missing else f"{name}: {error.message.rstrip('.')}"
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]


def _describe(error: OSError) -> str:
    """Return the message of an error of the operating system."""
    if error.filename == STANDARD_OUTPUT:
        return _message_and_hint(
            f"Error: cannot write {STANDARD_OUTPUT}: {error.strerror}",
            "leave it open, on a disk with room",
        )
    where = f" '{error.filename}'" if error.filename else ""
    hint = "check the path, its permissions and the room on its disk"
    return _message_and_hint(f"Error: {error.strerror or error}{where}", hint)


def _show_warning(message: Warning | str, *_: object) -> None:
    """Print a library's warning as one line, without its file and line."""
    from ppsim.base.text import shorten

    _warn_once(f"Warning: {shorten(str(message), WIDEST)}")


def _note(text: str) -> None:
    """Print a note on standard error."""
    from ppsim.ask.terminal import echo_wrapped

    echo_wrapped(text, err=True)


@cache
def _warn_once(text: str) -> None:
    """Print a warning; a second time, nothing."""
    _complain(text, 0)


def _message_and_hint(message: str, hint: str) -> str:
    return message + (f"\n  try: {hint}" if hint else "")


def _complain(message: str, code: int) -> int:
    """Print a message on stderr, and return the exit code."""
    from ppsim.base.text import shorten_lines

    text = shorten_lines(message)
    if sys.stderr.isatty():
        from ppsim.ask.terminal import echo_wrapped

        for line in text.splitlines():
            kind, colon, rest = line.partition(": ")
            tone = {"Error": "fault", "Warning": "bad", "  try": "try"}.get(kind, "")
            echo_wrapped([(kind + colon, tone), rest] if tone else line, 7, err=True)
    else:
        click.echo(text, err=True)
    return code
