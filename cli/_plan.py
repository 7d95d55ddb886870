"""What ``ppsim plan`` prints and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ppsim.base.numbers import format_share
from ppsim.base.units import format_size
from ppsim.cli._fit import echo_wrapped, print_table
from ppsim.cli._options import OutputOptions
from ppsim.cli._plan_options import SpaceOptions, make_axes, use_profile_of
from ppsim.cli._write import command_line, find_targets, write_files
from ppsim.errors import InputError, PpsimError
from ppsim.version import VERSION

if TYPE_CHECKING:
    from ppsim.planning.task import Found, Task

PICTURES = (".svg", ".png", ".pdf")
NARROW = ("fp8", "mxfp8", "nvfp4")
TERMS = {
    "compute": "its matrix products are less efficient",
    "recompute": "it computes more again",
    "communication": "its tensor, context and expert ranks communicate more",
    "bubble": "its pipeline waits more",
    "gradients": "more of its gradient reduction is seen",
    "optimizer": "its optimizer's step is longer",
}


def make_task(
    model: str, cluster: str, gpus: int, gbs: int, space: SpaceOptions, top: int, front: bool, flags: str | None
) -> Task:
    """Make what a search is for from options.

    Raises:
        InputError: an unknown model, cluster or schedule, or sizes that nothing fits.
    """
    from ppsim.base.units import parse_size
    from ppsim.planning.hardware import read_machine
    from ppsim.planning.model import read_model
    from ppsim.planning.space import check_axes
    from ppsim.planning.task import Task, usable_bytes

    found, machine = read_model(model), read_machine(cluster)
    found = replace(found, seq=space.seq) if space.seq else found
    cap = usable_bytes(machine)
    if space.cap:
        size, in_bytes = parse_size(space.cap)
        if not in_bytes or not size:
            raise InputError(f"--cap {space.cap} is no memory of a GPU", "a size such as 75GiB")
        cap = float(size)
    axes = make_axes(found, space, flags)
    machine = use_profile_of(space, machine, found)
    machine.gpu.peak(space.precision)
    check_axes(found, machine.per_node, gpus, gbs, axes)
    return Task(found, machine, gpus, gbs, axes, cap, top, front)


def note_length(model: str, task: Task, space: SpaceOptions) -> None:
    """Say that the sequences are as long as a config.json allows, which few runs train with."""
    from ppsim.planning.model import is_config

    if space.seq is None and is_config(model):
        text = f"sequences of {task.model.seq:,} tokens, the longest that {model} allows: --seq N plans for others"
        echo_wrapped(text, err=True)


def refuse(task: Task, found: Found) -> None:
    """Say that nothing fits, with what would.

    Raises:
        PpsimError: always.
    """
    from ppsim.cli._print import counted
    from ppsim.planning.search import gpus_that_fit

    assert found.total
    least = found.least
    if least is None:
        raise PpsimError(f"their schedules refuse all {found.total:,} candidates", "another --gbs, or --schedules")
    needs = f"the smallest needs {format_size(least[0])} a GPU ({describe(least[1].parallel(task.axes.base))})"
    more = gpus_that_fit(task)
    hint = "" if "full" in task.axes.recompute else "--recomputes full, "
    hint += f"--gpus {more} with the same batch, or GPUs with more memory" if more else "GPUs with more memory"
    raise PpsimError(
        f"none of {found.total:,} candidates fits {format_size(task.cap)} on {counted(task.gpus, 'GPU')}: {needs}", hint
    )


def inputs_of_plan(ctx: click.Context) -> dict[str, Any]:
    """Tell how to make a plan again."""
    return {"ppsim": VERSION, "command": command_line(ctx)}


def plan_object(task: Task, found: Found, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Make the object ``ppsim plan --json`` prints, schema ``ppsim.plan/1``."""
    from ppsim.planning.task import OUTCOMES

    return {
        "schema": "ppsim.plan/1",
        "inputs": dict(inputs),
        "model": task.model.name,
        "cluster": task.machine.name,
        "gpu": task.machine.gpu.name,
        "gpus": task.gpus,
        "gbs": task.gbs,
        "seq": task.model.seq,
        "cap_bytes": task.cap,
        **({"profile": {"file": m.name, "taken": m.taken, "left": m.left}} if (m := task.machine.measured) else {}),
        "complete": found.complete,
        "candidates": found.total,
        "outcomes": {name: found.counts[name] for name in OUTCOMES},
        "plans": plans_of(found),
    }


