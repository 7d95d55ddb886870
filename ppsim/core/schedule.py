"""The schedule: placement and one queue of ops per device, in execution order, without times.

All columns are flat and device-major: the ops of device ``d`` are ``offsets[d]:offsets[d + 1]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import quote
from ppsim.core.ops import (
    ALL,
    BACKWARD,
    BACKWARDS,
    COMPUTE,
    FORWARD,
    KIND_MASK,
    MICROBATCH_SHIFT,
    PAIRED,
    STAGE_MASK,
    STAGE_SHIFT,
    TIMED,
    Columns,
    Kind,
    Packed,
    mask,
    pack,
)
from ppsim.core.soundness import is_whole, prove_placement, prove_queues, require_type
from ppsim.errors import InputError, InvalidSchedule

NONE, MISSING = -1, -2
_R = int(Kind.R)  # numpy asks a member of Kind for a dozen attributes first
BLOCK = 1 << 15
SHORT = 64  # mean number of ops of a queue below which all queues are read together


@dataclass(frozen=True)
class Placement:
    """The device of each stage.

    Attributes:
        name: linear, loop, v, bidirectional, bidirectional-v or custom.
        n_devices: number of pipeline devices, P.
        devices: shape (replicas, stages), the device of each stage in each replica of the model.
    """

    name: str
    n_devices: int
    devices: NDArray[np.int32]

    def __post_init__(self) -> None:
        require_type("the name of a placement", self.name, str, '"linear"')
        prove_placement(self.n_devices, self.devices)

    @property
    def n_stages(self) -> int:
        """Stages of the model, S."""
        return self.devices.shape[1]

    @property
    def n_replicas(self) -> int:
        """Copies of the model: 2 for bidirectional schedules, else 1."""
        return self.devices.shape[0]

    @property
    def n_chunks(self) -> int:
        """Stages of one replica per device, V."""
        return -(-self.n_stages // self.n_devices)

    @cached_property
    def chunk(self) -> NDArray[np.int32]:
        """Shape (replicas, stages): the index of a stage among its device's, over all replicas."""
        chunk, count = np.empty_like(self.devices), np.zeros(self.n_devices, np.int32)
        for where in np.ndindex(self.devices.shape):
            chunk[where] = count[self.devices[where]]
            count[self.devices[where]] += 1
        return chunk


def place(name: str, n_devices: int, n_stages: int) -> Placement:
    """Return a placement by name.

    linear and loop put stage s on device s mod P; v folds back at the ends; bidirectional and
    bidirectional-v add a second replica on the devices in reverse order.

    Raises:
        InputError: no placement has the name, or a number is not a whole number from 1.
    """
    for key, count in (("n_devices", n_devices), ("n_stages", n_stages)):
        if not is_whole(count) or count < 1:
            raise InputError(
                f"{key}: not a whole number from 1: {quote(count)}", 'place("v", 4, 8)'
            )
    stage = np.arange(n_stages, dtype=np.int32)
    lap, seat = np.divmod(stage, np.int32(n_devices))
    fold = np.where(lap % 2, n_devices - 1 - seat, seat)
    rows = {
        "linear": [stage],
        "loop": [seat],
        "v": [fold],
        "bidirectional": [stage, n_stages - 1 - stage],
        "bidirectional-v": [fold, n_devices - 1 - fold],
    }
    if not isinstance(name, str) or name not in rows:
        raise InputError(f"not a placement: {quote(name)}", f"one of {', '.join(rows)}")
    return Placement(name, n_devices, np.array(rows[name], np.int32))


