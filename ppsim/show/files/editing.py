"""Data of a page for editing a schedule: the queues, the costs and the memory of every op.

The page times an edited order by the simple model (``edit_time.js``). Dependencies between ops
follow from the rows of :data:`ppsim.core.ops.KINDS`, as in :mod:`ppsim.core.lanes`. The page gets
these rows as data, so that no rule is written twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppsim.core.ops import ALL, BACKWARD, FORWARD, PART, REST, TIMED, Kind, Result
from ppsim.engine.memory.usage import ACTIVATIONS, MemoryModel, sum_static
from ppsim.show.drawing.palette import IN_ROW
from ppsim.show.files.page_parts import Pack, pack_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.show.files.document import Document

SAME = 1e-9  # relative difference of times that count as equal
MOST_NAMES_BYTES = 1280  # packed bytes of the known schedules' queues
MOST_WHOLE = 1000  # ops of a known schedule, up to which its queues are included
KIND_CODES = 64  # factor that encodes an op as one number, as in edit_time.js
HASH_FACTORS = (0x9E3779B1, 0x7FEB352D)  # odd numbers with irregular bits, as in edit_known.js
MOST_OPS = 20_000  # ops that a page can time again within a few frames
# kinds that splitting or joining backwards can add to any schedule
EDITED = (Kind.F, Kind.B, Kind.I, Kind.W)
_RESULTS = tuple(Result)
_FREES = {"": 0, ALL: 1, PART: 2, REST: 3}


def why_not(document: Document, number: int) -> str:
    """Return the reason why a page cannot edit one timeline, as a clause; empty if it can."""
    timeline, costs = document.timelines[number], document.costs[number]
    schedule = timeline.schedule
    if document.executions:
        return (
            "messages are simulated one by one (--p2p, --cluster), and the page knows latencies "
            "only"
        )
    if len(schedule) > MOST_OPS:
        return f"it has {len(schedule):,} ops, and a page times up to {MOST_OPS:,}"
    if costs.host_link and schedule.has_lanes:
        return "its devices share a link to their host (--host-link), which the page does not time"
    if document.insides:
        return "its ops consist of segments, which the page does not time"
    return ""


def why_not_blank(schedule: Schedule) -> str:
    """Return the reason why a schedule cannot be built from empty rows; empty if it can."""
    others = [Kind(code).name for code in np.unique(schedule.kind).tolist() if code not in EDITED]
    return f"it has ops of kind {', '.join(others)}" if others else ""


def costs_of_times(timeline: Timeline, costs: Costs) -> Costs:
    """Return costs that reproduce each op's time in a timeline, such as a recorded run's."""
    took = timeline.end - timeline.start
    if costs.op_times is not None or np.allclose(
        costs.durations(timeline.schedule), took, rtol=SAME, atol=0.0
    ):
        return costs
    return replace(costs, op_times=took)


def is_editable(document: Document) -> bool:
    """Return whether a page can edit some timeline of its document."""
    return any(not why_not(document, number) for number in range(len(document.costs)))


def may_begin_blank(document: Document) -> bool:
    """Return whether a page can build some timeline of its document from empty rows."""
    numbers = range(len(document.costs))
    return any(
        not why_not(document, number) and not why_not_blank(document.timelines[number].schedule)
        for number in numbers
    )


def edit_object(document: Document, number: int, pack: Pack) -> dict[str, Any]:
    """Return the data to edit one timeline of a page, or the reason why not as ``off``."""
    if reason := why_not(document, number):
        return {"off": reason}
    timeline, costs = document.timelines[number], document.costs[number]
    schedule = timeline.schedule
    rounds: dict[str, Any] = {"rounds": schedule.n_rounds} if schedule.n_rounds > 1 else {}
    rounds |= {} if schedule.flushes else {"flushes": False}
    feedback = {"feeds_back": True, "feedback": costs.feedback} if schedule.feeds_back else {}
    bounds = document.edit_bounds[number] if document.edit_bounds else (np.nan, np.nan)
    memory = document.memory_models[number] if document.memory_models else None
    return {
        "schedule": schedule.name,
        "placement": [row.tolist() for row in schedule.placement.devices],
        "placed": schedule.placement.name,
        **_costs_object(timeline, costs, pack),
        **({"queues": _queues_object(schedule, pack)} if schedule.has_lanes else {}),
        **({"slices": schedule.n_slices} if schedule.n_slices > 1 else {}),
        **({"partly": list(schedule.partial_recompute)} if schedule.partial_recompute else {}),
        **{
            name: bound
            for name, bound in zip(("bound", "bound_split"), bounds, strict=True)
            if bound == bound
        },
        **({"no_blank": reason} if (reason := why_not_blank(schedule)) else {}),
        **rounds,
        **feedback,
        **(_known_object(schedule, document.known[number], pack) if document.known else {}),
        **(
            {}
            if memory is None or (memory.unit == ACTIVATIONS and memory.activations.ndim == 1)
            else {"memory": _memory_object(schedule, memory)}
        ),
    }


def _known_object(
    schedule: Schedule, known: Mapping[str, Schedule | None], pack: Pack
) -> dict[str, Any]:
    """Return known schedules of the same size that edits can make, to name edited queues by.

    ``names`` has each name with a hash of its queues, ``left_out`` the names of schedules that were
    not compared. ``own`` says that the first name is this schedule's; its queues are left out.

    ``rows`` has the queues of the first names as one column of numbers. An op is an index into
    ``ops`` (kind, chunk, whether paired); its microbatch is the next one for that index, unless -1
    and a microbatch come first. -2 ends a queue. In ``ops`` the chunk of a stage on another device
    is -2 - stage, that of an op without a stage -1. ``rows`` is a running sum, as packing takes
    differences.
    """
    makeable = {*EDITED, *np.unique(schedule.kind).tolist()}
    made = {
        name: (each, hash_queues(each))
        for name, each in known.items()
        if each is not None and makeable.issuperset(np.unique(each.kind).tolist())
    }
    own_queues = hash_queues(schedule)
    own = [name for name, (_, queues) in made.items() if queues == own_queues]
    ops: dict[tuple[int, int, int], int] = {}
    names = own[:1]
    column: list[int] = []
    for name, (each, _) in made.items():
        if name in own or len(each) > MOST_WHOLE:
            continue
        more = dict(ops)
        rows = list(_schedule_rows(each, more))
        packed = pack_bytes(np.array(column + rows, np.int16).tobytes())
        if len(packed) <= MOST_NAMES_BYTES:
            names.append(name)
            column += rows
            ops = more
    names += [name for name in made if name not in names]
    left_out = [name for name, each in known.items() if each is None]
    lines = "\n".join(f"{name} {made[name][1]}" for name in names)
    summed = np.cumsum(column, dtype=np.int32)
    found: dict[str, Any] = {"names": pack_bytes(lines.encode())}
    found |= {"own": True} if own else {}
    found |= {"ops": list(ops), "rows": pack(summed)} if column else {}
    found |= {"left_out": left_out} if left_out else {}
    return {"known": found}


def hash_queues(schedule: Schedule) -> str:
    """Return a hash of a schedule's queues, equal to that of ``edit_known.js``.

    Different queues have the same hash with probability 2 ** -51.
    """
    paired = (schedule.pair > np.arange(len(schedule))).astype(np.uint64)
    cell = schedule.microbatch.astype(np.uint64) * np.uint64(schedule.n_stages + 1)
    cell += (schedule.stage + 1).astype(np.uint64)
    code = (cell * np.uint64(KIND_CODES) + schedule.kind.astype(np.uint64)) * np.uint64(2) + paired
    place = np.arange(len(schedule), dtype=np.uint64)
    high, low = (_mixed_sum((code, schedule.device, place), factor) for factor in HASH_FACTORS)
    return np.base_repr(high << 19 | low >> 13, 36).lower()


def _mixed_sum(columns: Iterable[NDArray[Any]], factor: int) -> int:
    """Return the sum of the 32-bit hashes of all rows."""
    mixed: Any = np.uint64(0)
    for column in columns:
        mixed = (mixed + column.astype(np.uint64)) * np.uint64(factor) & np.uint64(2**32 - 1)
    for shift, more in zip((16, 15), HASH_FACTORS, strict=True):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(more) & np.uint64(2**32 - 1)
    return int((mixed ^ mixed >> np.uint64(16)).sum()) & 2**32 - 1


def _schedule_rows(made: Schedule, ops: dict[tuple[int, int, int], int]) -> Iterator[int]:
    """Yield the queues of a schedule as numbers, adding new ops to ``ops``."""
    paired = (made.pair > np.arange(len(made))).astype(np.int64)
    here = (made.placement.devices[:, made.stage] == made.device).any(axis=0)
    chunk = np.where(here & (made.stage >= 0), made.chunk, -2 - made.stage)
    kinds = zip(made.kind.tolist(), chunk.tolist(), paired.tolist(), strict=True)
    places = [ops.setdefault(row, len(ops)) for row in kinds]
    for device in range(made.n_devices):
        yield from _queue_row(places, made.microbatch.tolist(), made.queue(device))


def _queue_row(places: Sequence[int], microbatches: Sequence[int], queue: slice) -> Iterator[int]:
    """Yield one queue as numbers."""
    following: dict[int, int] = {}
    for place, microbatch in zip(places[queue], microbatches[queue], strict=True):
        if microbatch != following.get(place, 0):
            yield from (-1, microbatch)
        yield place
        following[place] = microbatch + 1
    yield -2


def shared_edits(document: Document) -> dict[str, Any]:
    """Return data to edit any timeline of a page: rules of kinds, and a command to time a file."""
    command = {"edit_command": document.edit_command} if document.edit_command else {}
    return {"edit_kinds": kinds_object(document), **command}


def kinds_object(document: Document) -> list[dict[str, Any]]:
    """Return the rules of the kinds of op that a page's queues can contain, by code of the kind.

    Needs that no op of these kinds can meet are left out. A result is given by its number.
    """
    held = {
        Kind(code)
        for timeline in document.timelines
        for code in np.unique(timeline.schedule.kind).tolist()
    }
    kinds = sorted({*EDITED, *(kind for kind in held if kind in TIMED)})
    given = {kind.info.result for kind in kinds} | {Result.ACTIVATION, Result.GRADIENT}
    return [_kind_object(kind, given) if kind in kinds else {} for kind in TIMED[: max(kinds) + 1]]


def _kind_object(kind: Kind, given: set[Result | None]) -> dict[str, Any]:
    info = kind.info
    made = {FORWARD: Result.ACTIVATION, BACKWARD: Result.GRADIENT}.get(info.direction, info.result)
    needs = [
        {
            "result": _RESULTS.index(need.result),
            "at": need.at,
            **({"only": need.only} if need.only else {}),
            **({"must": True} if need.required else {}),
            **({"sent": True} if need.sent else {}),
            **({"ahead": need.ahead} if need.ahead else {}),
            **({"unless": _RESULTS.index(need.unless)} if need.unless else {}),
        }
        for need in info.needs
        if need.required or need.result in given
    ]
    row = {
        "name": kind.name,
        "stream": int(info.stream or 0),
        "computes": info.computes,
        "direction": info.direction,
        "works_on": info.works_on,
        "gives": _RESULTS.index(made) if made else -1,
        "staged": info.has_stage,
        "everywhere": info.on_all_devices,
        "gated": info.gated,
        "posts": info.side == "post",
        "row": kind in IN_ROW,
        "takes": info.allocates,
        "frees": _FREES[info.frees],
        "needs": needs,
    }
    return {key: value for key, value in row.items() if value is not False and value != []}


def _costs_object(timeline: Timeline, costs: Costs, pack: Pack) -> dict[str, Any]:
    """Return durations by kind and stage, their factors, and latencies; ``each`` if by op."""
    comm = np.asarray(costs.comm, np.float64)
    found: dict[str, Any] = {
        "time": [pack(np.ascontiguousarray(row)) for row in costs.time],
        "comm": pack(comm.ravel()) if comm.ndim else float(comm),
    }
    if costs.pair is not None:
        found["pair_time"] = pack(np.ascontiguousarray(costs.pair))
    if costs.scale is not None:
        found["scale"] = [pack(np.ascontiguousarray(row)) for row in costs.scale]
    if costs.speed is not None:
        found["speed"] = pack(np.ascontiguousarray(costs.speed))
    if costs.op_times is not None:
        found["each"] = pack(costs.durations_by_device(timeline.schedule))
    if costs.others:
        found["others"] = {
            str(int(kind)): time.tolist() for kind, time in costs.others.items() if time.any()
        }
    return found


def _queues_object(schedule: Schedule, pack: Pack) -> dict[str, Any]:
    """Return the columns of all ops, including those on streams other than compute."""
    columns = ("kind", "stage", "microbatch", "pair")
    return {
        "offsets": schedule.offsets,
        **{name: pack(getattr(schedule, name)) for name in columns},
    }


def _memory_object(schedule: Schedule, model: MemoryModel) -> dict[str, Any]:
    """Return memory in the model's unit: of ops by stage (and microbatch), and static by device."""
    names = ("activations", "kept", "stash", "work_b", "work_i", "message", "stored")
    always = sum(sum_static(schedule, model).values(), np.zeros(schedule.n_devices, np.int64))
    return {
        **{name: getattr(model, name).tolist() for name in names if getattr(model, name).any()},
        "always": always.tolist(),
        **({"encoder": model.encoder} if model.encoder else {}),
    }
