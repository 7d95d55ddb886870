"""The parts of a GPU run: each measures one thing, writes its files, and returns what it found.

Imports torch; every part runs in a process that has not used the GPU before.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.commands import ROOT, invoke

TRACE_LIMIT = 1 << 20  # bytes of the Kineto trace
ON_PARTS = ("gpipe", "1f1b", "interleaved", "zb-1p", "zb-v", "v-half")
SPLIT_REPEATS = 7
AHEAD_CYCLES = 40_000_000  # about 20 ms of GPU clock
REPLAY, HELD_OUT, RANKED, GRADIENT = 0.03, 0.08, 0.95, 1e-9  # goals


@dataclass(frozen=True)
class Size:
    """How large everything is: of a real GPU, or of the stand-in."""

    hidden: int = 4096
    heads: int = 32
    vocab: int = 32000
    repeats: int = 10
    max_bytes: int = 64 << 20
    # hidden, tokens and layers of a stage whose backward is split
    split: tuple[tuple[int, int, int], ...] = (
        (1024, 4096, 1),
        (2048, 2048, 1),
        (2048, 4096, 1),
        (2048, 4096, 4),
        (4096, 1024, 1),
        (4096, 2048, 1),
        (4096, 4096, 1),
        (4096, 4096, 4),
        (4096, 8192, 1),
        (8192, 4096, 1),
    )
    copy_bytes: tuple[int, ...] = (1 << 20, 16 << 20, 64 << 20, 256 << 20)
    runs: int = 5  # repetitions of a schedule
    steps: int = 12  # training steps with and without the recorder
    schedules: tuple[str, ...] = ON_PARTS


SMALL = Size(
    hidden=64,
    heads=32,
    vocab=128,
    repeats=2,
    max_bytes=4096,
    split=((32, 16, 1), (64, 32, 2)),
    copy_bytes=(1 << 16, 1 << 20),
    runs=2,
    steps=3,
    schedules=("1f1b", "zb-v"),  # one stage a device and two, whole backwards and split
)


@dataclass(frozen=True)
class Bench:
    """Where a part writes, and what it measures on.

    Attributes:
        out: the folder of results.
        device: ``cuda`` or ``stand-in``.
        size: how large everything is.
    """

    out: Path
    device: str
    size: Size


@dataclass(frozen=True)
class Finding:
    """One line of the table: what was measured, its text, and whether its goal was met; None
    without a goal.
    """

    what: str
    text: str
    met: bool | None = None


Found = Iterator[Finding]


def command(*words: str) -> Any:
    """Run a command of ppsim in this process; returns its output (RuntimeError: it failed)."""
    result = invoke(*words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise RuntimeError(f"{result.exception} (ppsim {' '.join(words)})") from result.exception
    return result.stdout


def model_words(size: Size, *, tokens: int, layers: int, vocab: int) -> list[str]:
    """Options of a model."""
    given = {
        "hidden": size.hidden,
        "heads": size.heads,
        "seq": tokens,
        "layers": layers,
        "vocab": vocab,
        "mbs": 1,
    }
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def gpu_tests(bench: Bench) -> Found:
    """The suite's tests that need a GPU."""
    import subprocess
    import sys

    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        "tests/real",
    ]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    print(ran.stdout[-8000:], ran.stderr[-2000:])
    last = (ran.stdout.strip().splitlines() or ["nothing"])[-1]
    yield Finding("pytest -m gpu", last.strip("= "), ran.returncode == 0)


