"""Building blocks: a schedule as the slots of one microbatch's ops, repeated for every microbatch.

Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362. A slot is a unit of
time in which a device runs one op. A block gives the slots in which each stage runs F and its
backward for microbatch 0; microbatch m runs m x ``interval`` slots later. A device holds an
activation from its F to its W, so its peak follows from the block: about the sum of these lifespans
over the interval. :func:`complete` turns a block into queues in the paper's three steps: repeat it,
fill warm-up and cool-down without a higher peak, and squeeze out idle slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.columns import Ints
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind, Packed, pack
from ppsim.core.schedule import Placement, Schedule
from ppsim.core.timeline import Timeline
from ppsim.search.rules.fill import Rows, fill_phases


@dataclass(frozen=True)
class Block:
    """The slots of one microbatch's ops; :func:`block_of_passes` and :func:`fit_block` make one."""

    placement: Placement  # the device of each stage; one replica
    interval: int  # slots from one microbatch to the next, T
    forward: NDArray[np.int64]  # shape (stages,), the slot of F
    # shape (stages,), the slot of I, or the first of the two of a full backward
    backward: NDArray[np.int64]
    # whether backwards run as I and W; each W takes the first slot left idle after its I
    split: bool = True

    @property
    def lifespans(self) -> NDArray[np.int64]:
        """Slots from F to the end of W or of the full backward, shape (stages,)."""
        return self._release_slot() - self.forward

    @property
    def peaks(self) -> NDArray[np.int64]:
        """Peak activations of each device if the block repeats forever, shape (devices,)."""
        held = np.zeros((self.placement.n_devices, self.interval), np.int64)
        slots = np.arange(self.interval)
        released = self._release_slot()
        for stage, device in enumerate(self.placement.devices[0]):
            alive = (slots - self.forward[stage]) // self.interval - (
                slots - released[stage]
            ) // self.interval
            held[device] += alive
        return held.max(axis=1)

    def clash(self) -> tuple[int, int, int] | None:
        """Return a device and two of its passes whose ops share a slot; None if no two do."""
        for device, ops in enumerate(self.pass_order()):
            taken: dict[int, int] = {}
            for number, (backward, stage) in enumerate(ops):
                first = self.slot(backward, stage)
                for slot in range(first, first + (1 if self.split or not backward else 2)):
                    if slot % self.interval in taken:
                        return device, taken[slot % self.interval], number
                    taken[slot % self.interval] = number
        return None

    def pass_order(self) -> list[list[tuple[bool, int]]]:
        """Return each device's ops in the order of a microbatch, as (is backward, stage)."""
        stages = [
            np.flatnonzero(self.placement.devices[0] == d).tolist()
            for d in range(self.placement.n_devices)
        ]
        return [
            [(False, stage) for stage in here] + [(True, stage) for stage in here[::-1]]
            for here in stages
        ]

    def slot(self, backward: bool, stage: int) -> int:
        """Return the slot of an op of microbatch 0."""
        return int((self.backward if backward else self.forward)[stage])

    def _release_slot(self) -> NDArray[np.int64]:
        """Return the slot after W, or after the full backward, shape (stages,)."""
        if not self.split:
            return self.backward + 2
        after = np.zeros(self.placement.n_stages, np.int64)
        for ops in self.pass_order():
            taken = {self.slot(*op) % self.interval for op in ops}
            for slot, stage in sorted((self.slot(*op), op[1]) for op in ops if op[0]):
                free = next(
                    at
                    for at in range(slot + 1, slot + 1 + self.interval)
                    if at % self.interval not in taken
                )
                taken.add(free % self.interval)
                after[stage] = free + 1
        return after


def block_of_passes(
    placement: Placement,
    interval: int,
    steps: Sequence[int],
    gaps: Sequence[int],
    split: bool = True,
) -> Block:
    """Return the block of passes over the devices: forwards of each chunk, then backwards.

    Backwards begin with the last chunk. The placement has V stages per device in one replica.
    ``steps``, shape (2V,), are the slots between ops of successive stages in each pass. ``gaps``,
    shape (2V - 1,), are the slots from the last op of a pass to the first op of the next.
    """
    P, V = placement.n_devices, placement.n_chunks
    slots, first = [], 0
    for number, step in enumerate(steps):
        slots.append(first + step * np.arange(P))
        first = int(slots[-1][-1]) + (gaps[number] if number < 2 * V - 1 else 0)
    forward = np.concatenate(slots[:V])
    backward = np.concatenate([each[::-1] for each in slots[: V - 1 : -1]])
    return Block(placement, interval, forward, backward, split)


