"""Segments of ops on a compute and a communication stream of a device, which run in parallel.

Each layer of a stage's forward is a list of segments, and so is each layer of its backward. A
stream runs its segments in the order of issue, each after the segments that it needs. While both
streams run, each may take longer (contention). A pair of F and B issues layer i of the forward with
layer L-1-i of the backward, like Megatron-Core's combined 1F1B and DeepSeek's DualPipe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ppsim.base import toml
from ppsim.base.text import quote
from ppsim.base.toml import RefusedValue
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.core.soundness import LONGEST
from ppsim.errors import InputError

SCHEMA = "ppsim.segments/1"
EXAMPLE = "layers = 4 and tables [[F]], [[I]] and [[W]] (or [[B]]) with name, time and stream"
STREAMS = ("compute", "communication")
OPS = "FBIW"
PAIR = "FB"
NAME = re.compile(r"[\w.-]{1,32}", re.ASCII)
MOST_SEGMENTS, MOST_LAYERS = 64, 1024
# Orders of issue of a layer of F and one of B: of Megatron-Core's model_chunk_schedule_plan.py at
# d98e8a64, of the same with its early release of attention's memory, and of the host in DeepSeek's
# published profile of DualPipe.
ORDERS = {
    "megatron-core": "combine_I attn_F mlp_I dispatch_F mlp_W dispatch_I mlp_F combine_F attn_I "
    "attn_W",
    "megatron-core-early": "combine_I attn_F mlp_I dispatch_F mlp_W dispatch_I attn_I mlp_F "
    "combine_F attn_W",
    "deepseek": "combine_I attn_F mlp_I dispatch_F dispatch_I mlp_W mlp_F attn_I attn_W combine_F",
}


@dataclass(frozen=True)
class Segment:
    """A part of an op that one stream runs."""

    name: str  # such as ``attn``; unique in its op
    time: float  # duration when it runs alone
    stream: str = "compute"  # ``compute`` or ``communication``
    # segments of the same op and layer that it waits for, by default the one before it; with an
    # empty list it waits for the layer before. A segment of W waits for the segment of I of its
    # name only
    needs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise RefusedValue(
                "name", f"must be up to 32 letters, digits, _, . and -, got {quote(self.name)}"
            )
        if not 0 <= self.time <= LONGEST:
            raise RefusedValue(
                "time", f"must be zero or more and at most {LONGEST:g}, got {self.time:g}"
            )
        if self.stream not in STREAMS:
            raise RefusedValue(
                "stream", f"must be {' or '.join(STREAMS)}, got {quote(self.stream)}"
            )


@dataclass(frozen=True)
class Segments:
    """The segments of a layer, and the number of layers; a file of ``ppsim.segments/1``."""

    F: tuple[Segment, ...]  # segments of a layer's forward, in order of issue
    B: tuple[Segment, ...] = ()  # of its full backward; or
    I: tuple[Segment, ...] = ()  # noqa: E741 - of its input backward, and
    # of its weight backward, each with the name of the segment of I that it follows
    W: tuple[Segment, ...] = ()
    # number of layers of a device's 1/P share of the model, or a list with one for each stage
    layers: int | tuple[int, ...] = 1
    # order in which the segments of a pair are issued, each as ``name_OP`` (``attn_F``), or the
    # name of an order of :data:`ORDERS`; by default the ops of a pair run one after the other
    order: str | tuple[str, ...] = ()
    # share by which compute takes longer while communication runs; or two shares, the second for
    # communication
    contention: float | tuple[float, ...] = 0.0
    unit: str = "ms"  # of the times

    def __post_init__(self) -> None:
        if len(self.mutual_slowdown) != 2 or not all(
            0 <= share <= 10 for share in self.mutual_slowdown
        ):
            raise RefusedValue(
                "contention", f"must be one or two numbers from 0 to 10, got {self.contention}"
            )
        counts = self.layers if isinstance(self.layers, tuple) else (self.layers,)
        if not counts or not all(1 <= count <= MOST_LAYERS for count in counts):
            raise RefusedValue("layers", f"must be 1 to {MOST_LAYERS} for each stage, got {counts}")
        if bool(self.B) == bool(self.I):
            raise RefusedValue(
                "B" if self.B else "F",
                "must come with [[B]], or with [[I]] and [[W]], and not with both",
            )
        if self.W and not self.I:
            raise RefusedValue("W", "must come with [[I]]")
        for op in OPS:
            self._check_op(op)
        self._check_order()

    def _check_op(self, op: str) -> None:
        names = [segment.name for segment in self.segments_of(op)]
        if len(names) > MOST_SEGMENTS:
            raise RefusedValue(op, f"must be {MOST_SEGMENTS} segments at most, got {len(names)}")
        if double := {name for name in names if names.count(name) > 1}:
            raise RefusedValue(op, f"must name each segment once, got '{double.pop()}' twice")
        for position, segment in enumerate(self.segments_of(op)):
            known = names[:position] if op != "W" else [each.name for each in self.I]
            for name in (segment.name,) if op == "W" else segment.needs or ():
                if name not in known:
                    raise RefusedValue(
                        op,
                        f"is wrong: '{segment.name}' needs {quote(name)}, which is none of "
                        f"{', '.join(known)}",
                    )

    def _check_order(self) -> None:
        if isinstance(self.order, str) and self.order not in ORDERS:
            raise RefusedValue(
                "order",
                f"must be one of {', '.join(ORDERS)}, or a list of names, got {quote(self.order)}",
            )
        issued, all_of = (
            list(self.issued),
            [f"{s.name}_{op}" for op in OPS for s in self.segments_of(op)],
        )
        if issued and sorted(issued) != sorted(all_of):
            odd = sorted(set(issued) ^ set(all_of)) or [
                name for name in issued if issued.count(name) > 1
            ]
            raise RefusedValue(
                "order",
                f"must list each segment once, as {', '.join(all_of[:3])}; look at {quote(odd[0])}",
            )
        if any(end < 0 for end in look_inside(self, PAIR, 2).end):
            raise RefusedValue("order", "makes segments wait for each other in a cycle")

    @property
    def mutual_slowdown(self) -> tuple[float, ...]:
        """The slowdown of compute, and of communication, while the other runs, as shares."""
        return self.contention if isinstance(self.contention, tuple) else (self.contention, 0.0)

    def segments_of(self, op: str) -> tuple[Segment, ...]:
        """Return the segments of an op, by the letter of its kind."""
        found: tuple[Segment, ...] = getattr(self, op)
        return found

    @cached_property
    def issued(self) -> tuple[str, ...]:
        """The order of a pair's segments, as names; empty if there is none."""
        if not isinstance(self.order, str):
            return self.order
        halves = [name for name in ORDERS[self.order].split() if self.W or not name.endswith("_W")]
        return tuple(name[:-1] + "B" if self.B and name.endswith("_I") else name for name in halves)