def split_backward(bench: Bench) -> Found:
    """I + W over B of one layer, for several sizes: what a schedule that splits backwards pays."""
    import torch

    from ppsim.inputs.profile.profile import Workload
    from ppsim.real.calibration import clock, stage
    from ppsim.real.calibration.ops import collect, time_once
    from ppsim.real.calibration.stage_ops import stage_ops
    from tests.gpu.deferred import deferred_ops

    rows, usual = list[dict[str, Any]](), clock.LEAD_CYCLES
    for hidden, tokens, layers in bench.size.split:
        model = Workload(hidden, max(1, hidden // 128), tokens, 1, layers, "bfloat16", 0)
        for way in ("autograd", "deferred"):
            module = stage.layers(model, layers, "cuda")
            ops = stage_ops(module, first=False) if way == "autograd" else deferred_ops(module)
            run = partial(time_once, ops, partial(stage.activations, model, "cuda"), pairs=False)
            for issued in ("as it runs", "ahead"):
                # With a long lead the host has issued an op before the GPU begins it: the GPU's own
                # time is left.
                clock.LEAD_CYCLES = usual if issued == "as it runs" else AHEAD_CYCLES
                (found,) = collect(
                    [("", partial(run, clock.stopwatch("cuda")))], SPLIT_REPEATS, 2, lambda _: None
                )
                ms, host = (
                    {
                        kind: statistics.median(each[column] for each in times)
                        for kind, times in found.items()
                    }
                    for column in (0, 1)
                )
                rows.append(
                    {
                        "hidden": hidden,
                        "tokens": tokens,
                        "layers": layers,
                        "way": way,
                        "issued": issued,
                    }
                )
                rows[-1] |= {"ms": ms, "host_ms": host}
            clock.LEAD_CYCLES = usual
            del module, ops, run
            gc.collect()  # a layer whose products are deferred refers to itself
            torch.cuda.empty_cache()
            runs, ahead = ((row["ms"]["I"] + row["ms"]["W"]) / row["ms"]["B"] for row in rows[-2:])
            yield Finding(
                f"{hidden} wide, {tokens} tokens, {layers} layers, {way}",
                f"(I+W)/B {runs:.3f}, issued ahead {ahead:.3f}; ahead "
                + " ".join(f"{kind} {ms[kind]:.3f}" for kind in "FBIW")
                + " ms, host "
                + " ".join(f"{kind} {host[kind]:.2f}" for kind in "FBIW"),
            )
    save(bench, "split", rows)


def calibrate(bench: Bench) -> Found:
    """A stage of real size, twice; how far the medians move between the two."""
    from ppsim.inputs.profile.profile import read

    size, profiles = bench.size, []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            target = Path(folder, f"{number}.toml")
            words = model_words(
                size, tokens=size.hidden, layers=4 if size.hidden > 1000 else 1, vocab=size.vocab
            )
            words += ["--dtype", "bfloat16", "--device", "cuda", "--repeats", str(size.repeats)]
            command("calibrate", "-o", str(target), "--max-bytes", str(size.max_bytes), *words)
            profiles.append(read(str(target)))
        shutil.copy(Path(folder, "1.toml"), bench.out / "profile.toml")
    first, second = (
        {(o.part, o.layers, o.kind, o.cache, o.launch): o for o in p.op} for p in profiles
    )
    moves = [
        abs(second[key].median_ms / first[key].median_ms - 1)
        for key in first
        if key in second and key[1]
    ]
    yield Finding(
        "medians between two runs",
        f"move {np.median(moves):.2%}, worst {max(moves):.2%}",
        max(moves) < 0.05,
    )
    spreads = [o.p90_ms / o.p10_ms for o in second.values() if o.layers and o.launch == "eager"]
    yield Finding("p90 over p10", f"median {np.median(spreads):.3f}, worst {max(spreads):.3f}")
    for part in ("layers", "embedding", "head"):
        for op in second.values():
            if op.part == part and op.cache == "cold" and op.launch == "eager":
                yield Finding(
                    f"{part} {op.layers or ''} {op.kind}",
                    f"{op.median_ms:.3f} ms, host {op.host_ms:.3f}",
                )
    for held in profiles[1].activation:
        yield Finding(f"bytes held, {held.part} {held.layers or ''}", str(held))


def kinds_of_layer(bench: Bench) -> Found:
    """Attention fused and eager, and a mixture of experts."""
    from ppsim.inputs.profile.profile import read

    os.environ["PPSIM_STAGE_HIDDEN"] = str(bench.size.hidden)
    rows = {}
    for name in ("fused", "eager", "mixture"):
        with tempfile.TemporaryDirectory() as folder:
            target = str(Path(folder, "p.toml"))
            words = [
                "--module",
                f"{Path(__file__).with_name('stages.py')}:{name}",
                "--stages",
                "3",
                "--device",
                "cuda",
            ]
            words += ["--sizes", "1024", "--repeats", str(bench.size.repeats)]
            command("calibrate", "-o", target, *words)
            profile = read(target)
        ms = {op.kind: op.median_ms for op in profile.op if op.stage == 1}
        rows[name] = {"ms": ms, "stage": str(profile.stage[1])}
        yield Finding(
            name,
            f"(I+W)/B {(ms['I'] + ms['W']) / ms['B']:.3f}  F {ms['F']:.3f} B {ms['B']:.3f} I "
            f"{ms['I']:.3f} W {ms['W']:.3f} FB {ms.get('FB', 0):.3f} ms  {profile.stage[1]}",
        )
    save(bench, "layers", rows)


def _on_parts(bench: Bench, devices: int, tokens: int) -> Found:
    """Schedules on parts of the GPU: how far predictions are off."""
    target = bench.out / f"partitioned-p{devices}.json.gz"
    words = model_words(bench.size, tokens=tokens, layers=2, vocab=0)
    words += [
        "--devices",
        str(devices),
        "--mb",
        "8",
        "--runner",
        "partitioned",
        "--repeats",
        str(bench.size.runs),
    ]
    yield from _validated(target, *bench.size.schedules, *words)


def _validated(target: Path, *words: str) -> Found:
    """Run schedules and compare; the record goes to ``target``."""
    said = json.loads(
        command("validate", *words, "--tolerance", "1000%", "--json", "--record", str(target))
    )
    from ppsim.real.runs.record import load

    record = load(str(target))
    save_in(target.parent, target.name.split(".")[0], said)
    for run in record.runs:
        yield Finding(
            run.name,
            f"measured {np.median(run.makespans):.2f} ms, spread "
            f"{run.makespans.max() / run.makespans.min() - 1:.1%}",
        )
    kept = record.settings
    yield Finding(
        "part",
        f"{kept.get('partition_sms')} multiprocessors, interference "
        f"{kept.get('interference', 0):.3f}, issued after "
        f"{max(kept['issued_share'].values()):.0%}, left out {kept['launch_bound'] or 'none'}",
    )
    yield from _errors(record)


def _errors(record: Any) -> Found:
    """Replay and held-out errors, and the ranking."""
    from ppsim.real.validation.analyse import validate

    result = validate(record)
    for level, goal in (
        ("nominal", None),
        ("link", None),
        ("host", None),
        ("held-out", HELD_OUT),
        ("replay", REPLAY),
    ):
        try:
            errors = result.errors(level)
        except (KeyError, ValueError):
            continue
        if len(errors):
            met = None if goal is None else bool(np.median(errors) <= goal)
            yield Finding(
                f"{level} error", f"median {np.median(errors):.2%}, worst {errors.max():.2%}", met
            )
    if result.pairs:
        share = result.ranked_right / result.pairs
        yield Finding(
            "pairs ranked right", f"{result.ranked_right} of {result.pairs}", share >= RANKED
        )


def two_parts(bench: Bench) -> Found:
    """Two devices on parts of the GPU."""
    yield from _on_parts(bench, 2, bench.size.hidden)


def four_parts(bench: Bench) -> Found:
    """Four devices on parts of the GPU."""
    yield from _on_parts(bench, 4, bench.size.hidden * 3 // 4)


def gradients(bench: Bench) -> Found:
    """Gradients of every schedule that ran, against one process and one stream."""
    import torch

    from ppsim.real.runs import partitioned, streams, tasks
    from tests.real.runs.cases import MODEL, plan_of, reference

    worst = dict[tuple[str, int], float]()
    for devices in (2, 4):
        lanes = streams.Partitions(devices)
        for name in bench.size.schedules:
            plan = plan_of(name, devices, 8)
            each = []
            for device in range(devices):
                with lanes.use_stream(device):
                    each.append(tasks.ComputingTasks(plan.lowered, device, MODEL, "cuda"))
            lanes.settle()
            lanes.sync()
            partitioned.run_queues(
                partitioned.order_entries(plan), each, lanes, time.monotonic_ns()
            )
            torch.cuda.synchronize()
            for stage, wanted in reference(plan.lowered.compute, "cuda").items():
                held = next(task.module[stage] for task in each if stage in task.module)
                for p, whole in zip(held.parameters(), wanted, strict=True):
                    error = float(np.abs(p.grad.cpu().numpy() - whole).max() / np.abs(whole).max())
                    worst[name, devices] = max(worst.get((name, devices), 0.0), error)
    save(
        bench, "gradients", {f"{name} {devices}": error for (name, devices), error in worst.items()}
    )
    yield Finding(
        f"{len(worst)} runs",
        f"worst relative error {max(worst.values()):.1e}",
        max(worst.values()) < GRADIENT,
    )


def copies(bench: Bench) -> Found:
    """Copies to pinned memory of the host beside compute: bandwidth, and how much compute slows
    down.
    """
    import torch

    from ppsim.real.calibration.links import copies as within

    for row in within(bench.size.copy_bytes, 5, 2):
        yield Finding(
            f"copy within the GPU, {row.bytes >> 20} MiB",
            f"{row.bytes / row.median_ms / 1e6:.0f} GB/s one way",
        )
    rows: list[dict[str, Any]] = []
    side = torch.cuda.Stream()
    width = bench.size.hidden
    left, right = (torch.randn(width, width, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def timed(
        work: Callable[[], None], *, beside: Callable[[], None] | None = None
    ) -> tuple[float, float]:
        """Median ms of the work, and of what runs beside it."""
        took = []
        for _ in range(bench.size.repeats):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            torch.cuda.synchronize()
            torch.cuda._sleep(1_000_000)
            side.wait_stream(torch.cuda.current_stream())
            if beside:
                with torch.cuda.stream(side):
                    marks[2].record()
                    beside()
                    marks[3].record()
            marks[0].record()
            work()
            marks[1].record()
            torch.cuda.synchronize()
            took.append(
                (
                    marks[0].elapsed_time(marks[1]),
                    marks[2].elapsed_time(marks[3]) if beside else 0.0,
                )
            )
        return tuple(statistics.median(column) for column in zip(*took, strict=True))

    for size in bench.size.copy_bytes:
        there = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
        here = torch.empty(size, dtype=torch.uint8, pin_memory=True)

        def out(there: Any = there, here: Any = here) -> None:
            here.copy_(there, non_blocking=True)

        def back(there: Any = there, here: Any = here) -> None:
            there.copy_(here, non_blocking=True)

        alone = timed(out)[0], timed(back)[0]
        count = max(1, round(alone[0] / max(timed(lambda: torch.mm(left, right))[0], 1e-3)))

        def compute(count: int = count) -> None:
            for _ in range(count):
                torch.mm(left, right)

        plain = timed(compute)[0]
        beside_out, beside_back = timed(compute, beside=out), timed(compute, beside=back)
        rows.append(
            {
                "bytes": size,
                "out_ms": alone[0],
                "back_ms": alone[1],
                "compute_ms": plain,
                "compute_beside_out_ms": beside_out[0],
                "out_beside_compute_ms": beside_out[1],
                "compute_beside_back_ms": beside_back[0],
                "back_beside_compute_ms": beside_back[1],
            }
        )
        yield Finding(
            f"host copy, {size >> 20} MiB",
            f"out {size / alone[0] / 1e6:.1f}, back {size / alone[1] / 1e6:.1f} GB/s; compute "
            f"slower by {beside_out[0] / plain - 1:.1%} and {beside_back[0] / plain - 1:.1%}; "
            f"copies by {beside_out[1] / alone[0] - 1:.1%} and {beside_back[1] / alone[1] - 1:.1%}",
        )
    save(bench, "copies", rows)


def offload(bench: Bench) -> Found:
    """Schedules with copies to the host, for real, beside the same without."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, more in (
            ("v-half", ()),
            ("v-half", ("--offload", "1")),
            ("1f1b", ()),
            ("1f1b", ("--offload", "1")),
        ):
            files.append(str(Path(folder, f"{name}{len(more)}.json")))
            chunks = ("--chunks", "2") if name == "v-half" else ()
            command("run", name, "--devices", "2", *chunks, "--mb", "8", *more, "-o", files[-1])
        words = model_words(bench.size, tokens=bench.size.hidden, layers=2, vocab=0)
        words += ["--runner", "partitioned", "--repeats", str(bench.size.runs)]
        yield from _validated(bench.out / "offload.json.gz", *files, *words)


@contextmanager
def one_rank(bench: Bench) -> Iterator[None]:
    """A process group of this process alone."""
    import torch
    from torch import distributed

    backend = "gloo" if bench.device == "stand-in" else "nccl"
    with tempfile.TemporaryDirectory() as folder:
        if bench.device != "stand-in":
            torch.cuda.set_device(0)
        distributed.init_process_group(
            backend, init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        try:
            yield
        finally:
            distributed.destroy_process_group()


def _pipeline(bench: Bench) -> Callable[[], None]:
    """A step of torch's interleaved 1F1B: four stages on one GPU, eight microbatches."""
    import torch
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

    from ppsim.inputs.profile.profile import Workload
    from ppsim.real.calibration import stage

    size = bench.size
    model = Workload(size.hidden, size.heads, size.hidden // 2, 1, 1, "bfloat16", 0)
    device = torch.device("cuda")
    modules = [stage.layers(model, 1, "cuda") for _ in range(4)]
    stages: Any = [
        PipelineStage(module, number, 4, device) for number, module in enumerate(modules)
    ]
    schedule = ScheduleInterleaved1F1B(
        stages, 8, loss_fn=lambda out, target: (out - target).float().square().mean()
    )
    x = torch.randn(8, model.sequence, model.hidden, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        schedule.step(x, target=x, losses=[])
        for module in modules:
            module.zero_grad(set_to_none=True)

    return step


def recorder(bench: Bench) -> Found:
    """The recorder on a pipeline of torch: recorded, read and replayed; what it costs."""
    import torch

    from ppsim.record import record

    took: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder, one_rank(bench):
        step = _pipeline(bench)
        for _ in range(3):
            step()
        for number in range(4):
            for recorded in (False, True):
                with record(Path(folder, f"run{number}")) if recorded else nullcontext():
                    for _ in range(bench.size.steps):
                        torch.cuda.synchronize()
                        begun = time.perf_counter()
                        step()
                        torch.cuda.synchronize()
                        took[recorded].append(time.perf_counter() - begun)
        shutil.copy(next(Path(folder, "run0").iterdir()), bench.out / "recording.ops.jsonl")
        plain, noted = (statistics.median(took[key]) * 1e3 for key in (False, True))
        yield Finding(
            "step without and with", f"{plain:.3f} and {noted:.3f} ms, {noted / plain - 1:+.2%}"
        )
        said = json.loads(command("read", str(Path(folder, "run0")), "--json"))
        told = {
            key: said.get(key)
            for key in ("devices", "stages", "microbatches", "schedule", "unit", "notes")
        }
        yield Finding("read", f"{told}, {len(said['iterations'])} steps")
        checked = json.loads(
            command(
                "validate", "--trace", str(Path(folder, "run0")), "--tolerance", "1000%", "--json"
            )
        )
        save(
            bench,
            "recorder",
            {"plain_ms": plain, "recorded_ms": noted, "read": told, "validate": checked},
        )
        errors = {
            key: value
            for key, value in checked.items()
            if key in ("errors", "replay", "held_out", "passed")
        }
        yield Finding("replayed", json.dumps(errors)[:300])


def kineto(bench: Bench) -> Found:
    """A trace of a step by torch's profiler, without what no reader needs, and how it reads."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if bench.device != "stand-in":
        activities.append(ProfilerActivity.CUDA)
    with tempfile.TemporaryDirectory() as folder, one_rank(bench):
        step = _pipeline(bench)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        with profile(activities=activities) as measured:
            step()
            torch.cuda.synchronize()
        whole = Path(folder, "rank0.json")
        measured.export_chrome_trace(str(whole))
        trace = json.loads(whole.read_text())
        spans = ("user_annotation", "gpu_user_annotation", "cuda_runtime", "cuda_driver", "kernel")
        kept = [e for e in trace["traceEvents"] if e.get("cat") in spans]
        kernels = [e for e in kept if e["cat"] == "kernel"]
        ran = {e["args"].get("correlation") for e in kernels}
        for event in kept:
            event["args"] = {
                k: event["args"][k] for k in ("correlation", "stream") if k in event.get("args", {})
            }
            event["name"] = event["name"][:60]
        calls = ("cuda_runtime", "cuda_driver")
        trace["traceEvents"] = [
            e for e in kept if e["cat"] not in calls or e["args"].get("correlation") in ran
        ]
        packed = gzip.compress(json.dumps(trace).encode(), mtime=0)
        (bench.out / "trace.json.gz").write_bytes(packed)
        yield Finding(
            "trace",
            f"{len(packed) / 1024:.0f} KiB, {len(kernels)} kernels, whole "
            f"{whole.stat().st_size >> 10} KiB",
            len(packed) <= TRACE_LIMIT,
        )
        said = json.loads(command("read", str(bench.out / "trace.json.gz"), "--json"))
        told = {
            key: said.get(key) for key in ("devices", "stages", "microbatches", "schedule", "unit")
        }
        yield Finding("read", str(told))


def save(bench: Bench, name: str, value: Any) -> None:
    """Add numbers to the results file."""
    save_in(bench.out, name, value)


def save_in(out: Path, name: str, value: Any) -> None:
    """Add numbers to ``results.json`` of a folder; what is there already is kept."""
    target = out / "results.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    found[name] = value
    fresh = target.with_suffix(".new")
    fresh.write_text(json.dumps(found, indent=1))
    fresh.replace(target)


# In order of value, with the share of the time that each may take.
PARTS: dict[str, tuple[Callable[[Bench], Found], float]] = {
    "tests": (gpu_tests, 0.18),
    "calibrate": (calibrate, 0.18),
    "split": (split_backward, 0.25),
    "layers": (kinds_of_layer, 0.10),
    "two-parts": (two_parts, 0.16),
    "four-parts": (four_parts, 0.20),
    "copies": (copies, 0.06),
    "offload": (offload, 0.14),
    "recorder": (recorder, 0.08),
    "gradients": (gradients, 0.08),
    "kineto": (kineto, 0.06),
}
