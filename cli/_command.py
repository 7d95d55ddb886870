"""A command made of a question: its options from the request, its output from the answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ppsim.cli._help import HELP_ALL, help_all
from ppsim.cli._options import Checked, make_parameter
from ppsim.cli._streams import ReaderGone
from ppsim.questions import terminal
from ppsim.questions.answer import Answer
from ppsim.questions.groups import OutputOptions, output_of
from ppsim.questions.options import Request, flatten, list_options, make
from ppsim.questions.rules import list_refused
from ppsim.questions.write import find_targets, write_with

R = TypeVar("R", bound=Request)


class Question(Checked):
    """The command of a question; its short help has the common options, under the headings of their sections."""

    def __init__(self, request: type[Request], run: Callable[[click.Context, Any], None]) -> None:
        declared, hidden = list_options(request), list_refused(request.question)
        self.declared, self.tables = tuple(each for each in declared if not each.is_object), request.tables
        params = [make_parameter(each, hidden=each.name in hidden) for each in self.declared]
        name, text = request.question, inspect.getdoc(request)

        @click.pass_context
        def callback(ctx: click.Context, /, **values: Any) -> None:
            given = [name for name in values if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE]
            run(ctx, make(request, values, given))

        super().__init__(name, params=params, callback=callback, help=text)
        self.retired = [click.Option([each], is_flag=True, expose_value=False, hidden=True) for each in request.retired]
        self.help_all = help_all()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters of the question, and those that ask nothing of it."""
        return [*super().get_params(ctx), *self.retired, self.help_all]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options under their headings, the rare ones only with --help-all."""
        everything, rare = ctx.meta.get(HELP_ALL, False), 0
        sections: dict[str, list[tuple[str, str]]] = {}
        for each, param in zip(self.declared, self.params, strict=False):  # --debug follows
            if row := param.get_help_record(ctx):
                rows = sections.setdefault(each.section, [])
                if each.common or everything:
                    rows.append(row)
                else:
                    rare += 1
        for section, rows in sections.items():
            if rows:
                with formatter.section(section or "Options"):
                    formatter.write_dl(rows)
        more = [("-h, --help", "Show this message and exit.")]
        if rare or everything:
            more.append(("--help-all", f"Show all options{f', {rare} more' if rare else ''}."))
        with formatter.section("Help"):
            formatter.write_dl(more)


def ask_command(request: type[R], answer: Callable[[R], Answer | None]) -> Question:
    """Make the command of a question: it asks, writes every -o, and prints the answer if there is one."""

    def run(ctx: click.Context, asked: Any) -> None:
        output = output_of(asked)
        if isinstance(output, OutputOptions):
            find_targets(output, tables=request.tables)
        asked.check()
        found = answer(asked)
        if found and (code := show(found, output, flatten(asked))):
            ctx.exit(code)

    return Question(request, run)


def show(found: Answer, output: Any, face: Mapping[str, Any]) -> int:
    """Write the files of an answer and print it; where a file cannot be written, nothing is printed.

    What was measured, and cannot be had again, is printed first.
    """
    writers = found.writers(output) if output.output else []
    if found.measured:
        _print(found, output, face)
    with write_with(writers):
        if not found.measured:
            _print(found, output, face)
    for target, _ in writers:
        if target != "-":
            click.echo(f"wrote {target}", err=True)
    if failure := found.failure():
        raise failure
    return found.exit_code


def _print(found: Answer, output: Any, face: Mapping[str, Any]) -> None:
    """Print the answer as asked for, where standard output is not a file's, and what is said beside it."""
    with suppress(ReaderGone):  # which takes no files with it
        if face.get("as_json"):
            terminal.echo_json(found.to_json())
        elif "-" not in output.output:
            terminal.show(found.line() if face.get("quiet") else found.blocks())
    for text in found.notes():
        click.echo(text, err=True)
