"""The task of a search for plans, its findings, and the outcomes of candidates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ppsim.workload.cost.kinds import kinds_of_devices
from ppsim.workload.cost.memory import Bytes
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.space import BY_SPEED, Axes, Candidate

# share of a GPU's memory for its driver, communicators, workspaces and gaps between tensors
RESERVE = 0.06
REFUSED = "the schedule refuses the shape"
LACKED = "the software's launch flags refuse the plan"
STATES = "weights, gradients and optimizer do not fit"
HELD = "activations do not fit"
WORK = "cannot win: work, fill and drain"
STAGES = "cannot win: work and fill of its slowest device"
SIMULATED = "simulated"
OUTCOMES = (REFUSED, LACKED, STATES, HELD, WORK, STAGES, SIMULATED)
ROUNDING = 1e-9

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The task of a search for plans.

    Attributes:
        model: the model.
        machine: the cluster and its GPUs.
        gpus: how many of them.
        gbs: sequences in a step.
        axes: the choices.
        cap: bytes that a GPU has for training.
        keep: how many plans are wanted.
        front: whether slower plans that hold less memory are wanted too.
        known: seconds of a step that is known to be possible; slower groups are not even counted.
        near: how much slower than the fastest a plan may be and certainly be simulated, as a share,
            so that the best can be chosen from all plans that may tie.
        launch: the framework whose launch flags every plan must have, megatron or torchtitan;
            empty for none.

    On several kinds of nodes each GPU has no more than its own usable bytes, and ``cap`` at most.
    """

    model: Model
    machine: Machine
    gpus: int
    gbs: int
    axes: Axes
    cap: float
    keep: int = 10
    front: bool = False
    known: float = float("inf")
    near: float = 0.0
    launch: str = ""

    def machine_of(self, layout: str) -> Machine:
        """Return the machine with the kinds of nodes in the order in which a layout's ranks lie."""
        return self.machine.reversed if layout == BY_SPEED[1] else self.machine

    def caps(self, machine: Machine, parallel: Parallel) -> float | Bytes:
        """Return the bytes that each pipeline device has: one number, or shape (devices,) on
        several kinds of nodes.
        """
        if not machine.kinds:
            return self.cap
        each = np.array([min(self.cap, usable_bytes(kind.machine)) for kind in machine.kinds])
        return np.where(kinds_of_devices(machine, parallel), each, np.inf).min(axis=1)


@dataclass
class Findings:
    """The findings of a search so far.

    Attributes:
        rows: plans that fit, best first; with the front, those on it too.
        simulated: every plan that was simulated, as they came.
        counts: candidates by outcome.
        total: candidates in all.
        least_memory: the fewest bytes that a candidate holds, by its bound where it was not
            evaluated, and that candidate.
        complete: whether the search has come to its end.
    """

    rows: list[Row] = field(default_factory=list)
    simulated: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    total: int = 0
    least_memory: tuple[float, Candidate] | None = None
    complete: bool = False


def usable_bytes(machine: Machine) -> float:
    """Return the usable bytes of the largest GPU: its memory without drivers and communicators."""
    largest = max(
        [kind.machine.gpu.memory_gib for kind in machine.kinds] or [machine.gpu.memory_gib]
    )
    return largest * 2**30 * (1 - RESERVE)
