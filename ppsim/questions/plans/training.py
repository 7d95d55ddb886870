"""The costs of training a model: of its stages, its devices, and a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ppsim.ask.blocks import Block, Line, Table, name_line
from ppsim.ask.words import count_text
from ppsim.base.numbers import format_column, format_number, format_part, format_share
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.workload.hardware.hardware import Machine
    from ppsim.workload.layout.layout import Layout
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel

GIB = 2.0**30
MOST_ROWS = 64


def parallel_from(given: dict[str, Any], base: Parallel) -> Parallel:
    """Return ``base`` with the sizes and settings that options give.

    Raises:
        InputError: an option has a value that is not possible.
    """
    from ppsim.base.toml import RefusedValue

    try:
        return replace(base, **{name: value for name, value in given.items() if value is not None})
    except RefusedValue as refused:
        hint = (
            "--dp N: expert-parallel ranks are taken from dp x cp x tp"
            if refused.key == "ep"
            else ""
        )
        if hint and base.pipeline_first:
            hint = "another --ep, or leave out --rank-order"
        raise InputError(f"--{refused.key.replace('_', '-')} {refused.why}", hint) from refused


def sizes_from(text: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return options with ``pp`` and ``vp`` filled in from the stages of a layout."""
    if text is None:
        return given
    from ppsim.workload.layout.text import parse_content

    stages, pp, vp = len(parse_content(text)), given["pp"], given["vp"]
    if pp is None and stages % max(vp or 1, 1) == 0:
        pp = stages // max(vp or 1, 1)
    if vp is None and pp and pp > 0 and stages % pp == 0:
        vp = stages // pp
    return given | {"pp": pp, "vp": vp}


def training(
    model: Model, parallel: Parallel, layout: Layout | None, machine: Machine | None
) -> dict[str, Any]:
    """Return the costs of training a model, as JSON has them.

    By stage in ms, by device in GiB, and of a step in seconds; times only if the cluster is known.

    Raises:
        InputError: the layout or the schedule cannot be used.
    """
    from ppsim.workload.cost.memory import PARTS, device_memory, host_memory

    if parallel.ep > 1 and not model.experts:
        raise InputError(
            f"--ep {parallel.ep} divides experts, and {model.name} has none", "leave out --ep"
        )
    memory = device_memory(model, parallel, layout)
    devices: list[dict[str, Any]] = [
        {"device": d, **{f"{name}_gib": float(getattr(memory, name)[d] / GIB) for name in PARTS}}
        | {"total_gib": float(memory.total[d] / GIB)}
        for d in range(parallel.pp)
    ]
    if parallel.offload:
        for row, offloaded in zip(devices, host_memory(model, parallel, layout), strict=True):
            row["host_gib"] = float(offloaded / GIB)
    stages = _stage_rows(model, parallel, layout)
    costs: dict[str, Any] = {
        "parallel": asdict(parallel),
        "gpus": parallel.gpus,
        "gbs": parallel.gbs,
        "stages": stages,
        "devices": devices,
    }
    if machine is not None:
        costs |= _add_times(model, parallel, layout, machine, stages)
    return costs


def _stage_rows(model: Model, parallel: Parallel, layout: Layout | None) -> list[dict[str, Any]]:
    """Return the layers, the recomputed layers and the parameters of each stage."""
    from ppsim.workload.model.contents import contents_of, count_stage_parameters

    return [
        {
            "stage": stage,
            "layers": content.layers,
            "recomputed": content.recomputed,
            "parameters": sum(count_stage_parameters(model, parallel, content)),
        }
        for stage, content in enumerate(contents_of(model, parallel, layout))
    ]


def _add_times(
    model: Model,
    parallel: Parallel,
    layout: Layout | None,
    machine: Machine,
    stages: list[dict[str, Any]],
) -> dict[str, Any]:
    """Add times in ms to the rows of stages; return the cluster, and the times of a step in
    seconds.
    """
    from ppsim.core.ops import Kind
    from ppsim.questions.plans.run_of_plan import run_line
    from ppsim.workload.cost.costs import copy_seconds, stage_costs, step_time
    from ppsim.workload.hardware.efficiency import efficiency_of
    from ppsim.workload.model.contents import contents_of

    costs = stage_costs(model, machine, parallel, layout)
    contents = contents_of(model, parallel, layout)
    for row in stages:
        stage = row["stage"]
        for kind in (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R):
            row[f"{kind.name.lower()}_ms"] = float(costs.time[kind, stage] * 1e3)
        row["communication_ms"] = float(costs.communication[stage] * 1e3)
        if parallel.offload:
            row["copy_ms"] = copy_seconds(model, machine, parallel, contents[stage]) * 1e3
    step = {
        name: float(value)
        for name, value in asdict(step_time(model, machine, parallel, costs=costs)).items()
    }
    known: dict[str, Any] = {
        "fitted_on": efficiency_of(machine.gpu, parallel).curve.seen
        or "no run: usual shares of a GPU's peaks",
        "gpu": machine.title,
        **({} if machine.kinds else {"gpu_memory_gib": machine.gpu.memory_gib}),
        **({"host_gb_per_s": machine.gpu.host_gb_per_s} if parallel.offload else {}),
    }
    if found := machine.measured:
        known["profile"] = {"file": found.name, "taken": found.taken, "left": found.left}
    known["run"] = run_line(parallel, costs)
    return {"cluster": machine.name, **known, "message_bytes": costs.message, "step": step}


