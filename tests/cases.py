"""What the property tests draw from: every accepted shape of a schedule, and costs of every
kind.
"""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.typing import NDArray

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import PAIRED, Kind, Packed, pack
from ppsim.core.recompute import add_recompute
from ppsim.core.schedule import Placement, Schedule, place
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import Family, Shape, families, find, generate

PLAIN = [family.name for family in families() if not family.lanes]  # what every question takes
MICROBATCHES = (*range(1, 10), 12, 13, 16)
OPTIONS: dict[str, tuple[Any, ...]] = {
    "group_size": (None, 1, 2, 3, 4, 6, 7),
    "rule": (None, "torch", "megatron"),
    "limit": (None, 12),
    "slices": (2, 3, 5),
    "everywhere": (None, (0, 2), (1,)),
    "placement": (None, "v"),
}

# For tests that run once per schedule; two at least, as the first example is always the simplest.
FEW = examples(max_examples=max(2, examples().max_examples // 5))
EVERY = 1 if examples().max_examples >= 50 else 8
# likewise, where an example takes long
SOME = examples(max_examples=min(10, max(2, examples().max_examples // 4)))
MANY = examples(max_examples=2 * examples().max_examples)  # for small random cases
HUNTS = examples().max_examples > 50  # for sweeps that are not drawn by hypothesis


@cache
def accepted(name: str) -> list[Shape]:
    """Every shape of up to 6 devices, 4 chunks and 16 microbatches, and options, that the schedule
    takes.

    Every eighth of them where only the fast tests are asked for, and about fifty of a schedule with
    many options.
    """
    family = find(name)
    tries = product(
        range(1, 7), range(1, 5), MICROBATCHES, *(OPTIONS.get(o, (None,)) for o in family.options)
    )
    shapes = [Shape(P, V, M, settings(family, values)) for P, V, M, *values in tries]
    taken = [shape for shape in shapes if not family.broken_rules(shape)]
    most = 12 if family.uses_costs else 50
    return taken[:: 1 if EVERY == 1 else max(EVERY, len(taken) // most | 1)]


def settings(family: Family, values: list[Any]) -> dict[str, Any]:
    return {
        option: value
        for option, value in zip(family.options, values, strict=True)
        if value is not None
    }


def build(name: str, shape: Shape) -> Schedule:
    """The schedule of that name and shape, generated once for all tests."""
    key = (name, shape.devices, shape.chunks, shape.microbatches, *shape.options.items())
    if key not in _built:
        _built[key] = build_anew(name, shape)
    return _built[key]


_built: dict[tuple[Any, ...], Schedule] = {}


def build_anew(name: str, shape: Shape) -> Schedule:
    return generate(
        name,
        devices=shape.devices,
        chunks=shape.chunks,
        microbatches=shape.microbatches,
        **shape.options,
    )


def schedules(name: str) -> st.SearchStrategy[Schedule]:
    """Any accepted schedule of that name, some of them with full recompute."""
    plain = st.sampled_from(accepted(name)).map(lambda shape: build(name, shape))
    return st.tuples(plain, st.integers(0, 3)).map(
        lambda drawn: drawn[0] if drawn[1] else add_recompute(drawn[0])
    )


@st.composite
def costs(draw: st.DrawFn, schedule: Schedule, times: st.SearchStrategy[float]) -> Costs:
    """Costs per stage with or without a time for pairs, latencies by link, factors by microbatch
    and by device. All are of a dozen different times: to draw each takes longer than what is
    tested.
    """
    stages, devices = schedule.n_stages, schedule.n_devices
    different = np.array(draw(st.lists(times, min_size=12, max_size=12)))
    factors = np.array([1.0, 0.5, 2.0])  # products with eighths stay exact

    def some(of: NDArray[np.float64], *shape: int) -> NDArray[np.float64]:
        size = int(np.prod(shape))
        picked = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
        return of[picked % len(of)].reshape(shape)

    comm: Any = draw(times)
    if draw(st.booleans()):
        comm = some(different, devices, devices)
    pair = some(different, stages) if draw(st.booleans()) else None
    scale = speed = None
    if draw(st.booleans()):
        scale = some(factors, 5, schedule.n_microbatches)
        speed = some(factors, devices)
    return Costs(some(different, 5, stages), comm, pair, scale=scale, speed=speed)


# Eighths add and compare without rounding, so that laws hold exactly.
EIGHTHS = st.integers(0, 80).map(lambda n: n / 8)
FLOATS = st.floats(0, 1e3, allow_subnormal=False)


def unit(schedule: Schedule) -> Costs:
    """F = I = W = 1 for a device's share of the model, no latency."""
    return costs_for(schedule)


def timed(
    name: str,
    devices: int,
    microbatches: int,
    *,
    chunks: int | None = None,
    unit: str = "t_F",
    **times: Any,
) -> Timeline:
    """The timeline of a schedule by name; times as :func:`costs_for` takes them."""
    schedule = generate(name, devices=devices, microbatches=microbatches, chunks=chunks)
    return simulate(schedule, costs_for(schedule, unit=unit, **times))


def drawn_queue(text: str) -> Packed:
    """Ops such as ``F0.1 (F0.2+B0.1)``: kind, stage, microbatch, a pair in brackets."""
    ops = []
    for atom in text.split():
        members = atom.strip("()").split("+")
        for place_in_atom, member in enumerate(members):
            stage, microbatch = map(int, member[1:].split("."))
            ops.append(
                int(pack(stage, microbatch))
                | Kind[member[0]]
                | PAIRED * (place_in_atom + 1 < len(members))
            )
    return np.array(ops, np.int64)


def drawn(
    *texts: str, stages: int | None = None, home: list[int] | None = None, microbatches: int = 2
) -> Schedule:
    """The schedule whose queues are these texts, on devices in order or where ``home`` puts each
    stage.
    """
    placement = place("linear", len(texts), stages or len(texts))
    if home:
        placement = Placement("custom", len(texts), np.array([home], np.int32))
    return Schedule.from_queues(
        "drawn", placement, microbatches, [drawn_queue(text) for text in texts]
    )
