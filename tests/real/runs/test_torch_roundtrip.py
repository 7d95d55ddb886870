"""Schedules of ours run in real torch processes, and real processes do what check predicts."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for
from ppsim.core.draft import Draft
from ppsim.core.ops import RECEIVES, SENDS, Kind
from ppsim.core.schedule import Schedule, place
from ppsim.core.split_backward import merge_backwards, split_backwards
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.inputs.check.checks import check
from ppsim.inputs.check.messages import ExpectedMessages
from ppsim.inputs.check.queues import QUEUES
from ppsim.inputs.check.tables import Tables
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import families, generate
from ppsim.search.orders.optimize import optimize
from ppsim.search.problem import Problem
from ppsim.show.files.document import Document, save
from ppsim.show.files.writers import csv
from tests.real_runs import spawn

pytestmark = pytest.mark.torch
RECORDS = json.loads((Path(__file__).parents[2] / "data" / "torch" / "comms.json").read_text())
SECONDS = 3.0  # how long an order may stand still before it counts as hanging


def random_order(
    seed: int, devices: int, chunks: int, microbatches: int, placement: str
) -> Schedule:
    """Any order that can run: ready ops drawn at random, forwards of the last stage in turn as
    torch needs it.
    """
    rng, stages = random.Random(seed), devices * chunks
    home = generate(
        "dualpipe-v" if placement == "v" else "looped-bfs",
        devices=devices,
        microbatches=4 * devices,
    )
    where = home.placement.devices[0][:stages]
    split = {(s, m): rng.random() < 0.5 for s in range(stages) for m in range(microbatches)}
    todo = {(s, "F", m) for s, m in split} | {
        (s, k, m) for (s, m), two in split.items() for k in ("IW" if two else "B")
    }
    rows: list[list[str]] = [[] for _ in range(devices)]
    done: set[tuple[int, str, int]] = set()

    def ready(op: tuple[int, str, int]) -> bool:
        s, kind, m = op
        if kind == "F":
            turn = s < stages - 1 or m == 0 or (s, "F", m - 1) in done
            return turn and (s == 0 or (s - 1, "F", m) in done)
        if kind == "W":
            return (s, "I", m) in done
        return (s, "F", m) in done and (
            s == stages - 1 or (s + 1, "I" if split[s + 1, m] else "B", m) in done
        )

    while todo:
        op = rng.choice(sorted(filter(ready, todo)))
        todo.remove(op)
        done.add(op)
        rows[where[op[0]]].append("{}{}{}".format(*op))
    return parse("\n".join(",".join(row) for row in rows), "random").schedule()


def all_schedules() -> dict[str, Schedule]:
    """Every family that torch's runtime can carry at 2 and 4 devices, torch's own zero bubble,
    merged and split backwards, and random orders.
    """
    found = {}
    for family in filter(lambda family: not family.lanes, families()):
        for devices in (2, 4):
            for microbatches in (2 * devices, 2 * devices + 1):
                try:
                    schedule = generate(family.name, devices=devices, microbatches=microbatches)
                except InputError:
                    continue
                if (
                    schedule.placement.n_replicas == schedule.n_slices == 1
                    and not schedule.only_forwards
                ):
                    found[f"{family.name}-{devices}-{microbatches}"] = schedule
                    break
    for record in RECORDS:
        if "ZeroBubble" in record["source"] and (record["P"], record["M"]) in ((2, 4), (4, 4)):
            schedule = parse("\n".join(record["compute"]), "torch").schedule()
            found[f"{record['source'].split('.')[-2]}-{record['P']}-{schedule.n_chunks}"] = schedule
    for name in ("zb-1p", "zb-h2", "interleaved"):
        schedule = generate(name, devices=4, microbatches=8)
        change = split_backwards if name == "interleaved" else merge_backwards
        found[f"{name}-{change.__name__}-4"] = change(schedule)
    for seed in range(6):
        devices, placement = (2, 4)[seed % 2], ("loop", "v")[seed // 2 % 2]
        found[f"random-{seed}-{devices}"] = random_order(seed, devices, 2, 3, placement)
    for devices, placement, cap in ((4, "linear", 3), (4, "v", 5), (2, "v", 3)):
        found[f"optimized-{placement}-{devices}"] = optimized(devices, placement, cap)
    return found


def optimized(devices: int, placement: str, cap: int) -> Schedule:
    """What a search for uneven stages finds, whose devices run at capacity: no schedule of the
    list.
    """
    stages = devices * (2 if placement == "v" else 1)
    f, i, w = (
        np.resize(times, stages) for times in ([3.0, 5.0, 4.0], [4.0, 2.0], [1.0, 3.0, 2.0, 2.0])
    )
    asked = Problem(
        place(placement, devices, stages), 5, Costs(np.stack([f, i + w, i, w]), 1.0), cap
    )
    return optimize([asked], [[]], time_limit=0.5).solution.schedule


def test_exported_schedules_run_in_torch_with_the_gradients_of_one_process(tmp_path):
    """All schedules, both formats, 2 and 4 processes, float64: equal to a single process's to
    1e-12.
    """
    torch = pytest.importorskip("torch")
    # from 2.15 on, torch wants its own waits in compute_comms
    comms = torch.__version__.startswith("2.13")
    jobs = []
    for name, schedule in all_schedules().items():
        timeline = simulate(schedule, costs_for(schedule))
        stages = [
            np.flatnonzero(schedule.placement.devices[0] == d).tolist()
            for d in range(schedule.n_devices)
        ]
        shape = {"microbatches": schedule.n_microbatches, "stages": stages}
        path = tmp_path / f"{name}.csv"
        save(Document((timeline,), (name,)), str(path))
        jobs.append({"name": name, "csv": str(path), "format": "compute_only", **shape})
        if comms:
            lowered = lower(
                schedule, ("torch", "early", "even-first")[len(jobs) % 3], reduce_grad=True
            )
            path = tmp_path / f"{name}-comms.csv"
            path.write_text(csv.text(lowered.schedule))
            jobs.append(
                {"name": f"{name}-comms", "csv": str(path), "format": "compute_comms", **shape}
            )
    spawn("run_pipelines", 4, 240, tmp_path, jobs)
    results: dict[str, Any] = {}
    for rank in range(4):
        for name, worst in json.loads((tmp_path / f"pipelines{rank}.json").read_text()).items():
            results[name] = (
                max(results.get(name, 0.0), worst) if isinstance(worst, float) else worst
            )
    assert {
        name: worst
        for name, worst in results.items()
        if not (isinstance(worst, float) and worst <= 1e-12)
    } == {}
    assert set(results) == {job["name"] for job in jobs}


def shaken(rng: random.Random) -> Draft:
    """A small lowered order with some sends and receives moved, each still on its side of its
    op.
    """
    name, chunks = rng.choice(
        [("1f1b", 1), ("gpipe", 1), ("zb-1p", 1), ("interleaved", 2), ("looped-bfs", 2)]
    )
    schedule = generate(
        name, devices=rng.choice((2, 3)), chunks=chunks, microbatches=rng.choice((2, 3))
    )
    draft = Draft.from_schedule(
        lower(schedule, rng.choice(("early", "torch", "prefetch:0", "prefetch:1"))).schedule
    )
    for _ in range(rng.choice((0, 1, 2, 4))):
        messages = ExpectedMessages.from_draft(draft, Tables.from_draft(draft))
        message = rng.randrange(len(messages.send))
        queue = draft.offsets
        if rng.random() < 0.5:
            op, least = int(messages.send[message]), int(messages.producer[message]) + 1
            most = int(queue[draft.device[op] + 1])
        else:
            op, most = int(messages.receive[message]), int(messages.consumer[message])
            least = int(queue[draft.device[op]])
        draft = draft.move(op, rng.randint(least, most))
    return Draft.from_schedule(draft.whole_schedule())


def predicted(draft: Draft) -> str:
    kinds = {fault.kind for fault in check(draft, ("blocking",)).faults}
    assert kinds <= {"deadlock", "fifo"}, kinds
    return "hangs" if "deadlock" in kinds else "wrong data" if kinds else "right"


def steps(draft: Draft) -> list[list[list[int]]]:
    """Per rank, what the worker does: peer, whether it sends, and a number for what travels."""
    messages = ExpectedMessages.from_draft(draft, Tables.from_draft(draft))
    label = np.zeros(len(draft), np.int64)
    peer = np.zeros(len(draft), np.int64)
    for ends, others in ((messages.send, messages.receive), (messages.receive, messages.send)):
        label[ends] = messages.producer
        peer[ends] = draft.device[others]
    comm = np.isin(draft.kind, SENDS + RECEIVES)
    sends = np.isin(draft.kind, (Kind.SEND_F, Kind.SEND_B))
    rows = np.stack([peer, sends, label], axis=1)
    return [rows[comm & (draft.device == device)].tolist() for device in range(3)]


def test_real_blocking_processes_do_what_check_predicts(tmp_path):
    """Random orders under gloo with sends that block: those accepted finish with the right data,
    those called a deadlock hang, and those called a mismatch get wrong data, without one exception.
    """
    rng = random.Random(20)
    drafts: list[Draft] = []
    tally: Counter[str] = Counter()
    while len(drafts) < 30:
        draft = shaken(rng)
        if tally[predicted(draft)] < 10:
            tally[predicted(draft)] += 1
            drafts.append(draft)
    spawn("run_queues", 3, 120, tmp_path, [steps(draft) for draft in drafts], SECONDS)
    assert outcomes_in(tmp_path) == [predicted(draft) for draft in drafts]


def outcomes_in(folder: Path) -> list[str]:
    """What became of each order, over its three ranks."""
    ranks = [json.loads((folder / f"queues{rank}.json").read_text()) for rank in range(3)]
    return [
        next((o for o in ("hangs", "wrong data") if o in outcome), "right")
        for outcome in zip(*ranks, strict=True)
    ]


def posts(draft: Draft, per: str) -> list[list[list[int]]]:
    """Per rank, what is posted to which queue of communicators, and where an op waits for what it
    received.
    """
    messages = ExpectedMessages.from_draft(draft, Tables.from_draft(draft))
    sides = zip(
        messages.send.tolist(), messages.receive.tolist(), messages.producer.tolist(), strict=True
    )
    sent = {send: (receive, label) for send, receive, label in sides}
    received = {receive: (send, label) for send, (receive, label) in sent.items()}
    needed = dict(zip(messages.consumer.tolist(), messages.producer.tolist(), strict=True))
    rows: list[list[list[int]]] = [[] for _ in range(3)]
    for op, device in enumerate(draft.device.tolist()):
        if op in needed:
            rows[device].append([0, -1, needed[op], 0])
        if op not in sent and op not in received:
            continue
        outgoing = op in sent
        other, label = sent[op] if outgoing else received[op]
        peer = int(draft.device[other])
        number = {"edge": 2 * peer + outgoing, "pair": 2 * peer, "rank": 0}[per]
        rows[device].append([peer, int(outgoing), label, number])
    return rows


def test_real_communicators_hang_where_check_says_so(tmp_path):
    """Queues of blocking sends and receives over gloo, one per direction, pair or device: each
    order that check passes delivers the right data, and each one that it calls a deadlock hangs.
    """
    cases, expected = [], []
    for name in ("1f1b", "gpipe", "zb-1p", "interleaved"):
        schedule = generate(name, devices=3, microbatches=3)
        for order in ("early", "deferred", "prefetch:1"):
            draft = Draft.from_schedule(lower(schedule, order).schedule)
            for per in QUEUES:
                kinds = [fault.kind for fault in check(draft, ("overlap",), queues=per).faults]
                assert set(kinds) <= {"deadlock"}
                cases.append(posts(draft, per))
                expected.append("hangs" if kinds else "right")
    assert set(expected) == {"hangs", "right"}
    spawn("run_communicators", 3, 120, tmp_path, cases, SECONDS)
    assert outcomes_in(tmp_path) == expected
