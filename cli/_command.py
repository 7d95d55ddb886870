"""A command made of a question: its options from the request, its output from the answer."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ppsim.ask import terminal
from ppsim.ask.answer import Answer
from ppsim.ask.given import TypedOptions
from ppsim.ask.groups import OutputOptions, output_of
from ppsim.ask.options import Option, Request, flatten, list_options, make
from ppsim.ask.rules import check_given, list_refused
from ppsim.ask.types import OptionalValue
from ppsim.ask.write import find_targets, write_with
from ppsim.base.text import guess_of, shorten
from ppsim.cli._help import HELP_ALL, debug, help_all
from ppsim.cli._streams import ReaderGone
from ppsim.errors import InputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

R = TypeVar("R", bound=Request)


# Names of options in Megatron-LM, torchtitan and habit, with ppsim's name.
ELSEWHERE = {
    "-p": "--devices",
    "--pipeline-model-parallel-size": "--devices",
    "--parallelism.pipeline_parallel_degree": "--devices",
    "--num-virtual-stages-per-pipeline-rank": "--chunks",
    "--pipeline-model-parallel-layout": "--layout",
    "--microbatch-group-size-per-virtual-pipeline-stage": "--group-size",
    "--parallelism.pipeline_parallel_schedule": "--schedule",
    "--num-microbatches": "--mb",
    "--tensor-model-parallel-size": "--tp",
    "--context-parallel-size": "--cp",
    "--expert-model-parallel-size": "--ep",
    "--micro-batch-size": "--mbs",
    "--global-batch-size": "--gbs",
    "--seq-length": "--seq",
}

GLOBAL_BATCH = (
    "A schedule has the microbatches of one replica: --mb = global batch / (replicas x sequences "
    "in a microbatch)"
)

# Options that ppsim lacks, in all commands or in one, with the option to use instead.
OTHERWISE = {
    "memory --cluster": "Memory needs no cluster: --model and --tp say how much a GPU holds, and "
    "--cap, such as 80GiB, how much fits. ppsim run takes a cluster",
    "partition --cluster": "A layer takes --t-layer or the times of --profile, and the memory of a "
    "GPU is --cap, such as 80GiB. ppsim plan chooses a layout for a model on a cluster",
    "--gbs": GLOBAL_BATCH,
    "--global-batch-size": GLOBAL_BATCH,
    "--optimizer": "Memory counts Adam's states, 12 bytes a parameter: a copy in 32 bits and two "
    "moments. ppsim model and plan count moments in 16 bits with --moment-precision bf16",
}


class Question(click.Command):
    """The command of a request; its short help lists the common options by section."""

    def __init__(self, request: type[Request], run: Callable[[click.Context, Any], None]) -> None:
        hidden = list_refused(request)
        self.declared = tuple(each for each in list_options(request) if not each.is_object)
        params = [make_parameter(each, hidden=each.name in hidden) for each in self.declared]
        name, text = request.question, inspect.getdoc(request)

        @click.pass_context
        def callback(ctx: click.Context, /, **values: Any) -> None:
            given = [
                name
                for name in values
                if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE
            ]
            asked_request = make(request, values, given)
            check_given(TypedOptions.from_request(asked_request))
            run(ctx, asked_request)

        super().__init__(name, params=params, callback=callback, help=text)
        self.silent = [help_all(), debug()]
        self._all_params: list[click.Parameter] = []
        self._parser: Any = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, but suggest the closest name of an option, or ppsim's name for one
        of another tool, and refuse an option of one value that is given twice.
        """
        words = [*spell_out(self.get_params(ctx), args)]
        try:
            if not ctx.resilient_parsing:
                refuse_twice(self.make_parser(ctx).parse_args(list(words))[2])
            return super().parse_args(ctx, words)
        except click.NoSuchOption as error:
            typed = error.option_name.partition("=")[0]
            advice = self._advice(typed)
            raise InputError(
                f"there is no option '{shorten(typed)}'{advice and '. ' + advice}",
                f"{ctx.command_path} --help-all",
            ) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # so that the message names the command's help
            raise

    def _advice(self, typed: str) -> str:
        """Return a sentence on an option that does not exist: what to do without it, or the name
        that was meant; empty if there is none.
        """
        if advice := OTHERWISE.get(f"{self.name} {typed}") or OTHERWISE.get(typed):
            return advice
        known = [word for param in self.params for word in param.opts]
        ours = ELSEWHERE.get(typed)
        if ours in known:
            return f"Did you mean '{ours}'?"
        return guess_of(typed, known, cutoff=0.7).strip() if typed.startswith("--") else ""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters of the question, then the parameters that only the command has;
        click looks at each of them, once.
        """
        if not self._all_params:
            self._all_params = [*super().get_params(ctx), *self.silent]
        return self._all_params

    def make_parser(self, ctx: click.Context) -> Any:
        """Return the parser for this context: made once, as making it takes longer than parsing."""
        if self._parser is None:
            self._parser = super().make_parser(ctx)
        self._parser.ctx = ctx
        return self._parser

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by section, and rare ones only with --help-all."""
        everything, rare = ctx.meta.get(HELP_ALL, False), 0
        sections: dict[str, list[tuple[str, str]]] = {}
        for each, param in zip(self.declared, self.params, strict=True):
            if not each.is_argument and (row := param.get_help_record(ctx)):
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


