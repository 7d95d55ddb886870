"""Print a shell's completion script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import click

from ppsim.ask.options import Request, option
from ppsim.cli._command import Question


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(Request):
    """Print a shell's completion script.

    \b
      ppsim completion bash > ~/.local/share/bash-completion/completions/ppsim
      source <(ppsim completion zsh)
    """

    question: ClassVar[str] = "completion"
    shell: str = option(
        metavar="{bash|zsh|fish}", type=click.Choice(["bash", "zsh", "fish"]), required=True
    )


def _complete(ctx: click.Context, asked: CompletionRequest) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    from ppsim.cli import group

    completer = get_completion_class(asked.shell)
    assert completer
    click.echo(completer(group, {}, "ppsim", "_PPSIM_COMPLETE").source())


command = Question(CompletionRequest, _complete)
