"""The best of all orders of a small pipeline, by a constraint model of its own: it shares nothing
with the search.

Each device's queue is a circuit through its ops. An op starts exactly when the op before it has
ended and its input has arrived, so that a span is that of a run; what is held is counted along the
queue. Each backward is B, or I and W; an F and the B after it may run as a pair, which starts when
both could and holds both results until its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

Op = tuple[str, int, int]  # kind, stage, microbatch; kind G is what gives the gradient, B or I


@dataclass(frozen=True)
class Pipeline:
    """What is to be scheduled; times and shares are multiples of 1 / ``steps``.

    Attributes:
        device: of each stage.
        microbatches: M.
        times: of F, B, I and W, per stage.
        comm: of a message from one device to another.
        caps: of each device, infinite without a limit.
        after_i: the share of an activation that is held between I and W.
        amounts: the activations that an F of each stage leaves.
        pair: times of pairs per stage, of which one takes the mean, or None.
        objective: span or makespan.
        steps: of one unit of time.
    """

    device: tuple[int, ...]
    microbatches: int
    times: dict[str, tuple[float, ...]]
    comm: tuple[tuple[float, ...], ...]
    caps: tuple[float, ...]
    after_i: float
    amounts: tuple[int, ...]
    pair: tuple[float, ...] | None
    objective: str
    steps: int = 8

    def count(self, value: float) -> int:
        """A time or share in steps."""
        return round(value * self.steps)

    def input_of(self, op: Op) -> tuple[Op | None, int]:
        """What an op waits for, and the latency of its message in steps."""
        kind, s, m = op
        if op[:2] == ("F", 0):
            return None, 0
        source = ("G", s, m) if kind == "W" else ("F", s - 1, m) if kind == "F" else ("G", s + 1, m)
        if source[1] == len(self.device):
            source = ("F", s, m)
        here, there = self.device[s], self.device[source[1]]
        return source, 0 if here == there else self.count(self.comm[there][here])


def best_of_all(asked: Pipeline, seconds: float = 20.0) -> float | None:
    """The least span or makespan of all orders; None where it is not proved in time."""
    from ortools.sat.python import cp_model

    model, S, M = cp_model.CpModel(), len(asked.device), asked.microbatches
    ops = list(product("FGW", range(S), range(M)))
    time = {kind: [asked.count(t) for t in row] for kind, row in asked.times.items()}
    longest = M * sum(
        time["F"][s] + max(time["B"][s], time["I"][s] + time["W"][s]) for s in range(S)
    )
    longest += M * sum(asked.input_of(op)[1] for op in product("FG", range(S), [0]))
    start = {op: model.new_int_var(0, longest, "") for op in ops}
    end = {op: model.new_int_var(0, longest, "") for op in ops}
    full = {(s, m): model.new_bool_var("") for s in range(S) for m in range(M)}
    goal = model.new_int_var(0, longest, "")
    first = [model.new_int_var(0, longest, "") for _ in asked.caps]
    # what a start was decided by
    after, arrived = ({op: model.new_bool_var("") for op in ops} for _ in range(2))
    pairs: dict[tuple[Op, Op], Any] = {}
    for d, cap in enumerate(asked.caps):
        own = [op for op in ops if asked.device[op[1]] == d]
        _queue(model, asked, own, cap, start, end, full, first[d], after, pairs)
    for op in ops:
        kind, s, m = op
        source, latency = asked.input_of(op)
        arrival = 0 if source is None else end[source] + latency
        model.add(start[op] >= arrival)
        model.add(start[op] == arrival).only_enforce_if(arrived[op])
        joint = [literal for pair, literal in pairs.items() if op in pair]
        model.add_bool_or([after[op], arrived[op], *joint, *([full[s, m]] if kind == "W" else [])])
        for kinds, chosen in {"F": ["F"], "G": ["B", "I"], "W": ["W"]}.items():
            for which in chosen if kind == kinds else ():
                only = {"F": [], "B": [full[s, m]], "I": [~full[s, m]], "W": [~full[s, m]]}[which]
                model.add(end[op] == start[op] + time[which][s]).only_enforce_if(
                    [*only, *(~x for x in joint)]
                )
        if kind == "W":  # B has done it
            model.add(start[op] == arrival).only_enforce_if(full[s, m])
            model.add(end[op] == start[op]).only_enforce_if(full[s, m])
    for (f, g), joint in pairs.items():
        assert asked.pair is not None
        both = asked.count((asked.pair[f[1]] + asked.pair[g[1]]) / 2)
        model.add(start[f] == start[g]).only_enforce_if(joint)
        model.add_implication(joint, full[g[1:]])
        model.add_bool_or([after[f], arrived[f], arrived[g], ~joint])
        for op in (f, g):
            model.add(end[op] == start[op] + both).only_enforce_if(joint)
    saved = {}
    for (f, g), joint in pairs.items():
        assert asked.pair is not None
        both = asked.count((asked.pair[f[1]] + asked.pair[g[1]]) / 2)
        saved[f, g] = joint * (time["F"][f[1]] + time["B"][g[1]] - both)
    for d in range(len(asked.caps)):  # what follows from the circuits, and CP-SAT sees more by
        own, intervals = [op for op in ops if asked.device[op[1]] == d], []
        for op in own:
            shown = model.new_bool_var("")  # a pair counts with its F
            model.add(sum(joint for pair, joint in pairs.items() if pair[1] == op) + shown == 1)
            size = model.new_int_var(0, longest, "")
            intervals.append(model.new_optional_interval_var(start[op], size, end[op], shown, ""))
        model.add_no_overlap(intervals)
        work = [time["F"][s] for kind, s, _ in own if kind == "F"]
        work += [
            both + (time["B"][s] - both) * full[s, m]
            for k, s, m in own
            if k == "G"
            for both in [time["I"][s] + time["W"][s]]
        ]
        model.add(goal >= sum(work) - sum(gain for pair, gain in saved.items() if pair[0] in own))
    for m in range(M - 1):  # microbatches are alike: they are numbered as stage 0 runs them
        model.add(start["F", 0, m + 1] >= end["F", 0, m])
    for op in ops:
        model.add(
            goal >= end[op] - (first[asked.device[op[1]]] if asked.objective == "span" else 0)
        )
    model.minimize(goal)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 2
    return solver.value(goal) / asked.steps if solver.solve(model) == cp_model.OPTIMAL else None


def _queue(
    model: Any,
    asked: Pipeline,
    own: list[Op],
    cap: float,
    start: dict[Op, Any],
    end: dict[Op, Any],
    full: dict[tuple[int, int], Any],
    first: Any,
    after: dict[Op, Any],
    pairs: dict[tuple[Op, Op], Any],
) -> None:
    """Put the ops of a device in a circuit, which holds at most the cap; list the pairs that it may
    run.
    """
    most = sum(asked.amounts[s] for kind, s, _ in own if kind == "F") * asked.steps
    held = {
        op: model.new_int_var(0, min(most, int(min(cap, most) * asked.steps + 1e-6)), "")
        for op in own
    }
    change, share = {}, asked.count(asked.after_i)
    for kind, s, m in own:
        freed = {"F": -asked.steps, "G": asked.steps - share + share * full[s, m], "W": share}[kind]
        change[kind, s, m] = -freed * asked.amounts[s]
    number = {op: n for n, op in enumerate(own, 1)}
    arcs: list[tuple[int, int, Any]] = [
        (number[op], number[op], full[op[1:]]) for op in own if op[0] == "W"
    ]
    arcs += [] if own else [(0, 0, ~model.new_constant(0))]
    for op in own:
        begins = model.new_bool_var("")
        arcs += [(0, number[op], begins), (number[op], 0, model.new_bool_var(""))]
        model.add_implication(begins, ~after[op])
        model.add(held[op] == change[op]).only_enforce_if(begins)
        model.add(first == start[op]).only_enforce_if(begins)
    for before, op in product(own, own):
        if before == op:
            continue
        arc = model.new_bool_var("")
        then = [arc]
        if asked.pair is not None and before[0] == "F" and op[0] == "G" and before[2] != op[2]:
            pairs[before, op] = joint = model.new_bool_var("")
            model.add_implication(joint, arc)
            then.append(~joint)
        model.add(start[op] >= end[before]).only_enforce_if(then)
        model.add(start[op] == end[before]).only_enforce_if([*then, after[op]])
        model.add(held[op] == held[before] + change[op]).only_enforce_if(arc)
        arcs.append((number[before], number[op], arc))
    model.add_circuit(arcs)


def replay(
    asked: Pipeline, queues: list[list[tuple[str, int, int, bool]]]
) -> tuple[float, float, list[float]]:
    """Run queues of (kind, stage, microbatch, whether a pair with the next): makespan, span and
    peak of each device.

    Raises:
        AssertionError: an op is missing, runs twice or never, or is on another device than its
            stage.
    """
    S, M = len(asked.device), asked.microbatches
    ops = [(k, s, m) for queue in queues for k, s, m, _ in queue]
    kinds = {
        (s, m): sorted(k for k, *where in ops if where == [s, m])
        for s in range(S)
        for m in range(M)
    }
    assert all(found in (["B", "F"], ["F", "I", "W"]) for found in kinds.values())
    assert all(asked.device[s] == d for d, queue in enumerate(queues) for _, s, _, _ in queue)
    end: dict[Op, float] = {}
    spans, peaks, heads, now = (
        [0.0] * len(queues),
        [0.0] * len(queues),
        [0] * len(queues),
        [0.0] * len(queues),
    )
    begun: list[float | None] = [None] * len(queues)

    def arrival(kind: str, s: int, m: int) -> float | None:
        source, latency = asked.input_of(("G" if kind in "BI" else kind, s, m))
        return (
            0.0
            if source is None
            else end[source] + latency / asked.steps
            if source in end
            else None
        )

    moved = True
    while moved:
        moved = False
        for d, queue in enumerate(queues):
            while heads[d] < len(queue):
                unit = queue[heads[d] : heads[d] + 1 + queue[heads[d]][3]]
                arrivals = [arrival(*op[:3]) for op in unit]
                if None in arrivals:
                    break
                starts = max(now[d], *(at for at in arrivals if at is not None))
                time = sum(asked.times[k][s] for k, s, _, _ in unit)
                if len(unit) == 2 and asked.pair is not None and "B" in (unit[0][0], unit[1][0]):
                    time = (asked.pair[unit[0][1]] + asked.pair[unit[1][1]]) / 2
                now[d], heads[d], moved = starts + time, heads[d] + len(unit), True
                begun[d] = starts if begun[d] is None else begun[d]
                for k, s, m, _ in unit:
                    end["G" if k in "BI" else k, s, m] = now[d]
    assert heads == list(map(len, queues))
    for d, queue in enumerate(queues):
        held = 0.0
        for k, s, _, _ in queue:
            held += {"F": 1, "B": -1, "I": asked.after_i - 1, "W": -asked.after_i}[
                k
            ] * asked.amounts[s]
            peaks[d] = max(peaks[d], held)
        spans[d] = now[d] - (begun[d] or 0.0)
    return max(now), max(spans), peaks
