"""Options of the group and of every command: the whole help, and where errors come from."""

from __future__ import annotations

import click

HELP_ALL = "ppsim.help_all"


def _show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def help_all() -> click.Option:
    """Make --help-all, which is not listed among the options."""
    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=_show
    )


def debug() -> click.Option:
    """Make --debug for commands, which the group's help lists."""
    return click.Option(["--debug"], is_flag=True, expose_value=False, hidden=True)
