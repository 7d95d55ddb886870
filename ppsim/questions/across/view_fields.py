"""The fields that the live page may set: a white list, so that no page can read a file of this
machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ppsim.ask.options import Option
from ppsim.base.text import quote
from ppsim.errors import InputError
from ppsim.show.server.app import DROPPED

HINT = "use ppsim run in a terminal"
_SPELLED = re.compile(r"([A-Za-z0-9_-]+)(:[0-9]{1,9})?")


def check_field(declared: Option, value: Any) -> None:
    """Raise InputError for a field that is not on the white list, or for a text that may be a path.

    Args:
        declared: the option that the field sets.
        value: true, false, a text, or a list of texts.
    """
    if declared.name in PLAIN:
        return
    if declared.name not in NAMES:
        raise InputError(f"a page may not set '{declared.keyword}'", HINT)
    is_name = NAMES[declared.name]
    for text in map(str, value if isinstance(value, list) else [value]):
        if not is_name(text):
            raise InputError(
                f"a page may not set {declared.spelling} to {quote(text)}, which may be a file",
                HINT,
            )


def names_schedule(text: str) -> bool:
    """Return True if a text names a schedule of the registry, or a file dropped on the page.

    Raises:
        UnknownSchedule: the text has the form of a name, but no schedule has it.
    """
    if text.startswith(DROPPED):
        return True
    from ppsim.schedules import find

    match = _SPELLED.fullmatch(text)
    return match is not None and bool(find(match[1]))


def names_cluster(text: str) -> bool:
    """Return True if a text names a cluster of the library."""
    from ppsim.workload.hardware.hardware import machines

    return text.lower() in machines()


def names_model(text: str) -> bool:
    """Return True if a text names a model of the library."""
    from ppsim.workload.model.model import library

    return text.lower() in library()


def are_factors(text: str) -> bool:
    """Return True if a text lists factors, and does not name a file of factors."""
    from ppsim.inputs.profile.scale import names_file

    return not names_file(text)


def lists_numbers(text: str) -> bool:
    """Return True if the text of a law lists numbers, and does not name a file."""
    return all(part and part.strip("0123456789.eE+- ") == "" for part in text.split(","))


# Options whose values are numbers, choices and words; none is ever opened as a file.
PLAIN = frozenset(
    (
        *("stages", "devices", "chunks", "microbatches", "group_size", "rule", "limit", "after_i"),
        *("slices", "everywhere"),
        *(
            "tf",
            "tb",
            "ti",
            "tw",
            "tfb",
            "tr",
            "te",
            "ts",
            "tt",
            "td",
            "tl",
            "tgf",
            "tgb",
            "t_collective",
        ),
        *("offload", "t_offload", "t_reload", "t_evict", "host_link", "host_link_shared"),
        *("comm", "links", "speed", "per", "unit", "recompute"),
        *("layout", "t_layer", "t_embedding", "t_head", "t_mtp", "b_over_f"),
        *("p2p", "order", "channel", "message", "unshard", "reduce_grad", "shapes", "t_shape"),
        *("t_optimizer", "post_validation", "t_gather", "t_reduce_grad"),
        *("steps", "feedback", "tokens", "placement", "chunked", "chunk", "page"),
        *("tp", "ep", "dp", "mbs", "gpus", "gbs"),
    )
)
# Options whose value is a name or a path, each with the function that is True for names.
NAMES: dict[str, Callable[[str], bool]] = {
    "names": names_schedule,
    "schedule": names_schedule,
    "cluster": names_cluster,
    "model": names_model,
    "law": lists_numbers,
    "mb_scale": are_factors,
    "slice_scale": are_factors,
}
