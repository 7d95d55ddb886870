"""Chimera, Hanayo and BitPipe: microbatches move in both directions over every device.

All three follow one rule. In slots of one op each, a microbatch moves one stage per slot, forward
through all S stages and back again; the next microbatch enters two slots later. As the pipeline
folds back on itself or runs in both directions, the ops of microbatches that meet on a device are
in odd and in even slots. So a unit of P microbatches uses every slot of a device once, and the next
unit follows without a gap. A device runs its ops in the order of their slots.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind, Packed, pack
from ppsim.core.schedule import place
from ppsim.schedules.registry import (
    EVEN_DEVICES,
    EVEN_MICROBATCHES,
    ONE_CHUNK,
    TWO_CHUNKS,
    Rule,
    Shape,
    schedule,
)

EVEN_CHUNKS = Rule(
    "an even number of stages per device, two for each wave", lambda s: s.chunks % 2 == 0
)


@schedule(
    "chimera",
    title="Chimera",
    placement="bidirectional",
    aliases=("chimera-direct",),
    idea="Two 1F1B pipelines in opposite directions: each device holds stage s of one replica and\n"
    "P-1-s of the other, and one direction's ops fill the gaps of the other's.\n"
    "About half of 1F1B's bubble and more even memory, for two copies of the parameters.",
    bubble="(P-2)(max(t_F, t_B) + (M/P-1)(max(t_F, t_B) - min(t_F, t_B)))  for P | M",
    peak="min(M, P)/2 + min(M/2, 1 + min(device, P-1-device))",
    paper="Chimera, arXiv 2107.06925, and its authors' code (direct concatenation)",
    rules=(ONE_CHUNK, EVEN_DEVICES, EVEN_MICROBATCHES),
)
def chimera(shape: Shape) -> Iterator[Packed]:
    """Units of P microbatches, half of each unit from each end.

    Each unit after the first adds to the bubble unless t_F = t_B. The forward doubling of the
    paper, which avoids this, is not in the authors' code.
    """
    yield from _queues_by_slot(shape, "bidirectional")


@schedule(
    "hanayo",
    title="Hanayo",
    placement="v",
    aliases=("wave", "wave-pipeline"),
    chunks=2,
    idea="The model folds into W waves over the devices, down and up again: V = 2W stages each.\n"
    "Microbatches on their way down and up fill each other's gaps, as in Chimera.\n"
    "Chimera's effect with one copy of the parameters; more waves, less bubble, more messages.",
    bubble="2(P-1)(max(t_F, t_B) + (M/P-1)(max(t_F, t_B) - min(t_F, t_B)))/V  for P | M",
    peak="(V-1) min(M, P) + min(M, device + 1) stage activations",
    paper="Hanayo, arXiv 2308.15762",
    rules=(EVEN_CHUNKS,),
)
def hanayo(shape: Shape) -> Iterator[Packed]:
    """Units of P microbatches; ``--chunks 2W`` for W waves.

    For M = P and t_B = 2 t_F the bubble is (2P-2)/(3PW + 2P-2) of the time.
    """
    yield from _queues_by_slot(shape, "v")


@schedule(
    "bitpipe",
    title="BitPipe",
    placement="bidirectional-v",
    aliases=("bit-pipe", "bidirectional-interleaved"),
    chunks=2,
    idea="Two V-shaped pipelines in opposite directions: a device holds two stages of each of two\n"
    "replicas, so four streams of microbatches fill each other's gaps.\n"
    "Half of Chimera's bubble, for two copies of the parameters and twice its messages.",
    bubble="(P-2)(max(t_F, t_B) + (M/P-1)(max(t_F, t_B) - min(t_F, t_B)))/V  for P | M",
    peak="3 min(M, P)/2 + min(M/2, 1 + min(device, P-1-device)) stage activations",
    paper="BitPipe, arXiv 2410.19367",
    rules=(TWO_CHUNKS, EVEN_DEVICES, EVEN_MICROBATCHES),
)
def bitpipe(shape: Shape) -> Iterator[Packed]:
    """Units of P microbatches, half of each unit from each end, each through a V."""
    yield from _queues_by_slot(shape, "bidirectional-v")


def _queues_by_slot(shape: Shape, placement: str) -> Iterator[Packed]:
    """Yield queues in the order of slots.

    F of stage s is in slot s of its microbatch, B in slot 2S - 1 - s.
    """
    devices = place(placement, shape.devices, shape.stages).devices
    entries = [_enter(shape, replica, len(devices)) for replica in range(len(devices))]
    for device in range(shape.devices):
        slots, ops = list[NDArray[np.int64]](), list[Packed]()
        for (microbatch, entry), home in zip(entries, devices, strict=True):
            stage = np.flatnonzero(home == device)[:, None]
            op = pack(stage, microbatch)
            slots += [(entry + stage).ravel(), (entry + 2 * shape.stages - 1 - stage).ravel()]
            ops += [(op | Kind.F).ravel(), (op | Kind.B).ravel()]
        order = np.argsort(np.concatenate(slots), kind="stable")
        yield np.concatenate(ops)[order]


def _enter(
    shape: Shape, replica: int, replicas: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the microbatches of a replica, in order, and the slot in which each enters.

    A unit is P microbatches, of which the first half is in replica 0; the last unit may be shorter.
    """
    P, M = shape.devices, shape.microbatches
    unit, place_in_unit = np.divmod(np.arange(M), P)
    share = np.minimum(P, M - unit * P) // replicas
    own = place_in_unit // share == replica
    return np.flatnonzero(own), (2 * shape.stages * unit + 2 * (place_in_unit % share))[own]
