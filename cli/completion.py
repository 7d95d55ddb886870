"""Print a shell's completion script."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a shell's completion script.

    \b
      ppsim completion bash > ~/.local/share/bash-completion/completions/ppsim
      source <(ppsim completion zsh)
    """
    from click.shell_completion import get_completion_class

    from ppsim.cli import group

    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(completer(group, {}, "ppsim", "_PPSIM_COMPLETE").source())