@dataclass(frozen=True)
class InsideOp:
    """Segments of an op or a pair in order of issue, with times from its start."""

    op: str  # F, B, I, W or FB
    name: tuple[str, ...]  # shape (n,), such as ``attn_F``
    layer: tuple[int, ...]  # shape (n,), of the stage
    stream: tuple[int, ...]  # shape (n,), an index of :data:`STREAMS`
    start: tuple[float, ...]  # shape (n,)
    end: tuple[float, ...]  # shape (n,)

    @property
    def kind(self) -> list[Kind]:
        """The kind of op of each segment; B for both halves of a full backward."""
        return [Kind[name[-1]] if name[-1] in self.op else Kind.B for name in self.name]

    @property
    def label(self) -> list[str]:
        """The name of each segment, with W if it is the weight part of a backward."""
        return [
            name[:-2] + (" W" if name[-1] == "W" and self.op != "W" else "") for name in self.name
        ]

    @property
    def makespan(self) -> float:
        """The time from the first start to the last end."""
        return max(self.end, default=0.0)


@lru_cache(maxsize=1024)
def look_inside(segments: Segments, op: str, layers: int = 1) -> InsideOp:
    """Return the segments of an op (F, B, I, W or the pair FB) of some layers, with their times."""
    rows = list(_issue(segments, op, layers))
    known = {f"{segment.name}_{of}": segment for of in OPS for segment in segments.segments_of(of)}
    place, wanted = {row: number for number, row in enumerate(rows)}, _inputs_of_segments(segments)
    needs = [
        [place[key] for name, step in wanted[row[0]] if (key := (name, row[1] + step)) in place]
        for row in rows
    ]
    stream = [STREAMS.index(known[name].stream) for name, _ in rows]
    start, end = run_streams(
        stream, [known[name].time for name, _ in rows], needs, segments.mutual_slowdown
    )
    return InsideOp(
        op,
        tuple(name for name, _ in rows),
        tuple(layer for _, layer in rows),
        tuple(stream),
        tuple(start),
        tuple(end),
    )


def _inputs_of_segments(segments: Segments) -> dict[str, list[tuple[str, int]]]:
    """Return the inputs of each segment: names, and distances in layers.

    A segment without inputs in its layer needs the last segments of the layer before.
    """
    found = {f"{segment.name}_W": [(f"{segment.name}_I", 0)] for segment in segments.W}
    for op, before in (("F", -1), ("B", 1), ("I", 1)):
        names = [segment.name for segment in segments.segments_of(op)]
        inner = {
            segment.name: names[max(i - 1, 0) : i] if segment.needs is None else segment.needs
            for i, segment in enumerate(segments.segments_of(op))
        }
        last = set(names).difference(*inner.values())
        for name, needs in inner.items():
            found[f"{name}_{op}"] = [(f"{n}_{op}", 0) for n in needs] or [
                (f"{n}_{op}", before) for n in last
            ]
    return found


