"""Options for the computed stages: the transformer of calibrate and validate, or the user's own
stages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Any, TypeVar

import click

from ppsim.ask.options import OPTION, Request, option

R = TypeVar("R", bound=Request)

# What stands for ``{module}`` in the help of a command.
MODULE = """--module takes the stages from a Python file. Its function gets the number of a stage,
    how many there are, and cpu or cuda, and returns a torch module and an example input; torch's
    seed is the stage's number. A stage's output is the next one's input, of one shape and dtype;
    the last stage returns its loss, or a tensor whose mean square is the loss. Several tensors,
    as tuples of one dtype, travel as one message. A table that two stages share is a copy in
    each. Microbatch m gets the first example with its values moved on by m. In place of the
    module a dict may hold it as "module", and functions for kinds of ops that are to run
    otherwise: F(x), B(x, out, grad), I(x, out, grad), which returns the gradient of x and
    something for W(saved), and FB(x, backward), which runs backward() while F runs. SEND_F and
    SEND_B(tensor, peer, group), RECV_F and RECV_B(buffer, peer, group) run in place of
    torch.distributed.isend and irecv, and return None or what has wait(). UNSHARD(), RESHARD()
    and REDUCE_GRAD() run where torch's runtime has them, up to 3 stages gathered; their time is
    in the gaps between ops. An example: gallery/module.py in the repository."""


def _size(*spellings: str, least: int = 1, **more: Any) -> Any:
    return option(*spellings, type=click.IntRange(min=least), show_default=True, **more)


@dataclass(frozen=True)
class WorkloadOptions:
    """The transformer whose stages compute."""

    hidden: int = _size("--hidden", help="Width of the model.", common=True)
    heads: int = _size("--heads", help="Attention heads; they divide the width.")
    sequence: int = _size("--seq", help="Tokens of one sample.", common=True)
    microbatch_size: int = _size("--mbs", "--microbatch-size", help="Samples of a microbatch.")
    layers: int = _size("--layers", help="Layers that one device holds.", common=True)
    vocab: int = _size("--vocab", least=0, help="Vocabulary; 0 leaves embedding and head out.")


def workload(**defaults: int) -> type[WorkloadOptions]:
    """Make the group of the transformer's options with these defaults."""
    own = []
    for each in fields(WorkloadOptions):
        declared = replace(each.metadata[OPTION], default=defaults[each.name])
        own.append((each.name, int, field(default=declared.default, metadata={OPTION: declared})))
    return make_dataclass("WorkloadOptions", own, bases=(WorkloadOptions,), frozen=True)


def module_option() -> Any:
    """Declare the option that takes stages of the user's own."""
    return option(
        "--module",
        metavar="FILE.py:FUNCTION",
        help="Take the stages from a function of yours: stage(stage, stages, device) returns a "
        "torch module and an "
        "example input (below).",
    )


def explain_module(request: type[R]) -> type[R]:
    """Put the contract of ``--module`` into the help of a request, in place of ``{module}``."""
    request.__doc__ = (request.__doc__ or "").replace("{module}", MODULE)
    return request