def training_verdict(costs: dict[str, Any]) -> str:
    """Return the step time on a known cluster, and the memory of the fullest device, as text."""
    worst = max(costs["devices"], key=lambda row: row["total_gib"])
    memory = f"device {worst['device']} holds most, {worst['total_gib']:.1f} GiB"
    if capacity := costs.get("gpu_memory_gib"):
        fits = "which fits" if worst["total_gib"] <= capacity else "which does not fit"
        memory += f", {fits} {capacity:g} GiB"
    if step := costs.get("step"):
        return f"a step on {costs['cluster']} takes {format_number(step['seconds'])} s; {memory}"
    return memory


def training_blocks(costs: dict[str, Any]) -> Iterator[Block]:
    """Yield the parallel sizes, a table of stages, a table of devices, and the step."""
    sizes = {
        name: value
        for name, value in costs["parallel"].items()
        if name in ("tp", "cp", "ep", "pp", "dp", "vp")
    }
    text = ", ".join(f"{name} {value}" for name, value in sizes.items() if value > 1)
    zero = f", ZeRO-{costs['parallel']['zero']}" if costs["gpus"] > 1 else ""
    counts = (
        f"{count_text(costs['gpus'], 'GPU')}, {count_text(costs['gbs'], 'sequence')} a step{zero}"
    )
    yield Line(["\n", (f"{text}: " if text else "", "name"), counts])
    yield from _stage_blocks(costs["stages"])
    yield from _device_blocks(costs["devices"], costs.get("gpu_memory_gib"))
    if "step" in costs:
        yield from _step_blocks(costs)


def _step_blocks(costs: dict[str, Any]) -> Iterator[Block]:
    """Yield lines on a step: its time and rates, its parts, the source of the times, and the
    command that runs its pipeline.
    """
    step = costs["step"]
    rates = f": {step['tokens_per_s']:,.0f} tokens/s, {step['tflops']:.0f} TFLOP/s per GPU, "
    rates += f"MFU {format_share(step['mfu'])}, bubble {format_share(step['bubble'])}"
    seconds = f"{format_number(step['seconds'])} s"
    yield Line([f"\na step on {costs['cluster']} takes ", (seconds, "name"), rates])
    yield Line(
        f"including {format_part(step['reduction'], step['seconds'])} s for gradients and weights, "
        f"{format_part(step['optimizer'], step['seconds'])} s for the optimizer"
    )
    if profile := costs.get("profile"):
        yield Line(f"times of {profile['taken']}: from {profile['file']}; {profile['left']}", 5)
    if rate := costs.get("host_gb_per_s"):
        share = costs["parallel"]["offload"]
        yield Line(
            f"{share:.0%} of the activations are copied to the host and back at {rate:g} GB/s "
            "each way, in parallel with compute; a stage takes the longer of both",
            5,
        )
    yield Line(f"efficiency fitted on {costs['fitted_on']}", 5)
    if costs["run"]:
        yield name_line("run it: ", (costs["run"], "try"))


def _stage_blocks(stages: list[dict[str, Any]]) -> Iterator[Block]:
    """Yield a table with a row for each stage: its layers, parameters, and known times in ms."""
    columns = {
        "stage": [str(row["stage"]) for row in stages],
        "layers": [str(row["layers"]) for row in stages],
        "parameters\nM": [f"{row['parameters'] / 1e6:,.1f}" for row in stages],
    }
    times = {
        "F": "f_ms",
        "B": "b_ms",
        "W": "w_ms",
        "waits": "communication_ms",
        "copies": "copy_ms",
    }
    columns |= {
        f"{name}\nms": format_column([row[key] for row in stages])
        for name, key in times.items()
        if key in stages[0]
    }
    rows = [*zip(*columns.values(), strict=True)]
    yield ""
    yield Table([*columns], rows[:MOST_ROWS], spare=["parameters\nM"])
    if len(stages) > MOST_ROWS:
        yield f"{len(stages) - MOST_ROWS} more stages (--json has them)"


def _device_blocks(devices: list[dict[str, Any]], capacity: float | None) -> Iterator[Block]:
    """Yield a table with a row for each device: its memory in GiB, marked if a GPU has less."""
    names = ["weights", "gradients", "optimizer", "activations", "work", "total"]
    names += ["host"] if "host_gib" in devices[0] else []
    over = [capacity is not None and row["total_gib"] > capacity for row in devices]
    columns = {"device": [str(row["device"]) for row in devices]}
    columns |= {f"{name}\nGiB": [f"{row[f'{name}_gib']:.2f}" for row in devices] for name in names}
    if any(over):
        columns[""] = [f"over {capacity:g} GiB" if each else "" for each in over]
    rows = [*zip(*columns.values(), strict=True)]
    spare = [f"{name}\nGiB" for name in ("work", "weights", "gradients", "optimizer")]
    yield ""
    yield Table(
        [*columns],
        rows[:MOST_ROWS],
        spare=spare,
        tone=lambda row, column: "bad" if over[row] else "",
    )