def _issue(segments: Segments, op: str, layers: int) -> Iterator[tuple[str, int]]:
    """Yield the segments of an op or a pair, with their layers, in order of issue.

    Backwards start at the last layer. Without an order, a segment of W directly follows its segment
    of I, and pairs run op by op.
    """
    ops = op.replace("B", "IW") if segments.I else op
    order = [name for name in segments.issued if name[-1] in ops]
    if op == PAIR and not order:
        yield from (*_issue(segments, "F", layers), *_issue(segments, "B", layers))
        return
    if not order:
        weights = {segment.name for segment in segments.W} if ops == "IW" else set()
        for segment in segments.segments_of(ops[0]):
            order += [
                f"{segment.name}_{ops[0]}",
                *([f"{segment.name}_W"] if segment.name in weights else []),
            ]
    for i in range(layers):
        yield from ((name, i if name[-1] == "F" else layers - 1 - i) for name in order)


def run_streams(
    stream: Sequence[int],  # 0 for compute, 1 for communication
    time: Sequence[float],  # duration of each when it runs alone
    needs: Sequence[Sequence[int]],  # segments that must end before each starts
    # shares by which compute, and communication, take longer while the other runs
    slowed: Sequence[float] = (0.0, 0.0),
) -> tuple[list[float], list[float]]:
    """Return starts and ends of segments on two streams, each of which runs them in order.

    They are -1 for segments that wait for each other in a cycle.
    """
    queues = [[i for i, on in enumerate(stream) if on == which][::-1] for which in (0, 1)]
    start, end, left = [-1.0] * len(time), [-1.0] * len(time), list(time)
    now = 0.0
    while running := [
        queue[-1] for queue in queues if queue and all(end[i] >= 0 for i in needs[queue[-1]])
    ]:
        # if two run, the first is on the compute stream
        slow = [1 + share for share in slowed] if len(running) == 2 else [1.0]
        step = min(left[i] * factor for i, factor in zip(running, slow, strict=True))
        for i, factor in zip(running, slow, strict=True):
            start[i] = now if start[i] < 0 else start[i]
            if left[i] * factor <= step:
                end[i] = now + step
                queues[stream[i]].pop()
            left[i] -= step / factor
        now += step
    return start, end


def segment_costs(
    schedule: Schedule, segments: Segments, comm: float = 0.0, per: str = "device"
) -> Costs:
    """Return the costs of a schedule's stages: F, B, I, W, R, and pairs if they have an order.

    If there is only a full backward, I and W take half of it each. A pair of two stages takes the
    mean of theirs. If the segments have a single number of layers, it is of ``per``: of a device,
    with 1/P of the model, or of each stage.

    Raises:
        InputError: segments of another number of stages, or layers that do not divide over the
            stages of a device.
    """
    layers = _layers_of_stages(schedule, segments, per)

    def times(op: str) -> NDArray[np.float64]:
        return np.array([look_inside(segments, op, count).makespan for count in layers.tolist()])

    full = times("B")
    halves = [times("I"), times("W")] if segments.I else [full / 2, full / 2]
    time = np.stack([times("F"), full, *halves, times("F")])
    return Costs(time, comm=comm, pair=times(PAIR) if segments.issued else None, unit=segments.unit)


@dataclass(frozen=True)
class OpsInside:
    """The segments of a schedule's ops."""

    shapes: tuple[InsideOp, ...]  # the distinct sets of segments
    # shape (ops,), the shape of each op; for a pair the first has that of both, the second -1
    shape_of_op: NDArray[np.int64]


def look_inside_ops(schedule: Schedule, segments: Segments, per: str = "device") -> OpsInside:
    """Return the segments of all ops; a pair has the number of layers of its first op's stage.

    Raises:
        InputError: as in :func:`segment_costs`.
    """
    letters = np.array(["F", "B", "I", "W", "F"])[schedule.kind].astype("U2")
    letters[schedule.first_of_pairs] = PAIR
    layers = _layers_of_stages(schedule, segments, per)[schedule.stage]
    keys, of = np.unique([letters, layers.astype(str)], axis=1, return_inverse=True)
    of = of.ravel()
    of[schedule.second_of_pairs] = -1
    return OpsInside(
        tuple(look_inside(segments, letter, int(count)) for letter, count in keys.T), of
    )


def _layers_of_stages(schedule: Schedule, segments: Segments, per: str) -> NDArray[np.int64]:
    """Return the number of layers of each stage, shape (stages,)."""
    layers = np.atleast_1d(segments.layers)
    if len(layers) not in (1, schedule.n_stages):
        raise InputError(
            f"the segments are of {len(layers)} stages, and {schedule.name} has "
            f"{schedule.n_stages}",
            f"layers = {layers[0]}, or one for each of {schedule.n_stages} stages",
        )
    if len(layers) == 1 and per == "device":
        chunks = schedule.n_stages // schedule.n_devices
        if layers[0] % chunks:
            raise InputError(
                f"{layers[0]} layers do not divide over the {chunks} stages of a device of "
                f"{schedule.name}",
                f"layers = {layers[0] + -layers[0] % chunks} in the file, or --cost-per stage: as "
                f"many in each stage",
            )
        layers = layers // chunks
    return np.broadcast_to(layers, schedule.n_stages)


def read(path: str) -> Segments:
    """Read segments from a TOML file (InputError: missing or invalid; the message has the line)."""
    return toml.read(path, Segments, SCHEMA, EXAMPLE)
