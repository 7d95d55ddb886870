"""From declared options to click's: a command for a request, and decorators for commands that have none yet."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import click
from click.core import ParameterSource

from ppsim.questions.given import Given
from ppsim.questions.groups import CostOptions
from ppsim.questions.options import Option, list_options
from ppsim.questions.rules import check_given, list_refused
from ppsim.questions.types import MayStandAlone


def make_parameter(declared: Option, *, hidden: bool = False) -> click.Parameter:
    """Make click's parameter of a declared option; a hidden one is not in the help."""
    if declared.is_argument:
        return click.Argument([declared.name], type=declared.type, **{"required": False, **declared.settings})
    spellings = [*declared.spellings, declared.name]
    return click.Option(
        spellings,
        type=declared.type,
        default=declared.default,
        help=declared.help,
        hidden=hidden,
        **declared.settings,
    )


def declared_of(param: click.Parameter) -> Option:
    """What a parameter of click's would be declared as, for those that are not declared."""
    spellings = ("/".join([param.opts[0], *param.secondary_opts[:1]]),) if isinstance(param, click.Option) else ()
    settings = {"metavar": param.metavar or param.opts[0], "multiple": getattr(param, "multiple", False)}
    return Option(param.name or "", spellings, param.type, None, "", "", False, settings)


# What Megatron-LM, torchtitan and short memory call our options.
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


class Checked(click.Command):
    """A command whose options are held to the table of what needs what before it runs.

    Attributes:
        declared: its options, where a question declares them.
        tables: whether its -o writes tables too.
    """

    declared: tuple[Option, ...] = ()
    tables = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, naming what others call an option, then refuse options that would have no effect."""
        try:
            rest = super().parse_args(ctx, [*spell_out(self.get_params(ctx), args)])
        except click.NoSuchOption as error:
            ours = ELSEWHERE.get(error.option_name.partition("=")[0])
            if not ours or all(ours not in param.opts for param in self.params):
                raise
            message = f"No such option '{error.option_name}'. Did you mean '{ours}'?"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None
        if not ctx.resilient_parsing:
            check_given(given_in(ctx))
        return rest


def spell_out(params: Sequence[click.Parameter], args: Sequence[str]) -> Iterator[str]:
    """Give options that may stand alone the value they have then, where no value of theirs follows."""
    optional = {word: each.type for each in params for word in each.opts if isinstance(each.type, MayStandAlone)}
    for word, following in zip_longest(args, args[1:], fillvalue=""):
        kind = optional.get(word)
        yield f"{word}={kind.alone}" if kind and not kind.begins(following) else word


def given_in(ctx: click.Context) -> Given:
    """What a call of a command gives."""
    command = ctx.command
    assert isinstance(command, Checked)
    options = command.declared or [declared_of(each) for each in command.params if each.name in ctx.params]
    typed = [each for each in options if ctx.get_parameter_source(each.name) == ParameterSource.COMMANDLINE]
    return Given(command.name or "", ctx.params, typed, command.tables)


def make_command(name: str) -> Callable[[Callable[..., Any]], Checked]:
    """Make a function a command of that name, whose help leaves out the options that it always refuses."""

    def decorate(function: Callable[..., Any]) -> Checked:
        command, refused = click.command(name, cls=Checked)(function), list_refused(name)
        for param in command.params:
            if isinstance(param, click.Option) and param.name in refused:
                param.hidden = True
        return command

    return decorate


def take(name: str, group: type[Any]) -> Callable[[Any], Any]:
    """Take a declared group; the command gets it in the argument ``name``."""
    options = tuple(each for each in list_options(group) if not each.is_object)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_group(*args: Any, **values: Any) -> Any:
            made = group(**{each.name: values.pop(each.name) for each in options})
            return function(*args, **{name: made}, **values)

        with_group.__click_params__ = [  # type: ignore[attr-defined]
            *getattr(function, "__click_params__", []),
            *reversed([make_parameter(each) for each in options]),
        ]
        return with_group

    return decorate


cost_options = take("costs", CostOptions)
