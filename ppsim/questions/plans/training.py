"""A model in training: stages, devices, and a step."""

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
    """Make the parallel layout of options; others are as in ``base`` (InputError: with the option's
    name).
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
    """Fill in the pipeline's devices, or the chunks, where a layout's stages and the other say
    them.
    """
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
    """Collect the costs of training the model: by stage, by device, and of a step where the cluster
    is known.

    Raises:
        InputError: the layout or the schedule cannot be used.
    """
    from ppsim.workload.cost.memory import PARTS, device_memory, host_memory

    if parallel.ep > 1 and not model.experts:
        raise InputError(
            f"--ep {parallel.ep} divides experts, and {model.name} has none", "leave out --ep"
        )
    held = device_memory(model, parallel, layout)
    devices: list[dict[str, Any]] = [
        {"device": d, **{f"{name}_gib": float(getattr(held, name)[d] / GIB) for name in PARTS}}
        | {"total_gib": float(held.total[d] / GIB)}
        for d in range(parallel.pp)
    ]
    if parallel.offload:
        for row, waiting in zip(devices, host_memory(model, parallel, layout), strict=True):
            row["host_gib"] = float(waiting / GIB)
    stages = _stages(model, parallel, layout)
    found: dict[str, Any] = {
        "parallel": asdict(parallel),
        "gpus": parallel.gpus,
        "gbs": parallel.gbs,
    }
    found |= {"stages": stages, "devices": devices}
    if machine is not None:
        found |= _add_times(model, parallel, layout, machine, stages)
    return found


def _stages(model: Model, parallel: Parallel, layout: Layout | None) -> list[dict[str, Any]]:
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
    """Add times to the rows of stages, and return the times of a step."""
    from ppsim.core.ops import Kind
    from ppsim.questions.plans.run_of_plan import run_line
    from ppsim.workload.cost.costs import copy_seconds, stage_costs, step_time
    from ppsim.workload.hardware.efficiency import efficiency_of
    from ppsim.workload.model.contents import contents_of

    costs, contents = (
        stage_costs(model, machine, parallel, layout),
        contents_of(model, parallel, layout),
    )
    for row in stages:
        stage = row["stage"]
        for name, kind in (
            ("f_ms", Kind.F),
            ("b_ms", Kind.B),
            ("i_ms", Kind.I),
            ("w_ms", Kind.W),
            ("r_ms", Kind.R),
        ):
            row[name] = float(costs.time[kind, stage] * 1e3)
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


def training_words(found: dict[str, Any]) -> str:
    """Return the time of a step on a known cluster, and whether the fullest device has room."""
    worst = max(found["devices"], key=lambda row: row["total_gib"])
    held = f"device {worst['device']} holds most, {worst['total_gib']:.1f} GiB"
    if capacity := found.get("gpu_memory_gib"):
        fits = "which fits" if worst["total_gib"] <= capacity else "which does not fit"
        held += f", {fits} {capacity:g} GiB"
    step = found.get("step")
    time = (
        f"a step on {found['cluster']} takes {format_number(step['seconds'])} s; " if step else ""
    )
    return f"{time}{held}"


def training_blocks(found: dict[str, Any]) -> Iterator[Block]:
    """Yield tables of the costs of training."""
    sizes = {
        name: value
        for name, value in found["parallel"].items()
        if name in ("tp", "cp", "ep", "pp", "dp", "vp")
    }
    text = ", ".join(f"{name} {value}" for name, value in sizes.items() if value > 1)
    zero = f", ZeRO-{found['parallel']['zero']}" if found["gpus"] > 1 else ""
    counts = (
        f"{count_text(found['gpus'], 'GPU')}, {count_text(found['gbs'], 'sequence')} a step{zero}"
    )
    yield Line(["\n", (f"{text}: " if text else "", "name"), counts])
    yield from _show_stages(found["stages"])
    yield from _show_devices(found["devices"], found.get("gpu_memory_gib"))
    if step := found.get("step"):
        rates = f": {step['tokens_per_s']:,.0f} tokens/s, {step['tflops']:.0f} TFLOP/s per GPU, "
        rates += f"MFU {format_share(step['mfu'])}, bubble {format_share(step['bubble'])}"
        seconds = f"{format_number(step['seconds'])} s"
        yield Line([f"\na step on {found['cluster']} takes ", (seconds, "name"), rates])
        yield Line(
            f"of it {format_part(step['reduction'], step['seconds'])} s of gradients and weights, "
            f"{format_part(step['optimizer'], step['seconds'])} s of the optimizer"
        )
        if taken := found.get("profile"):
            yield Line(f"times of {taken['taken']}: from {taken['file']}; {taken['left']}", 5)
        if rate := found.get("host_gb_per_s"):
            share = found["parallel"]["offload"]
            yield Line(
                f"{share:.0%} of the activations are copied to the host and back at {rate:g} GB/s "
                "each way, beside the stage's work; where copies take longer, they set its time",
                5,
            )
        yield Line(f"efficiency fitted on {found['fitted_on']}", 5)
        if found["run"]:
            yield name_line("run it: ", (found["run"], "try"))


def _show_stages(stages: list[dict[str, Any]]) -> Iterator[Block]:
    """A row for each stage: its layers, and times in ms where a cluster is given."""
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


def _show_devices(devices: list[dict[str, Any]], capacity: float | None) -> Iterator[Block]:
    """A row for each device: its memory in GiB, and whether that exceeds a GPU's."""
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