def plans_of(found: Found) -> list[dict[str, Any]]:
    """Return the rows of the plans as files have them, with the reason why each but the best lost."""
    rows = [{k: v for k, v in row.items() if k not in ("key", "outcome")} for row in found.rows]
    return [{**row, "lost_by": why_lost(row, rows[0]) if place else ""} for place, row in enumerate(rows)]


def why_lost(row: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """Name the term in which a plan loses most against the best."""
    more = {name: row["terms"][name] - best["terms"][name] for name in TERMS}
    name = max(more, key=lambda term: more[term])
    return f"{name} +{more[name]:.3g} s" if more[name] > 0 else "the same"


def describe(parallel: Any) -> str:
    """The sizes of a plan in words."""
    p = parallel
    words = [f"{name} {getattr(p, name)}" for name in ("tp", "cp", "ep", "pp", "dp") if getattr(p, name) > 1]
    words += [f"vp {p.vp}"] * (p.vp > 1) + [f"mbs {p.mbs}", f"recompute {p.recompute}"]
    return ", ".join([*words, *_unusual(p.zero, p.offload)])


def _unusual(zero: int, offload: float) -> list[str]:
    """Name ZeRO's stage where it is not 1, and the share of activations that waits on the host."""
    return [f"ZeRO-{zero}"] * (zero != 1) + [f"{offload:.0%} of activations offloaded"] * (offload > 0)


def echo_plans(task: Task, found: Found, *, quiet: bool) -> None:
    """Print the plans, what was left out by which rule, and why the others lose."""
    from ppsim.cli._print import counted

    best = found.rows[0]
    name = task.model.name or "the model"
    if not quiet:
        click.echo(
            f"{name} on {task.gpus:,} x {task.machine.gpu.name} ({task.machine.name}), {task.gbs:,} sequences of "
            f"{task.model.seq:,} tokens a step, {format_size(task.cap)} a GPU\n"
        )
        if measured := task.machine.measured:
            echo_wrapped(f"times of {measured.taken}: from {measured.name}; {measured.left}\n")
        _echo_counts(found)
        _echo_table(task, found)
        click.echo()
    parts = [f"{k} {best[k]}" for k in ("tp", "cp", "ep", "pp", "dp", "vp") if best[k] > 1]
    if best["schedule"]:
        parts.append(best["schedule"])
    words = [f"microbatches of {best['mbs']}", *_unusual(best["zero"], best["offload"])]
    if best["recompute"] != "none":
        layers = best["recompute_layers"]
        words.append(f"{best['recompute']} recompute" + (f" of {counted(layers, 'layer')} a stage" if layers else ""))
    echo_wrapped(
        f"best: {' x '.join(parts) or 'one GPU'}, {', '.join(words)}: "
        f"{best['step_s']:.4g} s a step, {best['tokens_per_s']:,.0f} tokens/s, MFU {format_share(best['mfu'])}"
        f"{' of the bf16 peak' if task.axes.base.precision in NARROW else ''}, bubble {format_share(best['bubble'])}, "
        f"{format_size(best['memory_bytes'])} of {format_size(task.cap)}" + ("" if found.complete else " (so far)")
    )


def _echo_counts(found: Found) -> None:
    from ppsim.planning.task import OUTCOMES

    click.echo(f"{found.total:>10,} candidates")
    for outcome in OUTCOMES:
        if found.counts[outcome]:
            click.echo(f"{found.counts[outcome]:>10,} {outcome}")
    if not found.complete:
        click.echo(f"{found.total - sum(found.counts.values()):>10,} not tried yet")
    click.echo()


def _echo_table(task: Task, found: Found) -> None:
    sizes = [k for k in ("tp", "cp", "ep", "pp", "dp", "vp") if any(row[k] > 1 for row in found.rows)]
    unusual = [k for k, usual in (("zero", 1), ("offload", 0)) if any(row[k] != usual for row in found.rows)]
    headings = ["", *sizes, "mbs", "M", "schedule", *unusual, "recompute", "layout"]
    headings += ["step\ns", "tokens/s\nper GPU", "MFU"]
    headings += ["bubble", "memory", "loses by"]
    rows = []
    for place, row in enumerate(found.rows):
        rows.append(
            [
                f"{place + 1}{'*' if row['pareto'] else ''}",
                *(str(row[k]) for k in sizes),
                str(row["mbs"]),
                str(row["microbatches"]),
                row["schedule"] or "-",
                *(f"{row[k]:.0%}" if k == "offload" else str(row[k]) for k in unusual),
                _recompute(row),
                row["layout"],
                f"{row['step_s']:.4g}",
                f"{row['tokens_per_s'] / task.gpus:,.0f}",
                format_share(row["mfu"]),
                format_share(row["bubble"]),
                format_size(row["memory_bytes"]),
                why_lost(row, found.rows[0]) if place else "",
            ]
        )
    spare = ["layout", "M", "MFU", "bubble"]  # which sizes and the time almost say
    print_table(headings, rows, at_least=160, spare=spare, left=["schedule", "recompute", "layout", "loses by"])
    if task.front:
        click.echo("* on the front: no faster plan needs as little memory")


def _recompute(row: Mapping[str, Any]) -> str:
    layers = row["recompute_layers"]
    return row["recompute"] if layers is None else f"full, {layers} of a stage"


def chosen(task: Task, row: Mapping[str, Any]) -> tuple[Any, Any]:
    """The parallel layout of a plan and its layers per stage."""
    from ppsim.planning.space import layout_of, read_key

    candidate = read_key(row["key"])
    return candidate.parallel(task.axes.base), layout_of(task.model, candidate)


def echo_ranks(task: Task, found: Found) -> None:
    """Print where the best plan's ranks lie and which links its groups use."""
    import numpy as np

    from ppsim.core.schedule import place
    from ppsim.planning.ranks import MEANINGS, group_links, rank_grid, span
    from ppsim.schedules import find

    parallel, layout = chosen(task, found.rows[0])
    rows = [
        [links.kind, str(links.size), str(links.count), span(links.ranks), links.link, MEANINGS[links.kind]]
        for links in group_links(task.machine, parallel)
    ]
    words = ["the first", "links", "traffic"]
    click.echo("\nranks are numbered tensor first, then context, data, pipeline")
    print_table(["group", "ranks", "groups", *words], rows, at_least=140, spare=["traffic", "groups"], left=words)
    grid, per_node = rank_grid(parallel), task.machine.per_node
    owners = place(find(parallel.schedule_name).placement, parallel.pp, layout.n_stages).devices[0]
    click.echo()
    lines = []
    for device in range(parallel.pp):
        ranks = grid[:, device].ravel()
        nodes = sorted({int(rank) // per_node for rank in ranks})
        held = [layout.layers[stage] for stage in np.flatnonzero(owners == device)]
        lines.append([str(device), f"{ranks.min()}-{ranks.max()}", span(nodes), " + ".join(map(str, held))])
    words = ["ranks", "nodes", "layers"]
    print_table(["pipeline device", *words], lines, at_least=100, left=words)


def echo_flags(task: Task, found: Found, kind: str) -> None:
    """Print the launch flags of the best plan that the framework can run."""
    from ppsim.planning.flags import megatron_environment, megatron_flags, torchtitan_toml

    failure: InputError | None = None
    for place, row in enumerate(found.rows):
        parallel, layout = chosen(task, row)
        try:
            if kind == "megatron":
                text = " \\\n  ".join(megatron_flags(task.model, parallel, layout))
            else:
                text = torchtitan_toml(task.model, parallel, layout)
        except InputError as error:
            failure = failure or error
            continue
        if place:
            click.echo(f"{failure}: these are plan {place + 1}", err=True)
        click.echo(f"\n{text.rstrip()}")
        if kind == "megatron" and (variable := megatron_environment(parallel)):
            echo_wrapped(f"\nMegatron-LM also asks for {variable} in the environment of GPUs before Blackwell")
        return
    assert failure
    raise failure


def check_targets(output: OutputOptions, front: bool) -> list[tuple[str, str]]:
    """Find every -o and refuse formats that no plan is written in.

    Raises:
        InputError: such a format.
    """
    from ppsim.base.tables import TABLES, table_suffix
    from ppsim.files.tradeoff import check_suffix

    targets = find_targets(output, tables=True)
    for _, suffix in targets:
        if suffix in TABLES:
            table_suffix(f"x{suffix}")
        elif front:
            check_suffix(suffix)
        elif suffix not in (*PICTURES, ".mmd"):
            raise InputError(f"a plan cannot be written as {suffix}", " ".join(("one of", *TABLES, ".mmd", *PICTURES)))
    return targets


def write(
    task: Task, found: Found, inputs: Mapping[str, Any], output: OutputOptions, targets: Sequence[tuple[str, str]]
) -> None:
    """Write every -o: plans as a table, the ranks of the best as a flowchart or picture, or the front as a picture."""
    from ppsim.base.tables import TABLES

    writers = []
    for target, suffix in targets:
        made = _write_table if suffix in TABLES else _write_front if task.front else _write_ranks
        writers.append((target, partial(made, task, found, inputs, output, target, suffix)))
    write_files(writers)


def _write_table(
    task: Task, found: Found, inputs: Mapping[str, Any], output: OutputOptions, target: str, suffix: str
) -> None:
    from ppsim.base.atomic_file import open_atomically
    from ppsim.base.json_output import dump_json
    from ppsim.base.tables import save_table

    if suffix == ".json":
        with open_atomically(target) as out:
            out.write(dump_json(plan_object(task, found, inputs), end=b"\n"))
        return
    rows = [
        {
            **{k: v for k, v in row.items() if k not in ("terms", "memory_parts")},
            **{f"{k}_s": v for k, v in row["terms"].items()},
            **{f"{k}_bytes": v for k, v in row["memory_parts"].items()},
        }
        for row in plans_of(found)
    ]
    save_table(rows, target, suffix, inputs)


def _write_front(
    task: Task, found: Found, inputs: Mapping[str, Any], output: OutputOptions, target: str, suffix: str
) -> None:
    from ppsim.analysis.tradeoff import Point, tradeoff
    from ppsim.files.tradeoff import save_tradeoff

    points = [
        Point(_label(row), row["step_s"], row["memory_bytes"] / 2**30, row["schedule"] or "no pipeline")
        for row in found.rows
    ]
    save_tradeoff(
        tradeoff(points), target, suffix, time="step (s)", memory="memory (GiB)", width=output.width, inputs=inputs
    )


def _label(row: Mapping[str, Any]) -> str:
    words = [f"{k}{row[k]}" for k in ("tp", "cp", "ep", "pp", "vp") if row[k] > 1] + [row["schedule"]]
    words += [f"mbs{row['mbs']}"] * (row["mbs"] > 1) + _unusual(row["zero"], row["offload"])
    if row["recompute"] != "none":
        words.append(row["recompute"] + (f" {row['recompute_layers']}" if row["recompute_layers"] else ""))
    return " ".join(word for word in words if word) or "one GPU"


def _write_ranks(
    task: Task, found: Found, inputs: Mapping[str, Any], output: OutputOptions, target: str, suffix: str
) -> None:
    from ppsim.base.atomic_file import open_atomically
    from ppsim.planning.ranks import flowchart, group_links, rank_grid

    parallel, _ = chosen(task, found.rows[0])
    if suffix == ".mmd":
        with open_atomically(target) as out:
            out.write(flowchart(task.machine, parallel).encode())
        return
    from ppsim.drawing.ranks import draw_ranks

    groups = {links.kind: (links.ranks, links.link) for links in group_links(task.machine, parallel)}
    with open_atomically(target) as out:
        grid = rank_grid(parallel).reshape(parallel.dp, parallel.pp, -1)
        draw_ranks(grid, groups, task.machine.per_node, out, suffix, width=output.width, inputs=inputs)


def compare(against: str, improve: bool, as_json: bool, quiet: bool, tasks: Any) -> None:
    """Predict published runs, and plan them anew where asked for."""
    from ppsim.cli._plan_against import compare_runs

    compare_runs(against, improve, as_json, quiet, tasks)
