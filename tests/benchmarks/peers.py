"""ppsim beside the ways to simulate a pipeline that pip installs, and beside C: one run, processor
seconds, ratios.

    pip install simpy networkx torch
    python -m tests.benchmarks.peers

Every model times 1F1B from its shape to the makespan and must come to the same makespan.
"""

import importlib
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ppsim.core.costs import costs_for
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from tests.benchmarks import limit
from tests.benchmarks.clock import compile_always, duration, machine, seconds

SHAPES = ((8, 64), (16, 256), (64, 512), (256, 2048), (1024, 4096))
MOST_OPS_OF_PEERS = 100_000
FORWARD, BACKWARD = 1.0, 2.0


def ppsim(devices: int, microbatches: int) -> float:
    schedule = generate("1f1b", devices=devices, microbatches=microbatches)
    return simulate(schedule, costs_for(schedule)).makespan


def c_limit(devices: int, microbatches: int) -> float:
    schedule = limit.one_f_one_b(devices, microbatches)
    return float(limit.longest_path(schedule, costs_for(schedule))[1].max())


def orders(devices: int, microbatches: int) -> Iterator[list[tuple[str, int]]]:
    """1F1B as each peer would write it: one list of (kind, microbatch) per device."""
    for device in range(devices):
        warm_up = min(devices - device - 1, microbatches)
        order = [("F", m) for m in range(warm_up)]
        for m in range(microbatches - warm_up):
            order += [("F", warm_up + m), ("B", m)]
        yield order + [("B", m) for m in range(microbatches - warm_up, microbatches)]


def simpy_model(devices: int, microbatches: int) -> float:
    """The textbook model: a process per device, an event per op."""
    import simpy

    world = simpy.Environment()
    done = {
        (k, d, m): world.event() for k in "FB" for d in range(devices) for m in range(microbatches)
    }

    def device(d: int, order: list[tuple[str, int]]) -> Generator[simpy.Event, Any, None]:
        for kind, m in order:
            if kind == "F" and d > 0:
                yield done["F", d - 1, m]
            if kind == "B":
                yield done["B", d + 1, m] if d < devices - 1 else done["F", d, m]
            yield world.timeout(FORWARD if kind == "F" else BACKWARD)
            done[kind, d, m].succeed()

    for d, order in enumerate(orders(devices, microbatches)):
        world.process(device(d, order))
    world.run()
    return float(world.now)


def networkx_model(devices: int, microbatches: int) -> float:
    """Ops as nodes, waits as edges as heavy as the op they lead from, longest path."""
    networkx = importlib.import_module("networkx")  # untyped

    graph = networkx.DiGraph()
    weight = {"F": FORWARD, "B": BACKWARD}
    for d, order in enumerate(orders(devices, microbatches)):
        ops = [(kind, d, m) for kind, m in order]
        graph.add_weighted_edges_from((a, b, weight[a[0]]) for a, b in pairwise(ops))
        for kind, _, m in ops:
            if kind == "F" and d > 0:
                graph.add_edge(("F", d - 1, m), ("F", d, m), weight=FORWARD)
            if kind == "B" and d < devices - 1:
                graph.add_edge(("B", d + 1, m), ("B", d, m), weight=BACKWARD)
        graph.add_edge(ops[-1], "end", weight=BACKWARD)
    return float(networkx.dag_longest_path_length(graph))


def torch_model(devices: int, microbatches: int) -> float:
    """torch's own: send and receive put in, then a unit-step simulation; its steps are not
    times.
    """
    from torch.distributed.pipelining import schedules as pipelining

    kinds = {
        "F": pipelining._ComputationType.FORWARD,
        "B": pipelining._ComputationType.FULL_BACKWARD,
    }
    order = {
        d: [pipelining._Action(d, kinds[kind], m) for kind, m in queue]
        for d, queue in enumerate(orders(devices, microbatches))
    }
    lowered = pipelining._add_send_recv(order, lambda stage: stage, devices)
    pipelining._simulate_comms_compute(lowered, lambda stage: stage, devices)
    return (microbatches + devices - 1) * (FORWARD + BACKWARD)


def models() -> dict[str, Callable[[int, int], float]]:
    """Those that can run here."""
    found: dict[str, Callable[[int, int], float]] = {"ppsim": ppsim}
    if shutil.which("cc"):
        found["C"] = c_limit
    for name, module, model in (
        ("SimPy", "simpy", simpy_model),
        ("networkx", "networkx", networkx_model),
        ("torch", "torch", torch_model),
    ):
        try:
            __import__(module)
        except ImportError:
            continue
        found[name] = model
    return found


def main() -> None:
    """Print both tables as Markdown."""
    compile_always()
    found = models()
    ppsim(256, 1024)  # loads the compiled kernel and settles the allocator
    print(
        f"1F1B from its shape to the makespan, processor time ({machine()}); in brackets, ppsim's "
        f"advantage\n"
    )
    heading(["devices x microbatches", "ops", *found])
    for devices, microbatches in SHAPES:
        ops = 2 * devices * microbatches
        peers = {
            name: m
            for name, m in found.items()
            if name in ("ppsim", "C") or ops <= MOST_OPS_OF_PEERS
        }
        times = {name: timed(model, devices, microbatches) for name, model in peers.items()}
        row([f"{devices} x {microbatches}", f"{ops:,}", *(cell(name, times) for name in found)])
    if "C" in found:
        print(
            "\nExecution alone (dependencies, durations, longest path): ppsim's time over that of "
            "C\n"
        )
        names = ("1f1b", "interleaved", "zb-1p", "dualpipe-v")
        heading(["ops, about", *names])
        for devices, microbatches in SHAPES:
            row(
                [
                    f"{2 * devices * microbatches:,}",
                    *(over_limit(name, devices, microbatches) for name in names),
                ]
            )


def timed(model: Callable[[int, int], float], devices: int, microbatches: int) -> float:
    """Seconds a model takes for a shape, its answer checked."""
    if model(devices, microbatches) != (microbatches + devices - 1) * (FORWARD + BACKWARD):
        raise RuntimeError(f"{model.__name__} disagrees at {devices} x {microbatches}")
    return seconds(lambda: model(devices, microbatches))


def cell(name: str, times: dict[str, float]) -> str:
    """A time, and how many times ppsim's it is."""
    if name not in times or name == "ppsim":
        return duration(times[name]) if name in times else ""
    ratio = times[name] / times["ppsim"]
    return f"{duration(times[name])} ({ratio:{'.2f' if ratio < 10 else ',.0f'}}x)"


def over_limit(name: str, devices: int, microbatches: int) -> str:
    """Execution over C for about the ops of 1F1B at that shape."""
    ops_per_microbatch = {"1f1b": 2, "interleaved": 4, "zb-1p": 3, "dualpipe-v": 5}[name]
    each = max(2 * devices, 2 * microbatches // ops_per_microbatch // devices * devices)
    schedule = generate(name, devices=devices, microbatches=each)
    costs = costs_for(schedule, comm=0.1)
    ours = seconds(lambda: simulate(fresh(schedule), costs))
    return f"{ours / seconds(lambda: limit.longest_path(schedule, costs)):.2f}"


def fresh(schedule: Schedule) -> Schedule:
    """The schedule without what earlier runs have found out about it."""
    return replace(schedule)


def heading(cells: list[str]) -> None:
    """The first two lines of a table."""
    row(cells)
    row(["---"] * len(cells))


def row(cells: list[str]) -> None:
    """One line of a table."""
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
