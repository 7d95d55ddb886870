"""Look at measured profiles and compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ppsim.cli._fit import echo_wrapped
from ppsim.cli._options import Checked, json_option

if TYPE_CHECKING:
    from ppsim.profiles.profile import Profile
    from ppsim.profiles.text import Differences


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
    from ppsim.profiles.text import differences

    found = differences(read(before), read(after))
    if as_json:
        echo_json({"schema": "ppsim.profile-diff/1", "before": before, "after": after, **asdict(found)})
        return
    _print_differences(found, one_line(before), one_line(after))


def _print_differences(found: Differences, before: str, after: str) -> None:
    """The settings that differ, the times that do, the largest change first, and how many do not."""
    from ppsim.cli._fit import print_table
    from ppsim.profiles.text import differing

    echo_wrapped([(before, "name"), " -> ", (after, "name")])
    for name, (old, new) in found.settings.items():
        echo_wrapped([(f"  {name}: ", "quiet"), f"{old} -> {new}"], 4)
    changed = differing(found)
    if changed:
        rows = [
            (
                row.what,
                f"{row.before_ms:.3f}",
                f"{row.after_ms:.3f}",
                f"{row.ratio:.2f}",
                "" if row.overlap else "apart",
            )
            for row in changed
        ]
        print_table(
            ["", "before\nms", "after\nms", "\nratio", "\nspreads"],
            rows,
            at_least=100,
            spare=["\nspreads"],
            tone=lambda row, column: ("bad" if changed[row].ratio > 1 else "good") if column == 3 else "",
        )
    same = len(found.times) - len(changed)
    echo_wrapped(f"{same} of {len(found.times)} times differ by 5 % at most, within their spreads; --json has all")
    for title, names in (("only before", found.only_before), ("only after", found.only_after)):
        if names:
            echo_wrapped([(f"{title}: ", "quiet"), ", ".join(sorted(names))], 2)


def show(profile: Profile, file: str, as_json: bool = False, quiet: bool = False) -> None:
    """Print a profile as text, as one line, or as one JSON object."""
    from dataclasses import asdict

    from ppsim.cli._print import echo_json
    from ppsim.profiles.text import result_line, summary

    if as_json:
        echo_json({"schema": "ppsim.profile-summary/1", "file": file, **asdict(profile), "summary": summary(profile)})
    elif quiet:
        echo_wrapped(result_line(profile))
    else:
        _print_profile(profile)


def _print_profile(profile: Profile) -> None:
    """What was measured, the table of ops, what follows from it, and a table of messages for each link."""
    from ppsim.base.text import one_line
    from ppsim.cli._fit import print_table
    from ppsim.profiles.text import fit_lines, heading, lines, message_rows, op_rows

    for line in heading(profile):
        echo_wrapped([(one_line(line), "quiet")], 4)
    click.echo()
    rows = op_rows(profile)
    print_table(
        ["op", "median\nms", "p10\nms", "p90\nms", "n", "note"],
        rows,
        at_least=100,
        spare=["n", "p10\nms", "p90\nms"],
        left=["note"],
        tone=lambda row, column: ("", "name", "", "", "quiet", "bad")[column],
    )
    for line in lines(profile):
        echo_wrapped(one_line(line), 4)
    for link in dict.fromkeys(message.link for message in profile.message):
        patterns, sizes = message_rows(profile, link)
        click.echo()
        print_table([f"{link} messages\nms", *(f"\n{pattern}" for pattern in patterns)], sizes, at_least=100)
    for line in fit_lines(profile):
        echo_wrapped(one_line(line), 4)
