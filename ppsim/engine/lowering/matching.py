"""Match sends with receives in lowered queues, and messages with their producers and consumers."""

from __future__ import annotations

import numpy as np

from ppsim.base import compiled
from ppsim.core.lowered import Lowered
from ppsim.core.ops import COMPUTE, RECEIVES, SENDS, Kind
from ppsim.core.schedule import NONE, Placement, Schedule
from ppsim.engine.lowering import matching_kernel as kernel
from ppsim.engine.lowering.matching_faults import refuse, refuse_disorder
from ppsim.engine.lowering.matching_kernel import Matching, Place, Queues, Routes, Scratch


def match_messages(lowered: Lowered) -> Matching:
    """Return the messages of lowered queues: the k-th send of a link matches its k-th receive.

    Raises:
        Deadlock: a compute op waits for a later op of its device, or for one that does not run.
        InvalidSchedule: a send or receive is missing, a message has no op or is sent before its op,
            or messages of one link are received in another order than sent.
    """
    schedule = lowered.schedule
    sends, receives = (
        sum(np.count_nonzero(schedule.kind == kind) for kind in kinds)
        for kinds in (SENDS, RECEIVES)
    )
    gathers = (schedule.kind == Kind.UNSHARD).any()
    n = len(schedule)
    matching = Matching(
        message=np.full(n, NONE, np.int32),
        gathered=np.full(n if gathers else 0, NONE, np.int32),
        route=np.empty(sends, np.int32),
        send=np.empty(sends, np.int64),
        receive=np.empty(sends, np.int32),
        producer=np.empty(sends, np.int32),
        consumer=np.empty(sends, np.int32),
    )
    queues = Queues(
        schedule.offsets, schedule.kind, schedule.stage, schedule.microbatch, schedule.pair
    )
    routes, place = find_routes(schedule.placement), find_places(schedule)
    scratch = Scratch(
        at=np.full(place.nothing, NONE, np.int32),
        gather=np.full(schedule.n_stages, NONE, np.int32),
        last_receive=np.full(len(routes.link), NONE, np.int32),
    )
    late_inputs = compiled.run_in_place(
        kernel.match, n, queues, routes, place, scratch, matching, parts=kernel.PARTS
    )
    fault = late_inputs == kernel.FAULT or sends != receives
    if late_inputs or fault:
        refuse_disorder(lowered.compute)
    if fault:
        refuse(lowered)
    return matching


def find_routes(placement: Placement) -> Routes:
    """Return the routes of a placement."""
    lower, upper = placement.devices[:, :-1], placement.devices[:, 1:]
    source, target = (np.stack(both, axis=1).ravel() for both in ((lower, upper), (upper, lower)))
    _, link = np.unique(source.astype(np.int64) * placement.n_devices + target, return_inverse=True)
    return Routes(source, target, link, placement.n_stages - 1)


def find_places(schedule: Schedule) -> Place:
    """Return the kernel's tables of the results that ops make, need, send and receive.

    The places of results are those of :attr:`Schedule.results`; the places of receives follow them.
    """
    S = schedule.n_stages
    gives, needs, results = schedule.results
    nothing = 2 * results
    keeps, takes, consumer, route = (
        np.full((len(Kind), S), value) for value in (nothing, nothing, nothing, NONE)
    )
    keeps[: len(COMPUTE)] = np.where(gives < results, gives, nothing).reshape(-1, S)
    takes[: len(COMPUTE)] = np.where(needs < results, needs, nothing).reshape(-1, S)
    forward, backward = keeps[Kind.F], keeps[Kind.B]
    keeps[Kind.RECV_F], keeps[Kind.RECV_B] = results + forward, results + backward
    takes[Kind.SEND_F], takes[Kind.SEND_B] = forward, backward
    consumer[Kind.SEND_F, :-1], consumer[Kind.SEND_B, 1:] = forward[1:], backward[:-1]
    route[Kind.SEND_F, :-1], route[Kind.SEND_B, 1:] = np.arange(S - 1), S - 1 + np.arange(S - 1)
    return Place(keeps.ravel(), takes.ravel(), consumer.ravel(), route.ravel(), S, nothing)
