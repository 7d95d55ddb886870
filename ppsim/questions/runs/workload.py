"""Options of stages that compute: the transformer of calibrate and validate, or a module."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Any, ClassVar, TypeVar

import click

from ppsim.ask.given import Need
from ppsim.ask.options import OPTION, Request, option

R = TypeVar("R", bound=Request)

# The text for ``{module}`` in the help of a command.
MODULE = """--module names a function of a Python file that makes the stages. It is called with
    the number of a stage, the number of all stages, and cpu or cuda, and returns a torch module and
    an example input; torch's seed is the number of the stage. A stage's output is the next stage's
    input, of one shape and dtype; the last stage returns its loss, or a tensor whose mean square is
    the loss. Several tensors, as tuples of one dtype, travel as one message. An embedding that two
    stages share is copied to both. The input of microbatch m is the first example, rolled by m
    values. Instead of a module, the function may return a dict with the module as "module" and
    functions that run kinds of ops: F(x), B(x, out, grad), I(x, out, grad), which returns the
    gradient of x and a value for W(saved), and FB(x, backward), which runs backward() while F runs.
    SEND_F and SEND_B(tensor, peer, group), RECV_F and RECV_B(buffer, peer, group) run instead of
    torch.distributed.isend and irecv, and return None or an object with wait(). UNSHARD(),
    RESHARD() and REDUCE_GRAD() run at the places of torch's runtime, with up to 3 stages gathered;
    their time is in the gaps between ops. An example: gallery/module.py in the repository."""


def _size(*spellings: str, least: int = 1, **more: Any) -> Any:
    """Declare an option for a size of the transformer."""
    return option(*spellings, type=click.IntRange(min=least), show_default=True, **more)


@dataclass(frozen=True)
class WorkloadOptions:
    """The transformer whose stages compute."""

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("hidden", "heads", "sequence", "microbatch_size", "layers", "vocab", "dtype"),
            lambda g: not g["module"],
            "--module makes the stages, so {options} cannot be given too",
            "leave one out",
        ),
    )

    hidden: int = _size("--hidden", help="Width of the model.", common=True)
    heads: int = _size("--heads", help="Attention heads; they divide the width.")
    sequence: int = _size("--seq", help="Tokens of one sample.", common=True)
    microbatch_size: int = _size("--mbs", "--microbatch-size", help="Samples of a microbatch.")
    layers: int = _size("--layers", help="Layers of each device.", common=True)
    vocab: int = _size("--vocab", least=0, help="Vocabulary; 0 leaves embedding and head out.")


# names of the transformer's options
MODEL = tuple(each.name for each in fields(WorkloadOptions))


def workload(**defaults: int) -> type[WorkloadOptions]:
    """Return the group of the transformer's options with other defaults."""
    declarations = []
    for each in fields(WorkloadOptions):
        declared = replace(each.metadata[OPTION], default=defaults[each.name])
        value = field(default=declared.default, metadata={OPTION: declared})
        declarations.append((each.name, int, value))
    return make_dataclass("WorkloadOptions", declarations, bases=(WorkloadOptions,), frozen=True)


def module_option() -> Any:
    """Declare the option for stages of a user's module."""
    return option(
        "--module",
        metavar="FILE.py:FUNCTION",
        help="A function of yours that makes the stages: stage(stage, stages, device) returns a "
        "torch module and an example input (above).",
    )


def explain_module(request: type[R]) -> type[R]:
    """Return the request with the contract of ``--module`` in its help, instead of ``{module}``."""
    request.__doc__ = (request.__doc__ or "").replace("{module}", MODULE)
    return request