def fit_block(placement: Placement, interval: int, split: bool = True) -> Block:
    """Return the block in which every op takes the first free slot of its device after its input.

    Raises:
        ValueError: the ops of a device do not fit into the interval.
    """
    stages, length = placement.n_stages, 1 if split else 2
    home = placement.devices[0].tolist()
    if placement.n_chunks * 3 > interval:
        raise ValueError(
            f"{placement.n_chunks} chunks need {placement.n_chunks * 3} slots, not {interval}"
        )
    taken = np.zeros((placement.n_devices, interval), np.bool_)
    slots, now = np.zeros(2 * stages, np.int64), 0
    for op, stage in enumerate([*range(stages), *reversed(range(stages))]):
        size = 1 if op < stages else length
        free = (
            now + wait
            for wait in range(interval)
            if not taken[home[stage], _slots_of(now + wait, size, interval)].any()
        )
        now = next(free, -1)
        if now < 0:
            raise ValueError(
                f"no {size} slots of {interval} are left side by side on device {home[stage]}"
            )
        taken[home[stage], _slots_of(now, size, interval)] = True
        slots[op] = now
        now += size
    return Block(placement, interval, slots[:stages], slots[stages:][::-1].copy(), split)


def _slots_of(slot: int, size: int, interval: int) -> list[int]:
    """Return the slots of an op of ``size`` slots in the interval."""
    return [(slot + k) % interval for k in range(size)]


def repeat(block: Block, microbatches: int) -> Timeline:
    """Return the timeline of a split block repeated for each microbatch, without idle slots.

    Every op takes time 1.
    """
    from ppsim.engine.simple.longest_path import simulate

    released, queues, numbers = block._release_slot() - 1, [], np.arange(microbatches)
    for device in range(block.placement.n_devices):
        stages = np.flatnonzero(block.placement.devices[0] == device)
        slots = np.stack([block.forward[stages], block.backward[stages], released[stages]])[
            :, :, None
        ]
        ops = (
            pack(stages, 0)[:, None]
            | np.array([Kind.F, Kind.I, Kind.W])[:, None, None]
            | pack(0, numbers)
        )
        queues.append(ops.ravel()[np.argsort((slots + block.interval * numbers).ravel())])
    schedule = Schedule.from_queues("block", block.placement, microbatches, queues)
    return simulate(schedule, costs_for(schedule, ti=1, tw=1, per="stage"))


def complete(block: Block, microbatches: int) -> list[Packed]:
    """Return the queue of each device: the block repeated, with warm-up and cool-down filled.

    No device exceeds the highest peak of the repeated block.

    Raises:
        ValueError: two ops of a device fall into one slot.
    """
    if clash := block.clash():
        raise ValueError(f"two ops of device {clash[0]} share a slot")
    P, V = block.placement.n_devices, block.placement.n_chunks
    passes = block.pass_order()
    row_of = {
        op: device * 2 * V + number
        for device, ops in enumerate(passes)
        for number, op in enumerate(ops)
    }
    needs = np.array([row_of.get(_input(block, *op), -1) for ops in passes for op in ops])
    rows = Rows(P, 2 * V, needs, 1 if block.split else 2)
    first = np.array([block.slot(*op) for ops in passes for op in ops])
    slots = first[:, None] + block.interval * np.arange(microbatches)
    return [
        _queue(block, ops, *order)
        for ops, order in zip(passes, fill_phases(rows, slots), strict=True)
    ]


def _input(block: Block, backward: bool, stage: int) -> tuple[bool, int]:
    """Return the op that makes an op's input, as (is backward, stage); stage -1 for none."""
    if not backward:
        return False, stage - 1
    return (True, stage + 1) if stage + 1 < block.placement.n_stages else (False, stage)


def _queue(block: Block, ops: list[tuple[bool, int]], numbers: Ints, microbatches: Ints) -> Packed:
    """Return a device's passes and microbatches as a packed queue."""
    V = len(ops) // 2
    kinds = np.repeat([Kind.F, Kind.I if block.split else Kind.B, Kind.W], V)
    stages = np.array([stage for _, stage in [*ops, *ops[V:]]])
    return (pack(stages, 0) | kinds)[numbers] | pack(0, microbatches)