def make_parameter(declared: Option, *, hidden: bool = False) -> click.Parameter:
    """Return click's parameter of a declared option; a hidden one is not in the help."""
    offers = partial(_list_offers, declared)
    if declared.is_argument:
        return click.Argument(
            [declared.name],
            type=declared.type,
            shell_complete=offers,
            **{"required": False, **declared.settings},
        )
    spellings, settings = [*declared.spellings, declared.name], dict(declared.settings)
    if not settings.get("required"):  # for click, an option with a default is never missing
        settings["default"] = declared.default
    return click.Option(
        spellings,
        type=declared.type,
        help=declared.help,
        hidden=hidden,
        shell_complete=offers,
        **settings,
    )


def _list_offers(
    declared: Option, ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """List the values of an option that a shell offers for a word."""
    from ppsim.cli._offers import list_offers

    return list_offers(declared, ctx, param, incomplete)


def spell_out(params: Sequence[click.Parameter], args: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command line, with a value added to options that stand alone."""
    optional = {
        word: each.type
        for each in params
        for word in each.opts
        if isinstance(each.type, OptionalValue)
    }
    for word, following in zip_longest(args, args[1:], fillvalue=""):
        kind = optional.get(word)
        yield f"{word}={kind.bare_value}" if kind and not kind.begins(following) else word


def refuse_twice(given: Sequence[click.Parameter]) -> None:
    """Raise InputError for an option of one value that is given several times."""
    for param, count in Counter(given).items():
        if count < 2 or not isinstance(param, click.Option) or param.multiple:
            continue
        if not param.is_flag or param.secondary_opts:
            spelling = param.opts[0].partition("/")[0]
            raise InputError(f"{spelling} is given twice, and takes one value", "give it once")


def ask_command(request: type[R], answer: Callable[[R], Answer[Any] | None]) -> Question:
    """Return the command of a question: it writes every -o of the answer, and prints it."""

    def run(ctx: click.Context, asked_request: Any) -> None:
        output = output_of(asked_request)
        if isinstance(output, OutputOptions):
            find_targets(output, tables=request.tables)
        asked_request.check()
        found = answer(asked_request)
        if found and (code := show(found, output, flatten(asked_request))):
            ctx.exit(code)

    return Question(request, run)


def show(found: Answer[Any], output: Any, face: Mapping[str, Any]) -> int:
    """Write the files of an answer, print it, and return the exit code.

    If a file cannot be written, nothing is printed. But an answer with new measurements is printed
    before its files are written.
    """
    writers = found.writers(output) if output.output else []
    if found.is_irreplaceable:
        _print(found, output, face)
    with write_with(writers):
        if not found.is_irreplaceable:
            _print(found, output, face)
    for target, _ in writers:
        if target != "-":
            click.echo(f"wrote {target}", err=True)
    if failure := found.error_after_output():
        raise failure
    return found.exit_code


def _print(found: Answer[Any], output: Any, face: Mapping[str, Any]) -> None:
    """Print an answer as --json and --quiet ask, unless -o - writes to standard output; then its
    notes on standard error.
    """
    with suppress(ReaderGone):  # files are written even if the reader of a pipe is gone
        if face.get("as_json"):
            from ppsim.base.json_output import dump_json

            click.echo(dump_json(found.whole_object()).decode())
        elif "-" not in output.output:
            terminal.show(found.line() if face.get("quiet") else found.all_blocks())
    for text in found.notes():
        terminal.echo_wrapped(text, err=True)
