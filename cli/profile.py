"""Look at measured profiles and compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppsim.cli._fit import echo_wrapped
from ppsim.cli._options import Checked, json_option

if TYPE_CHECKING:
    from ppsim.profiles.profile import Profile


@click.group("profile")
def command() -> None:
    """Look at measured profiles and compare them.

    \b
      ppsim profile show profile.toml
      ppsim profile diff before.toml after.toml
    """


@command.command("show", cls=Checked)
@click.argument("file", type=click.Path())
@json_option
def show_command(file: str, as_json: bool) -> None:
    """Print what a profile holds."""
    from ppsim.profiles.profile import read

    show(read(file), file, as_json)


@command.command("diff", cls=Checked)
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@json_option
def diff_command(before: str, after: str, as_json: bool) -> None:
    """Print how two profiles differ: settings, and each time as a ratio with whether the spreads overlap."""
    from dataclasses import asdict

    from ppsim.base.text import one_line
    from ppsim.cli._print import echo_json
    from ppsim.profiles.profile import read
    from ppsim.profiles.text import diff_lines, differences

    found = differences(read(before), read(after))
    if as_json:
        echo_json({"schema": "ppsim.profile-diff/1", "before": before, "after": after, **asdict(found)})
        return
    for line in diff_lines(found, before, after):
        click.echo(one_line(line))


def show(profile: Profile, file: str, as_json: bool = False, quiet: bool = False) -> None:
    """Print a profile as text, as one line, or as one JSON object."""
    from dataclasses import asdict

    from ppsim.base.text import one_line
    from ppsim.cli._print import echo_json
    from ppsim.profiles.text import lines, result_line, summary

    if as_json:
        echo_json({"schema": "ppsim.profile-summary/1", "file": file, **asdict(profile), "summary": summary(profile)})
    elif quiet:
        echo_wrapped(result_line(profile))
    else:
        for line in lines(profile):
            echo_wrapped(one_line(line), 4)
