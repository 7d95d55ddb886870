"""Match every send with its receive, producer and consumer.

Plain Python over indexable sequences, so that numba can compile the same source.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Codes, Ids, Ints
from ppsim.core.ops import COMPUTE, RECEIVES, SENDS, Kind

COMPUTES = len(COMPUTE)  # the codes below it compute
MESSAGES_END = int(max(*SENDS, *RECEIVES)) + 1  # the codes from there to here send and receive
SEND_F, SEND_B, UNSHARD = int(Kind.SEND_F), int(Kind.SEND_B), int(Kind.UNSHARD)
FAULT = -1


class Queues(NamedTuple):
    """The columns of the lowered queues, as in :class:`ppsim.core.schedule.Schedule`."""

    offsets: Ints
    kind: Codes
    stage: Ids
    microbatch: Ids
    pair: Ids


class Routes(NamedTuple):
    """The routes of a placement: a stage boundary in one direction, in one replica of the model.

    Route ``(2 x replica + direction) x boundaries + boundary`` joins stages ``boundary`` and
    ``boundary + 1``; forward is direction 0.
    """

    source: Ids  # shape (routes,), the sending device
    target: Ids  # shape (routes,), the receiving device
    link: Ints  # shape (routes,), a number for each pair of source and target
    boundaries: int  # stages - 1


class Place(NamedTuple):
    """Indices into the kernel's table by kind and stage, for microbatch 0; ``nothing`` for none."""

    keeps: Ints  # the place of an op that makes a result, or receives it
    takes: Ints  # the place of the op that makes the result that this op uses, or sends
    # the place of the next stage's op that uses the message of this op; the place of the receive
    # there is ``nothing / 2`` further
    consumer: Ints
    route: Ints  # the route of a send in the first replica, -1 for none
    stages: int  # stages of the model
    nothing: int  # number of places


class Scratch(NamedTuple):
    """The kernel's working arrays, -1 everywhere at first."""

    at: Ids  # the op at each place
    gather: Ids  # per stage, the latest UNSHARD
    last_receive: Ids  # per link, the latest receive that is matched


class Matching(NamedTuple):
    """The ops of each message, as indices into the lowered queues; messages in order of sends."""

    message: Ids  # shape (ops,), the message that an op sends, receives or consumes, -1 for none
    # shape (ops,), the UNSHARD that a compute op needs, -1 for none; empty without UNSHARDs
    gathered: Ids
    route: Ids  # shape (messages,), the route of each
    send: Ints  # shape (messages,)
    receive: Ids  # shape (messages,)
    producer: Ids  # shape (messages,), the op whose result it carries
    consumer: Ids  # shape (messages,), the op that uses it, -1 for none


def match(
    queues: Queues, routes: Routes, place: Place, scratch: Scratch, matching: Matching
) -> int:
    """Fill in ``matching``; return ``FAULT``, or the number of ops with a late local input."""
    index_ops(queues, place, scratch)
    late, inputs = match_inputs(queues, place, scratch, matching)
    if match_sends(queues, routes, place, scratch, matching) != inputs:
        return FAULT
    return late


def index_ops(queues: Queues, place: Place, scratch: Scratch) -> None:
    """Write the op at each place into ``scratch``."""
    kind, stage, microbatch, keeps, at = (
        queues.kind,
        queues.stage,
        queues.microbatch,
        place.keeps,
        scratch.at,
    )
    for op in range(len(kind)):
        if kind[op] < MESSAGES_END:
            first = keeps[kind[op] * place.stages + stage[op]]
            if first < place.nothing:
                at[first + microbatch[op]] = op


def match_inputs(
    queues: Queues, place: Place, scratch: Scratch, matching: Matching
) -> tuple[int, int]:
    """Match compute ops with their UNSHARDs, and count their inputs.

    Return the number of local inputs that are late or missing, and of remote inputs.
    """
    kind, stage, microbatch, pair, takes = (
        queues.kind,
        queues.stage,
        queues.microbatch,
        queues.pair,
        place.takes,
    )
    at, gather, gathered = scratch.at, scratch.gather, matching.gathered
    gathers = len(gathered) > 0
    late = 0
    inputs = 0
    for device in range(len(queues.offsets) - 1):
        first = queues.offsets[device]
        stop = queues.offsets[device + 1]
        for op in range(first, stop):
            if kind[op] < COMPUTES:
                source = takes[kind[op] * place.stages + stage[op]]
                if source < place.nothing:
                    need = at[source + microbatch[op]]
                    if need >= 0 and (need < first or need >= stop):
                        inputs += 1
                    elif need < 0 or need >= (op - 1 if 0 <= pair[op] < op else op):
                        late += 1
                if gathers and gather[stage[op]] >= first:
                    gathered[op] = gather[stage[op]]
            elif kind[op] == UNSHARD:
                gather[stage[op]] = op
    return late, inputs


def match_sends(
    queues: Queues, routes: Routes, place: Place, scratch: Scratch, matching: Matching
) -> int:
    """Match every send; return the number of ops that consume a message, or ``FAULT``."""
    offsets, kind, stage, microbatch = queues.offsets, queues.kind, queues.stage, queues.microbatch
    at, last_receive, message_of = scratch.at, scratch.last_receive, matching.message
    replica = 2 * routes.boundaries
    count = 0
    consumers = 0
    for device in range(len(offsets) - 1):
        for op in range(offsets[device], offsets[device + 1]):
            if kind[op] != SEND_F and kind[op] != SEND_B:
                continue
            row = kind[op] * place.stages + stage[op]
            route = place.route[row]
            if route < 0 or count == len(matching.send):
                return FAULT
            producer = at[place.takes[row] + microbatch[op]]
            consumer = at[place.consumer[row] + microbatch[op]]
            receive = at[place.nothing // 2 + place.consumer[row] + microbatch[op]]
            target = routes.target[route]
            if route + replica < len(routes.source) and (
                routes.source[route] != device
                or receive < offsets[target]
                or receive >= offsets[target + 1]
                # a device with a stage of both replicas has two routes for it; the receive is on
                # one of them
            ):
                route += replica
                target = routes.target[route]
            if routes.source[route] != device or producer < offsets[device] or producer > op:
                return FAULT
            if receive < offsets[target] or receive >= offsets[target + 1]:
                return FAULT
            if receive <= last_receive[routes.link[route]]:
                return FAULT
            last_receive[routes.link[route]] = receive
            if target == device:
                consumer = -1
            matching.route[count] = route
            matching.send[count] = op
            matching.receive[count] = receive
            matching.producer[count] = producer
            matching.consumer[count] = consumer
            message_of[op] = count
            message_of[receive] = count
            if consumer >= 0:
                if consumer < offsets[target] or consumer >= offsets[target + 1]:
                    return FAULT
                message_of[consumer] = count
                consumers += 1
            count += 1
    return consumers


# the functions that ``match`` calls; numba inlines them
PARTS = (index_ops, match_inputs, match_sends)
