"""Look at measured profiles and compare them."""

import click

from ppsim.cli._command import ask_command
from ppsim.cli._help import debug, help_all
from ppsim.questions.runs import profile


@click.group("profile")
def command() -> None:
    """Look at measured profiles and compare them.

    \b
      ppsim profile show profile.toml
      ppsim profile diff before.toml after.toml
    """


command.params += [help_all(), debug()]
command.add_command(ask_command(profile.ProfileRequest, profile.answer), "show")
command.add_command(ask_command(profile.ProfileDiffRequest, profile.answer_diff), "diff")
