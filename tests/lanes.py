"""Random schedules whose devices copy and reduce beside compute, and costs of them."""

from itertools import pairwise
from typing import Any

import numpy as np

from ppsim.core.costs import Costs
from ppsim.core.ops import PAIRED, TIMED, Kind, pack
from ppsim.core.schedule import Schedule
from ppsim.schedules import generate

COPIES = (Kind.OFFLOAD, Kind.RELOAD)
HEAD = (Kind.SHARE_S, Kind.S, Kind.REDUCE_S, Kind.T, Kind.REDUCE_T)
EMBEDDING = (Kind.E, Kind.REDUCE_E)
AFTER = (Kind.SHARE_D, Kind.D)


def with_lanes(name, devices, microbatches, rng, late=3, pairs=0.0):
    """A schedule with ops of other kinds in its queues, near where they can run, not always there.

    ``pairs`` is the share of neighbouring forwards and backwards that become a pair.
    """
    base = generate(name, devices=devices, microbatches=microbatches)
    queues = [
        [
            (Kind(k), int(s), int(m))
            for k, s, m in zip(base.kind[q], base.stage[q], base.microbatch[q], strict=True)
        ]
        for q in map(base.queue, range(devices))
    ]
    backward = Kind.B if (base.kind == Kind.B).any() else Kind.I

    def put(device, op, place):
        queues[device].insert(min(max(place + rng.randrange(-1, late), 0), len(queues[device])), op)

    for stage, microbatch in np.ndindex(base.n_stages, microbatches):
        device, queue = stage % devices, queues[stage % devices]
        if rng.random() < 0.5:
            put(
                device,
                (Kind.OFFLOAD, stage, microbatch),
                queue.index((Kind.F, stage, microbatch)) + 1,
            )
            if rng.random() < 0.3:
                at = queue.index((Kind.OFFLOAD, stage, microbatch))
                queue.insert(at + 1 + rng.randrange(2), (Kind.WAIT_OFFLOAD, stage, microbatch))
            at = queue.index((backward, stage, microbatch))
            after = queue.index((Kind.OFFLOAD, stage, microbatch))
            queue.insert(max(after + 1, at - rng.randrange(3)), (Kind.RELOAD, stage, microbatch))
    for kinds, anchor in (
        (EMBEDDING, (Kind.F, 0)),
        (HEAD, (Kind.F, devices - 1)),
        (AFTER, (backward, 0)),
    ):
        if rng.random() < 0.5:
            for microbatch in range(microbatches):
                for device in range(devices):
                    own = next(
                        i
                        for i, op in enumerate(queues[device])
                        if op[::2] == (anchor[0], microbatch)
                    )
                    ahead = kinds is EMBEDDING
                    queues[device][own + 1 - ahead : own + 1 - ahead] = [
                        (kind, -1, microbatch) for kind in kinds
                    ]
    if rng.random() < 0.3:
        spread(queues, rng.randrange(devices), microbatches, backward)
    if rng.random() < 0.3:
        for microbatch in range(microbatches):
            device = rng.randrange(devices)
            queue, slack = queues[device], 2 * device + 3  # of the first stage's op
            put(
                device, (Kind.EF, -1, microbatch), queue.index((Kind.F, device, microbatch)) - slack
            )
            put(
                device,
                (Kind.EB, -1, microbatch),
                queue.index((backward, device, microbatch)) + slack,
            )
    packed = [np.array([int(pack(s, m)) | k for k, s, m in queue]) for queue in queues]
    for queue, ops in zip(queues, packed, strict=True) if pairs else ():
        for at, ((one, *_), (other, *_)) in enumerate(pairwise(queue)):
            free = at == 0 or not ops[at - 1] & PAIRED
            if free and {one, other} == {Kind.F, backward} and rng.random() < pairs:
                ops[at] |= PAIRED
    return Schedule.from_queues(name, base.placement, microbatches, packed)


def spread(queues, stage, microbatches, backward):
    """Put a part that runs on all devices ahead of a stage into each queue, and its backward."""
    for device, queue in enumerate(queues):
        for microbatch in range(microbatches):
            at = queue.index((Kind.F, device, microbatch)) + (device < stage)
            queue.insert(at, (Kind.GF, stage, microbatch))
            at = queue.index((backward, device, microbatch)) + (device >= stage)
            queue.insert(at, (Kind.GB, stage, microbatch))


def random_costs(schedule, rng, link=0):
    time = np.array(
        [[rng.randrange(1, 6) for _ in range(schedule.n_stages)] for _ in range(5)], float
    )
    others: dict[Kind, Any] = {
        kind: np.array([rng.randrange(4) for _ in range(schedule.n_stages)], float)
        for kind in TIMED[5:]
        if kind != Kind.WAIT_OFFLOAD
    }
    return Costs(time, comm=rng.choice([0.0, 0.5]), others=others, host_link=link)
