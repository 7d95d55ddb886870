"""List all schedules."""

from __future__ import annotations

import click

from ppsim.cli._fit import echo_wrapped
from ppsim.cli._options import json_option, make_command


@make_command("list")
@json_option
def command(as_json: bool) -> None:
    """List all schedules: needs, bubble, peak activations, torch's name.

    \b
      ppsim list
      ppsim list --json
    """
    from ppsim.cli import _print as show
    from ppsim.schedules import families

    if as_json:
        show.echo_json({"schema": "ppsim.list/1", "schedules": [show.family_object(f) for f in families()]})
        return
    for family in families():
        also = f", also {', '.join(family.aliases)}" if family.aliases else ""
        echo_wrapped([(family.name, "name"), (also, "quiet")], 4)
        facts = {
            "needs": show.needs(family),
            "bubble": family.bubble,
            "peak activations": family.peak,
            "torch": family.torch,
        }
        for fact, text in facts.items():
            if text:
                echo_wrapped([(f"    {fact:<18}", "quiet"), text], 22)
    click.echo()
    echo_wrapped(
        "P devices, V stages per device, M microbatches, N group size, K slices of a sequence; times are for a "
        "device's share of the model."
    )
