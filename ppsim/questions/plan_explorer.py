"""What the page of plans is written from: the search's counts, everything it simulated, and how to launch the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ppsim.base.numbers import format_number, format_share
from ppsim.base.units import format_size
from ppsim.errors import InputError
from ppsim.questions.plan_runs import carry_runs

if TYPE_CHECKING:
    from ppsim.workload.plans.task import Found, Row, Task

MOST = 4000  # plans on a page: the listed ones, then the fastest
LISTED = 40  # rows of its table


def plan_page_of(
    task: Task, found: Found, inputs: Mapping[str, Any], lost_by: Sequence[str], launch: Any, base: str, lead: str
) -> bytes:
    """Make the page: ``lost_by`` says why each found row lost, ``launch`` gives a row's launch flags by framework.

    ``base`` is the command that one plan's options complete, ``lead`` the best plan in words.
    """
    from ppsim.show.files.plan_page import plan_page
    from ppsim.workload.plans.task import OUTCOMES

    listed = found.rows[:LISTED]
    keys = {row["key"] for row in listed}
    others = sorted((row for row in found.simulated if row["key"] not in keys), key=_place)  # they came in any order
    rows = sorted([*listed, *others][:MOST], key=_place)
    lost = dict(zip((row["key"] for row in listed), lost_by, strict=False))
    columns = _columns(task, rows, lost)
    simulated, places = found.counts[OUTCOMES[-1]], {row["key"]: place for place, row in enumerate(rows)}
    shown = f", the fastest {len(rows):,} shown" if len(rows) < simulated else ""
    facts = {
        "inputs": dict(inputs),
        "lead": lead,
        "counted": f"{found.total:,} candidates, {simulated:,} simulated{shown}"
        + ("" if found.complete else "; the search was interrupted"),
        "cap": task.cap / 2**30,
        "sizes": ["tp", "cp", "ep", "pp", "dp", "vp"],
        "flags": {str(place): launch(row) for place, row in enumerate(rows) if row["key"] in keys},
        "base": base,
        "perNode": 0 if task.machine.uneven else task.machine.per_node,
        "pipelineFirst": task.axes.base.pipeline_first,
        **carry_runs(task, {places[row["key"]]: row for row in listed}),
    }
    meanings = [(name, found.counts[name], meaning) for name, meaning in zip(OUTCOMES, _meanings(task), strict=True)]
    title = f"{task.model.name or 'the model'} on {named(task)}".replace(" x ", " × ")
    return plan_page(title, facts, meanings, columns)


def _place(row: Row) -> tuple[float, int, str]:
    return row["step_s"], row["memory_bytes"], str(row["key"])


def _meanings(task: Task) -> Iterator[str]:
    """What each outcome says of a candidate."""
    cap = format_size(task.cap)
    yield "Their schedule takes no such numbers of devices, chunks and microbatches, or the layers cannot be split so."
    yield f"What a GPU holds before the first microbatch is more than {cap}. More tp or pp, or ZeRO, makes it less."
    yield f"With the activations in flight a GPU would hold more than {cap}. Recompute or smaller microbatches."
    yield "The work alone with fill and drain takes longer than a plan that holds no more. So they were not simulated."
    yield "The slowest device's work and its fill take longer than a plan that holds no more. They were not simulated."
    yield "Simulated op by op; the marks below."


def _columns(task: Task, rows: Sequence[Row], lost: Mapping[str, str]) -> dict[str, list[Any]]:
    """The numbers of each plan, short ones: five digits."""
    plain = ("tp", "cp", "ep", "pp", "dp", "vp", "mbs", "microbatches", "schedule", "recompute", "layout", "zero")
    columns: dict[str, list[Any]] = {key: [row[key] for row in rows] for key in plain}
    columns |= {key: [_short(row[key]) for row in rows] for key in ("offload", "step_s", "mfu", "bubble")}
    columns["layers"] = [row["recompute_layers"] or 0 for row in rows]
    if task.machine.kinds:
        columns["placed"] = ["; ".join(places(row)) for row in rows]
    columns["tokens"] = [_short(row["tokens_per_s"] / task.gpus) for row in rows]
    columns["memory"] = [_short(row["memory_bytes"] / 2**30) for row in rows]
    rank = {key: place for place, key in enumerate(lost, 1)}
    columns["listed"] = [rank.get(row["key"], 0) for row in rows]
    columns["lost_by"] = [lost.get(row["key"], "") for row in rows]
    for name in rows[0]["terms"]:
        columns[f"step {name}"] = [_short(row["terms"][name]) for row in rows]
    for name in rows[0]["memory_parts"]:
        columns[f"held {name}"] = [_short(row["memory_parts"][name] / 2**30) for row in rows]
    return columns


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def lead_of(best: Row, task: Task) -> str:
    """The best plan in a line."""
    rate = f"{format_number(best['tokens_per_s'] / task.gpus)} tokens/s per GPU"
    return f"{format_number(best['step_s'])} s a step · {rate} · MFU {format_share(best['mfu'])}"


def launch_of(task: Task, chosen: tuple[Any, Any]) -> dict[str, Any]:
    """The launch flags of a plan for each framework that runs it, and why others do not."""
    from ppsim.workload.plans.flags import megatron_flags, torchtitan_toml

    texts, refused = {}, []
    for name, write in (
        ("Megatron-LM", lambda *sizes: " ".join(megatron_flags(*sizes))),
        ("torchtitan", torchtitan_toml),
    ):
        try:
            texts[name] = write(task.model, *chosen).strip()
        except InputError as error:
            refused.append(str(error))
    return {"texts": texts, "refused": refused}


def places(row: Mapping[str, Any]) -> Iterator[str]:
    """Say where a plan's pipeline lies on several kinds of nodes, and how many layers each device has."""
    first, layers = 0, row.get("layers_of_devices", [])
    for gpu, alike in groupby(row.get("gpu_of_devices", [])):
        count = len(list(alike))
        here = slice(first, first + count)
        words = f"pipeline devices {first}-{first + count - 1}" if count > 1 else f"pipeline device {first}"
        words += ", the first ranks," if not first and count < len(layers) else ""
        held, cap = max(row["memory_of_devices"][here]), row["cap_of_devices"][first]
        yield f"{gpu}: {words} with {' '.join(layers[here])} layers, {format_size(held)} of {format_size(cap)}"
        first += count


def named(task: Task) -> str:
    """The GPUs of a plan in words."""
    return task.machine.title if task.machine.kinds else f"{task.gpus:,} x {task.machine.title}"


def caps(task: Task) -> str:
    """What a GPU has for training, of each kind of nodes."""
    from ppsim.workload.plans.task import usable_bytes

    each = [min(task.cap, usable_bytes(kind.machine)) for kind in task.machine.kinds] or [task.cap]
    return " or ".join(dict.fromkeys(format_size(cap) for cap in each))


def cap_of(row: Mapping[str, Any], task: Task) -> float:
    """The bytes of the pipeline device that holds most."""
    held = row["memory_of_devices"]
    found: float = row.get("cap_of_devices", [task.cap] * len(held))[held.index(max(held))]
    return found
