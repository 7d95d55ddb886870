"""The page of plans: outcomes of all candidates, time against memory, best plans, and details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ppsim.base.json_output import dump_json
from ppsim.core.ops import COMPUTE
from ppsim.show.drawing.palette import (
    DEFAULT,
    GROUP_COLOURS,
    OUTCOME_COLOURS,
    PART_COLOURS,
    TERM_COLOURS,
    text_colour,
)
from ppsim.show.files.page_parts import (
    fill_page,
    join_parts,
    looks_of,
    pack_bytes,
    verdict_paragraph,
)


def plan_page(
    title: str,  # of the page
    # values that all plans share: ``inputs``, ``cap`` in GiB, ``sizes``, ``flags`` by place,
    # ``remarks`` and other texts of the head, and queues and costs of the listed plans
    facts: Mapping[str, Any],
    # the candidates by outcome: its name, their number, its meaning
    outcomes: Sequence[tuple[str, int, str]],
    # the plans, fastest first, a list of each number; times in seconds, memory in GiB
    columns: Mapping[str, Sequence[Any]],
    verdict: str,  # the answer in one sentence
) -> bytes:
    """Make the page."""
    names = dict.fromkeys(name or "no pipeline" for name in columns["schedule"])
    data = {
        "schema": "ppsim.plans/1",
        **facts,
        "families": looks_of(names),
        "outcomes": [
            {"name": name, "count": count, "meaning": meaning, "colour": colour}
            for (name, count, meaning), colour in zip(outcomes, OUTCOME_COLOURS, strict=True)
        ],
        "terms": _entries("step", TERM_COLOURS),
        "parts": _entries("held", PART_COLOURS),
        "groups": [
            {"key": name, "name": name, "colour": pair} for name, pair in GROUP_COLOURS.items()
        ],
        "kinds": [
            {
                "name": kind.info.name,
                "letter": kind.name,
                "fill": DEFAULT.fill(kind),
                "text": list(map(text_colour, DEFAULT.fill(kind))),
            }
            for kind in COMPUTE
        ],
        "plans": pack_bytes(dump_json(dict(columns))),
        **{name: pack_bytes(dump_json(facts[name])) for name in ("flags", "runs", "sent")},
    }
    script = join_parts(("numbers.js", "copy.js", "points.js", "plan_run.js", "plan.js"))
    style, said = join_parts(("points.css",)), verdict_paragraph(verdict)
    return fill_page(title, "plan", data, script, style, verdict=said)


def _entries(of: str, colours: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"key": f"{of} {key}", "name": key, "colour": pair} for key, pair in colours.items()]
