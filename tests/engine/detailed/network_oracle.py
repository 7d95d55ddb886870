"""A second, slow model of lowered queues: times found by going over all queues until nothing new is
known.

No events and no clock; bandwidth is not divided. A time that stays infinite belongs to a deadlock.
"""

from collections import defaultdict
from itertools import pairwise
from math import inf

import numpy as np

from ppsim.core.costs import Costs
from ppsim.core.lowered import Lowered
from ppsim.core.ops import COMPUTE, RECEIVES, SENDS, Kind
from ppsim.engine.detailed.spec import Network


def execute_slowly(lowered: Lowered, costs: Costs, network: Network) -> tuple[list[float], float]:
    """The start of every op of the lowered queues, and the makespan."""
    return Oracle(lowered, costs, network).times()


class Oracle:
    def __init__(self, lowered, costs, network):
        self.queues, self.net, self.batch = lowered.schedule, network, lowered.batch.tolist()
        self.kind = self.queues.kind.tolist()
        self.comm = [k in SENDS or k in RECEIVES for k in self.kind]
        self.peer = lowered.peer().tolist()
        durations = iter(costs.durations(lowered.compute).tolist())
        self.duration = [next(durations) if Kind(k) in COMPUTE else 0.0 for k in self.kind]
        self.name = {
            (int(d), int(k), int(s), int(m)): i
            for i, (d, k, s, m) in enumerate(
                zip(
                    self.queues.device,
                    self.queues.kind,
                    self.queues.stage,
                    self.queues.microbatch,
                    strict=True,
                )
            )
        }
        self.crosses = np.zeros(len(self.queues), bool)
        self.crosses[[i for i, k in enumerate(self.kind) if Kind(k) in COMPUTE]] = (
            lowered.compute.crosses
        )
        self.match, self.input = {}, {}
        self.wire()

    def wire(self):
        """Sends and receives by name, which needs no order."""
        for i, k in enumerate(self.kind):
            s, m = int(self.queues.stage[i]), int(self.queues.microbatch[i])
            if k in SENDS:
                forward = k == Kind.SEND_F
                other = RECEIVES[not forward]
                self.match[i] = self.name[self.peer[i], other, s + (1 if forward else -1), m]
                self.match[self.match[i]] = i
            elif self.crosses[i]:
                receive = Kind.RECV_F if k == Kind.F else Kind.RECV_B
                self.input[i] = self.name[int(self.queues.device[i]), receive, s, m]

    def steps(self, device):
        """The ops of a device that are issued together, in order."""
        part = self.queues.queue(device)
        i = part.start
        while i < part.stop:
            last = i
            if self.comm[i]:
                if self.net.mode in ("overlap", "batched") and self.batch[i] >= 0:
                    while last + 1 < part.stop and self.batch[last + 1] == self.batch[i]:
                        last += 1
            elif self.queues.pair[i] > i:
                last = i + 1
            yield list(range(i, last + 1))
            i = last + 1

    def lanes(self):
        lanes = defaultdict(list)
        for device in range(self.queues.n_devices):
            for step in self.steps(device):
                items = defaultdict(list)
                for i in step:
                    if self.comm[i]:
                        items[self.lane(device, i)].append(i)
                for lane, item in items.items():
                    lanes[lane].append(item)
        return lanes

    def lane(self, device, i):
        key = {"message": (device, i), "group": (device,), "pair": (device, self.peer[i])}
        return key.get(self.net.channel, (device, self.peer[i], self.kind[i] in SENDS))

    def times(self):
        n = len(self.queues)
        self.post, self.done, self.free = [inf] * n, [inf] * n, [0.0] * self.queues.n_devices
        lanes = self.lanes() if self.net.mode == "overlap" else None
        while True:
            before = (list(self.post), list(self.done))
            for device in range(self.queues.n_devices):
                self.walk(device)
            if self.net.mode == "latency":
                self.deliver_freely()
            else:
                self.deliver(lanes)
            if before == (self.post, self.done):
                ends = [*self.free, *(d for i, d in enumerate(self.done) if self.comm[i])]
                return self.post, max(ends) + self.net.host.epilogue

    def walk(self, device):
        host, now = self.net.host, self.net.host.preamble
        for step in self.steps(device):
            comm = self.comm[step[0]]
            if comm and self.net.mode == "latency":
                continue
            for i in step:
                if i in self.input:
                    now = max(now, self.done[self.input[i]])
            for i in step:
                self.post[i] = now
                if comm:
                    send = self.kind[i] in SENDS
                    fixed, each = (
                        (host.send, host.send_per_byte)
                        if send
                        else (host.receive, host.receive_per_byte)
                    )
                    self.duration[i] = fixed + each * self.net.message
            now += sum(self.duration[i] for i in step) if comm else self.duration[step[0]]
            if comm and self.net.mode != "overlap":
                now = max([now] + [self.done[i] for i in step])
            for i in step:
                if not comm:
                    self.done[i] = now
            self.free[device] = now
            now += host.gap

    def deliver_freely(self):
        for i, k in enumerate(self.kind):
            if k in SENDS:
                made = [
                    self.name.get((int(self.queues.device[i]), int(c), *self.of(i)))
                    for c in self.makers(k)
                ]
                left = next(self.done[p] for p in made if p is not None)
                self.done[i] = self.done[self.match[i]] = left + self.transit()

    def makers(self, kind):
        return (Kind.F,) if kind == Kind.SEND_F else (Kind.B, Kind.I)

    def of(self, i):
        return int(self.queues.stage[i]), int(self.queues.microbatch[i])

    def transit(self):
        return self.net.alpha + self.net.message / self.net.beta

    def deliver(self, lanes):
        opened = list(self.post)
        for items in (lanes or {}).values():
            for ahead, item in pairwise(items):
                for i in item:
                    opened[i] = max([self.post[i]] + [self.done[a] for a in ahead])
        for i, k in enumerate(self.kind):
            if k in SENDS:
                receive = self.match[i]
                if self.net.message <= self.net.eager_bytes:
                    self.done[i] = opened[i] + self.transit()
                    self.done[receive] = max(self.done[i], opened[receive])
                else:
                    late = self.net.late if opened[receive] > opened[i] else 0.0
                    self.done[i] = self.done[receive] = (
                        max(opened[i], opened[receive]) + late + self.transit()
                    )
