"""Options of the group and of every command: --help-all and --debug."""

from __future__ import annotations

import click

HELP_ALL = "ppsim.help_all"


def _show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the whole help and exit."""
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def help_all() -> click.Option:
    """Return the option --help-all, which the help does not list among the others."""
    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=_show
    )


def debug() -> click.Option:
    """Return the option --debug for commands; only the group's help lists it."""
    return click.Option(["--debug"], is_flag=True, expose_value=False, hidden=True)