@dataclass(frozen=True)
class Schedule(Columns):
    """Placement and queues; made by :meth:`from_queues`.

    Attributes:
        name: name of its family or file, such as ``1f1b``.
        placement: the device of each stage.
        n_microbatches: M; if sequences are cut into slices, M times the slices of each.
        offsets: shape (P + 1,), the bounds of each device's queue.
        kind: shape (ops,), codes of :class:`ppsim.core.ops.Kind`.
        stage: shape (ops,).
        microbatch: shape (ops,).
        pair: shape (ops,), index of the partner op, or -1.
        n_slices: slices of a microbatch's sequence, K; slice k of microbatch m counts as microbatch
            m x K + k. A slice attends to those before it, so each stage runs forwards of slices in
            order and backwards in reverse.
        partial_recompute: stages whose R repeats only a part of the forward; their activations
            count from F on.
        stated_messages: the same queues with the sends, receives and FSDP ops of their file; None
            if no file states them.
        n_rounds: the number of repetitions of the queues, N; microbatch m of round r counts as
            microbatch r x M + m, with M microbatches per round.
        feeds_back: whether each round needs the results of the previous round: the first stage's
            forward of a microbatch waits for the last stage's forward of the same microbatch in the
            previous round.
        flushes: whether each round ends before the next begins. If not, a device runs forwards of
            the next round instead of draining, as 1F1B without flushes does.
    """

    name: str
    placement: Placement
    n_microbatches: int
    offsets: NDArray[np.int64]
    kind: NDArray[np.uint8]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    pair: NDArray[np.int32]
    n_slices: int = 1
    stated_messages: Schedule | None = None
    partial_recompute: tuple[int, ...] = ()
    n_rounds: int = 1
    feeds_back: bool = False
    flushes: bool = True

    def __post_init__(self) -> None:
        require_type("the name of a schedule", self.name, str, '"mine"')
        require_type("placement", self.placement, Placement, 'place("linear", 4, 4)')
        prove_queues(self)
        if self.n_slices != 1:
            self._prove_slices()
        if self.n_rounds < 1 or self.n_microbatches % (self.n_rounds * self.n_slices):
            raise InvalidSchedule(
                f"{self.name}: {self.n_microbatches} microbatches in {self.n_rounds} rounds"
            )
        if (self.kind == _R).any():
            self._prove_recomputes()

    @classmethod
    def from_queues(
        cls,
        name: str,
        placement: Placement,
        n_microbatches: int,
        queues: Iterable[Packed],
        n_slices: int = 1,
    ) -> Schedule:
        """Return the schedule of one array of packed ops per device, as built by
        :class:`ppsim.core.builder.Queue`.
        """
        queues = list(queues)
        offsets = np.cumsum([0, *map(len, queues)], dtype=np.int64)
        n, ends = int(offsets[-1]), offsets.tolist()
        if n < SHORT * len(queues):  # a loop over queues would take longer than their ops
            queues, ends = [np.concatenate(queues)], [0, n]
        kind, stage, microbatch = (
            np.empty(n, np.uint8),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
        )
        for queue, begin, end in zip(queues, ends, ends[1:], strict=False):
            kind[begin:end] = queue & (KIND_MASK | PAIRED)
            stage[begin:end] = queue >> STAGE_SHIFT & STAGE_MASK
            microbatch[begin:end] = queue >> MICROBATCH_SHIFT
        first = np.flatnonzero(kind & PAIRED).astype(np.int32)
        pair = np.full(n, NONE, np.int32)
        pair[first], pair[first + 1] = first + 1, first
        kind &= KIND_MASK
        if kind.max(initial=0) >= len(COMPUTE):
            stage[stage == STAGE_MASK] = NONE
        return cls(
            name, placement, n_microbatches, offsets, kind, stage, microbatch, pair, n_slices
        )

    def packed(self) -> Packed:
        """Return all ops packed, shape (ops,)."""
        ops = pack(self.stage, self.microbatch) | self.kind
        ops[self.first_of_pairs] |= PAIRED
        return ops

    def with_queues(
        self, queues: Iterable[Packed], partial_recompute: tuple[int, ...] | None = None
    ) -> Schedule:
        """Return the schedule with other queues, one array of packed ops per device.

        ``partial_recompute`` replaces the schedule's if given.
        """
        made = Schedule.from_queues(
            self.name, self.placement, self.n_microbatches, queues, self.n_slices
        )
        partial_recompute = (
            self.partial_recompute if partial_recompute is None else partial_recompute
        )
        if self.n_rounds > 1 or self.feeds_back or not self.flushes:
            rounds: dict[str, Any] = {
                "n_rounds": self.n_rounds,
                "feeds_back": self.feeds_back,
                "flushes": self.flushes,
            }
            made = replace(made, **rounds)
        return replace(made, partial_recompute=partial_recompute) if partial_recompute else made

    def insert(
        self, where: NDArray[np.int64], device: NDArray[np.integer], ops: Packed
    ) -> Schedule:
        """Return the schedule with packed ops inserted before the ops ``where``, or at the end of
        their device's queue.

        Inserted ops are not in pairs. All arrays have shape (inserted ops,); ops inserted at the
        same place keep their order.
        """
        ends = self.offsets[1:] + np.cumsum(np.bincount(device, minlength=self.n_devices))
        return self.with_queues(np.split(np.insert(self.packed(), where, ops), ends[:-1]))

    def _prove_slices(self) -> None:
        """Raise InvalidSchedule if slices run too early, or M is not a multiple of them."""
        from ppsim.core.slices import SLICE_ORDER, find_early_slices

        if self.n_slices < 1 or self.n_microbatches % self.n_slices:
            raise InvalidSchedule(
                f"{self.name}: {self.n_microbatches} microbatches in slices of {self.n_slices}"
            )
        early = find_early_slices(
            self.kind, self.stage, self.microbatch, self.n_microbatches, self.n_slices
        )
        if len(early):
            op, needed = early[0].tolist()
            raise InvalidSchedule(
                f"{self.name}: {self.label(op)} runs before the slice of its sequence that it "
                f"needs, {self.label(needed)}",
                SLICE_ORDER,
            )

    def _prove_recomputes(self) -> None:
        """Raise InvalidSchedule if an R runs after its backward."""
        op = np.flatnonzero(self.kind == Kind.R)
        back = np.flatnonzero(mask(BACKWARDS)[self.kind])
        before = np.full(self.n_stages * self.n_microbatches, -1, np.int64)
        before[self._cells[back]] = back - ~self.leads[back]  # a pair begins with its first op
        late = op[
            (op >= before[self._cells[op]])
            | (self.device[op] != self.device[before[self._cells[op]]])
        ]
        if len(late):
            name = self.label(int(late[0]))
            raise InvalidSchedule(
                f"{self.name}: {name} does not run before the backward of its stage and microbatch",
                f"move {name} before it, on the same device",
            )

    @cached_property
    def only_computes(self) -> bool:
        """True if all ops are compute ops: no sends, receives or collectives."""
        return bool(self.computes.all())

    @cached_property
    def only_forwards(self) -> bool:
        """True if the schedule has no backwards, as in inference."""
        return not mask(BACKWARDS)[self.kind].any()

    @cached_property
    def _cells(self) -> NDArray[np.int64]:
        """Shape (ops,): a number for each stage and microbatch."""
        return self.stage * np.int64(self.n_microbatches) + self.microbatch

    @cached_property
    def recomputed(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether an R runs for the stage and microbatch of a compute op."""
        recomputes = self.kind == Kind.R
        if not recomputes.any():
            return recomputes
        has_recompute = np.zeros(self.n_stages * self.n_microbatches, np.bool_)
        has_recompute[self._cells[recomputes]] = True
        return self.computes & has_recompute[np.where(self.computes, self._cells, 0)]

    def activation_changes(self, release: Kind = Kind.W) -> NDArray[np.int8]:
        """Return the change in live activations by each op, shape (ops,).

        Of a split backward, the op ``release`` frees the activation. With full recompute R adds the
        activation, and the stage input that F keeps does not count; with partial recompute F adds
        it. Without backwards, F keeps nothing.
        """
        if self.only_forwards:
            return np.zeros(len(self), np.int8)
        change = _changes_of_kinds(release).take(self.kind)
        change[self.recomputed & (self.kind == Kind.F)] = 0
        if self.partial_recompute:
            partial = np.isin(self.stage, self.partial_recompute) & self.recomputed
            change[partial & (self.kind == Kind.F)] = 1
            change[partial & (self.kind == Kind.R)] = 0
        return change

    @cached_property
    def has_lanes(self) -> bool:
        """True if there are ops that are not compute (e.g. copies), but no messages."""
        return not self.only_computes and int(self.kind.max()) < len(TIMED)

    @property
    def n_devices(self) -> int:
        """P."""
        return self.placement.n_devices

    @property
    def n_stages(self) -> int:
        """S."""
        return self.placement.n_stages

    @property
    def n_chunks(self) -> int:
        """V, stages of one replica per device."""
        return self.placement.n_chunks

    @property
    def weight_versions(self) -> int:
        """Versions of the weights on a device: two if steps overlap, else one."""
        return 1 if self.flushes else 2

    @property
    def needs_more_versions(self) -> bool:
        """True if two versions of the weights are too few, as steps without flush are too short.

        PipeDream-2BW (arXiv 2006.09503, section 3.1) requires M >= P.
        """
        return not self.flushes and self.round_microbatches < self.n_devices

    @property
    def whole_microbatches(self) -> int:
        """M of one round, with all slices of a microbatch counted as one."""
        return self.n_microbatches // (self.n_slices * self.n_rounds)

    @property
    def run_microbatches(self) -> int:
        """Microbatches of all rounds, with all slices of a microbatch counted as one."""
        return self.n_microbatches // self.n_slices

    @property
    def round_microbatches(self) -> int:
        """Microbatches of one round, with slices counted: the step of numbers between rounds."""
        return self.n_microbatches // self.n_rounds

    @cached_property
    def awaits_feedback(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether the op's input is a result that the last stage sends back, from the
        previous round.
        """
        if not self.feeds_back:
            return np.zeros(len(self), np.bool_)
        return (
            (self.kind == Kind.F) & (self.stage == 0) & (self.microbatch >= self.round_microbatches)
        )

    @cached_property
    def chunk(self) -> NDArray[np.int32]:
        """Shape (ops,): the index of the op's stage among its device's, over both replicas; 0
        without a stage.
        """
        placement = self.placement
        chunk = placement.chunk[0, self.stage]
        if placement.n_replicas > 1:
            chunk = np.where(
                placement.devices[0, self.stage] == self.device,
                chunk,
                placement.chunk[1, self.stage],
            )
        return np.where(self.stage < 0, 0, chunk)

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Yield ops in slices that fit into a processor's cache, with the index of each op in a
        flat (kind, stage) table.
        """
        for first in range(0, len(self), BLOCK):
            ops = slice(first, min(first + BLOCK, len(self)))
            row = self.kind[ops] * np.int64(self.n_stages)
            row += self.stage[ops]
            yield ops, row

    @property
    def results(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Indices of results: one for each activation (stage, microbatch), then for each gradient.

        The first array, shape (compute kinds x stages,), has the index of the result of microbatch
        0 for each kind and stage; the second has the index of its input. The number is the index
        that stands for no result.
        """
        return _results(self.n_stages, self.n_microbatches)

    @cached_property
    def dependency(self) -> NDArray[np.int32]:
        """Shape (ops,): the op whose result each op waits for, -1 for none, -2 if it is missing.

        F(s, m) needs F(s-1, m); B or I(s, m) needs B or I(s+1, m), on the last stage F(s, m); W(s,
        m) needs I(s, m); R(s, m) needs F(s, m). A backward also needs its forward, which is implied
        as its gradient depends on it, and its R, which precedes it in the queue. If results are fed
        back, F(0, m) needs the last stage's F of m in the previous round.
        """
        if not self.only_computes:
            computing, found = np.flatnonzero(self.computes), self.compute_only.dependency
            whole = np.full(len(self), NONE, np.int32)
            whole[computing] = np.where(found >= 0, computing[np.maximum(found, 0)], found)
            return whole
        gives, needs, nothing = self.results
        M = self.n_microbatches
        runs = np.full(nothing + M, MISSING, np.int32)
        for ops, row in self.blocks():
            runs[gives.take(row) + self.microbatch[ops]] = np.arange(
                ops.start, ops.stop, dtype=np.int32
            )
        runs[nothing:] = NONE
        dependency = np.empty(len(self), np.int32)
        for ops, row in self.blocks():
            dependency[ops] = runs.take(needs.take(row) + self.microbatch[ops])
        fed = np.flatnonzero(self.awaits_feedback)
        if len(fed):
            row_of_last = gives[Kind.F * self.n_stages + self.n_stages - 1]
            dependency[fed] = runs[row_of_last + self.microbatch[fed] - self.round_microbatches]
        return dependency

    @cached_property
    def compute_only(self) -> Schedule:
        """The schedule with only F, B, I, W and R; the same object if it has no other ops."""
        return self if self.only_computes else self.take(self.computes)

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.int64], **others: Any) -> Schedule:
        """Return the schedule with some of its ops, and with the fields in ``others`` replaced.

        ``chosen`` is a mask, or the ops of each device in their new order. It must have both ops of
        a pair or none; other ops may occur twice.
        """
        ops = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        place = np.full(len(self) + 1, NONE, np.int32)  # the last entry is for no partner
        place[ops] = np.arange(len(ops), dtype=np.int32)
        columns = {name: getattr(self, name)[ops] for name in ("kind", "stage", "microbatch")}
        offsets = np.searchsorted(self.device[ops], np.arange(self.n_devices + 1)).astype(np.int64)
        return replace(
            self, **{"offsets": offsets, "pair": place[self.pair[ops]], **columns, **others}
        )

    @cached_property
    def crosses(self) -> NDArray[np.bool_]:
        """Shape (ops,): whether the op's input comes from another device or is fed back."""
        sent = self.device[self.dependency] != self.device
        return (self.dependency >= 0) & (sent | self.awaits_feedback if self.feeds_back else sent)

    def queue(self, device: int) -> slice:
        """Return the slice of one device's ops."""
        return slice(int(self.offsets[device]), int(self.offsets[device + 1]))

    def __repr__(self) -> str:
        return (
            f"Schedule({self.name}: {self.n_devices} devices x {self.n_chunks} chunks = "
            f"{self.n_stages} stages, {self.n_microbatches} microbatches, {len(self)} ops)"
        )


@lru_cache
def _changes_of_kinds(release: Kind) -> NDArray[np.int8]:
    """Return the activations that an op of each kind adds, shape (kinds,)."""
    return np.array(
        [kind.info.allocates - (kind.info.frees == ALL or kind == release) for kind in Kind],
        np.int8,
    )


@lru_cache
def _results(stages: int, microbatches: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return :attr:`Schedule.results` for a size."""
    nothing = 2 * stages * microbatches
    forward, backward = np.arange(0, nothing, microbatches).reshape(2, stages)
    result = {FORWARD: forward, BACKWARD: backward, 0: np.full(stages, nothing)}
    of_neighbour = {
        FORWARD: np.append(nothing, forward[:-1]),
        BACKWARD: np.append(backward[1:], forward[-1]),
    }
    infos = [kind.info for kind in COMPUTE]
    gives = [result[info.direction] for info in infos]
    needs = [(of_neighbour if info.direction else result)[info.works_on] for info in infos]
    return np.concatenate(gives), np.concatenate(needs), nothing
