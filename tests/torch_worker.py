"""What the processes of the tests with real torch.distributed run; imported by name in each of
them.
"""

import json
import os
import queue
import threading
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

WIDTH = 6


def part(stage: int) -> torch.nn.Module:
    """One stage of the model, the same in every process."""
    torch.manual_seed(1000 + stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double()


def batch(microbatches: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(7)
    shape = 2 * microbatches, WIDTH
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


def reference(stages: int, microbatches: int) -> dict[str, torch.Tensor]:
    """Gradients of the whole model in one process, by plain autograd."""
    parts = [part(stage) for stage in range(stages)]
    for x, y in zip(*(t.chunk(microbatches) for t in batch(microbatches)), strict=True):
        (loss(torch.nn.Sequential(*parts)(x), y) / microbatches).backward()
    return {
        f"{s}.{name}": p.grad
        for s, module in enumerate(parts)
        for name, p in module.named_parameters()
    }


def worst_gradient(job: dict[str, Any], group: Any, rank: int) -> float:
    """Run a schedule file in torch's own runtime; the largest relative error of a gradient on this
    rank.
    """
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    mine, last = job["stages"][rank], max(max(stages) for stages in job["stages"])
    modules = {stage: part(stage) for stage in mine}
    device = torch.device("cpu")
    stages: Any = [PipelineStage(modules[s], s, last + 1, device, group=group) for s in mine]
    runtime = _PipelineScheduleRuntime(stages, job["microbatches"], loss_fn=loss, scale_grads=True)
    runtime._load_csv(job["csv"], format=job["format"])
    x, y = batch(job["microbatches"])
    inputs = (x,) if 0 in mine else ()
    outputs: dict[str, Any] = {"target": y, "losses": []} if last in mine else {}
    runtime.step(*inputs, **outputs, return_outputs=False)
    expected = reference(last + 1, job["microbatches"])
    worst = 0.0
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            wanted = expected[f"{stage}.{name}"]
            assert parameter.grad is not None, f"{stage}.{name} has no gradient"
            worst = max(worst, float((parameter.grad - wanted).abs().max() / wanted.abs().max()))
    return worst


def run_pipelines(rank: int, world: int, folder: str, jobs: list[dict[str, Any]]) -> None:
    """Run every job on the first free group of its size, and write each one's outcome."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(f"{folder}/store", world)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    everyone = dist.new_group(list(range(world)))
    results: dict[str, Any] = {}
    small = 0
    for job in jobs:
        group, place = everyone, rank
        if len(job["stages"]) == 2:
            small += 1
            if rank // 2 != small % 2:
                continue
            group, place = halves[rank // 2], rank % 2
        try:
            results[job["name"]] = worst_gradient(job, group, place)
        except Exception as error:
            results[job["name"]] = repr(error)
            break
    Path(folder, f"pipelines{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


STEPS = 3


def record_schedules(
    rank: int, world: int, folder: str, names: list[str], chunks: list[int], csv: str
) -> None:
    """Run each of torch's schedules with and without a recording, and write whether all numbers are
    the same.
    """
    from torch.distributed.pipelining import PipelineStage, schedules

    from ppsim.record import record

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(f"{folder}/store", world)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    outcome = {}
    for name, count in zip(names, chunks, strict=True):
        last = world * count - 1
        mine = [rank] if count == 1 else [rank, last - rank if "V" in name else rank + world]
        seen = []
        for recorded in (False, True):
            modules = {stage: part(stage) for stage in mine}
            stages: Any = [
                PipelineStage(modules[s], s, last + 1, torch.device("cpu")) for s in mine
            ]
            runs = name == "csv"
            kind = schedules._PipelineScheduleRuntime if runs else getattr(schedules, name)
            single = issubclass(kind, schedules.PipelineScheduleSingle)
            schedule = kind(stages[0] if single else stages, 4, loss_fn=loss)
            if runs:
                schedule._load_csv(csv, format="compute_only")
            with record(f"{folder}/{name}") if recorded else nullcontext():
                seen.append(train(schedule, mine, last, modules))
        outcome[name] = seen[0] == seen[1]
    Path(folder, f"recorded{rank}.json").write_text(json.dumps(outcome))
    dist.barrier()
    dist.destroy_process_group()


def train(
    schedule: Any, mine: list[int], last: int, modules: dict[int, torch.nn.Module]
) -> list[list[float]]:
    """Train some steps, evaluate after each where torch can, and list every loss, output and
    gradient.
    """
    (x, y), numbers = batch(4), []
    for _ in range(STEPS):
        losses: list[torch.Tensor] = []
        inputs = (x,) if 0 in mine else ()
        output = schedule.step(*inputs, **({"target": y, "losses": losses} if last in mine else {}))
        numbers += [t.flatten().tolist() for t in (*losses, *([] if output is None else [output]))]
        for module in modules.values():
            numbers += [
                p.grad.flatten().tolist() for p in module.parameters() if p.grad is not None
            ]
            with torch.no_grad():
                for p in module.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
        if len(mine) == 1:  # torch's V cannot: it looks for gradients
            schedule.eval(*inputs, **({"target": y, "losses": []} if last in mine else {}))
    return numbers


WAIT, SEND = -1, 1


def run_queues(
    rank: int, world: int, folder: str, orders: list[list[list[list[int]]]], seconds: float
) -> None:
    """Run every order at once, each in a thread and a group of its own, with sends and receives
    that block.

    An order holds a list of steps per rank: peer, 1 to send or 0 to receive, and the number that is
    sent or expected.
    """
    follow_all(rank, world, folder, orders, seconds, follow_blocking)


def run_communicators(
    rank: int, world: int, folder: str, orders: list[list[list[list[int]]]], seconds: float
) -> None:
    """Run every order at once, each with a thread that posts and one for each queue that sends and
    receives in order.

    A step has the number of its queue besides; a step of kind ``WAIT`` waits for the message of
    that number.
    """
    follow_all(rank, world, folder, orders, seconds, follow_queues)


def follow_blocking(group: Any, steps: list[list[int]], seconds: float) -> str:
    """Carry out one step after another."""
    outcomes = [carry(group, *step) for step in steps]
    return "wrong data" if "wrong data" in outcomes else "right"


def follow_queues(group: Any, steps: list[list[int]], seconds: float) -> str:
    """Post each step to its queue, and stop at each wait until its message is there."""
    queues: dict[int, queue.SimpleQueue[Any]] = {}
    arrived = {label: threading.Event() for _, kind, label, _ in steps if kind != SEND}
    outcomes: list[str] = []

    def serve(posted: Any) -> None:
        for peer, kind, label, _ in iter(posted.get, None):
            try:
                outcomes.append(carry(group, peer, kind, label))
            except RuntimeError:
                outcomes.append("hangs")
            if kind != SEND:
                arrived[label].set()

    threads = []
    for step in steps:
        _, kind, label, number = step
        if kind == WAIT:
            if not arrived[label].wait(seconds):
                return "hangs"
            continue
        if number not in queues:
            queues[number] = queue.SimpleQueue()
            threads.append(threading.Thread(target=serve, args=(queues[number],), daemon=True))
            threads[-1].start()
        queues[number].put(step)
    for posted in queues.values():
        posted.put(None)
    for thread in threads:
        thread.join(2 * seconds)
    return next((outcome for outcome in ("hangs", "wrong data") if outcome in outcomes), "right")


def carry(group: Any, peer: int, kind: int, label: int) -> str:
    """Send or receive one number, and wait until it has been."""
    if kind == SEND:
        group.send([torch.tensor([label])], peer, 0).wait()
        return "right"
    got = torch.zeros(1, dtype=torch.int64)
    group.recv([got], peer, 0).wait()
    return "right" if int(got) == label else "wrong data"


def follow_all(
    rank: int,
    world: int,
    folder: str,
    orders: list[list[list[list[int]]]],
    seconds: float,
    follow: Any,
) -> None:
    """Follow every order in a thread and a group of its own, and write what became of each."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(f"{folder}/store", world)
    outcomes = [""] * len(orders)
    groups = [
        dist.ProcessGroupGloo(
            dist.PrefixStore(f"order{n}", store), rank, world, timedelta(seconds=seconds)
        )
        for n in range(len(orders))
    ]

    def run(number: int) -> None:
        try:
            outcomes[number] = follow(groups[number], orders[number][rank], seconds)
        except RuntimeError:
            outcomes[number] = "hangs"

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(orders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * seconds)
    Path(folder, f"queues{rank}.json").write_text(
        json.dumps([outcome or "hangs" for outcome in outcomes])
    )
    store.set(f"done{rank}", "")
    store.wait([f"done{r}" for r in range(world)], timedelta(seconds=60))
    os._exit(0)  # a group that hangs cannot be taken down
