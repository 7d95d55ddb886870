"""Options of what really computes: the transformer of calibrate and validate, or the user's own stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ppsim.cli._types import COUNT

NONE_OR_MORE = click.IntRange(min=0)

# What stands for ``{module}`` in the help of a command.
MODULE = """--module takes the stages from a Python file. Its function gets the number of a stage, how many there are,
    and cpu or cuda, and returns a torch module and an example input, one tensor; torch's seed is the stage's number. A
    stage's output is the next one's input, of one shape and dtype; the last stage returns its loss, or a tensor whose
    mean square is the loss. Microbatch m gets the first example with its values moved on by m. In place of the module
    a dict may hold it as "module", and functions for kinds of ops that are to run otherwise: F(x), B(x, out, grad),
    I(x, out, grad), which returns the gradient of x and something for W(saved), and FB(x, backward), which runs
    backward() beside F. An example: gallery/module.py in the repository."""


def workload_options(
    hidden: int, heads: int, sequence: int, microbatch_size: int, layers: int, vocab: int
) -> list[Callable[[Any], Any]]:
    """Make the options of the transformer, with these defaults."""

    def option(*spellings: str, default: int, text: str, kind: click.IntRange = COUNT) -> Callable[[Any], Any]:
        return click.option(*spellings, type=kind, default=default, show_default=True, help=text)

    return [
        option("--hidden", default=hidden, text="Width of the model."),
        option("--heads", default=heads, text="Attention heads; they divide the width."),
        option("--seq", "sequence", default=sequence, text="Tokens of one sample."),
        option(
            "--mbs", "--microbatch-size", "microbatch_size", default=microbatch_size, text="Samples of a microbatch."
        ),
        option("--layers", default=layers, text="Layers that one device holds."),
        option("--vocab", default=vocab, text="Vocabulary; 0 leaves embedding and head out.", kind=NONE_OR_MORE),
    ]


def module_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take stages of the user's own; ``{module}`` in the command's help becomes what they are."""
    function.__doc__ = (function.__doc__ or "").replace("{module}", MODULE)
    return click.option(
        "--module",
        metavar="FILE.py:FUNCTION",
        help="Take the stages from a function of yours: stage(stage, stages, device) returns a torch module and an "
        "example input (below).",
    )(function)
