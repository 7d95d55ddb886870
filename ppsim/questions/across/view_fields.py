"""The fields that the live page may give: a white list, so that no browser names a file of this
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

HINT = "ppsim run in a terminal takes it"
_SPELLED = re.compile(r"([A-Za-z0-9_-]+)(:[0-9]{1,9})?")


def check_field(declared: Option, value: Any) -> None:
    """Refuse a field that is not on the white list, and a text in it that may be a path.

    Args:
        declared: the option that the field sets.
        value: true, false, a text, or a list of texts.

    Raises:
        InputError: a page may not give it; the message names the option.
    """
    if declared.name in PLAIN:
        return
    if declared.name not in NAMES:
        raise InputError(f"the page states '{declared.name}', which a page may not give", HINT)
    is_name = NAMES[declared.name]
    for text in map(str, value if isinstance(value, list) else [value]):
        if not is_name(text):
            raise InputError(
                f"the page states {declared.spelling} {quote(text)}, which may be a file to read",
                HINT,
            )


def names_schedule(text: str) -> bool:
    """Return whether a text names a schedule of the registry or a file that was dropped on the
    page.

    Raises:
        UnknownSchedule: a word that can only be a schedule, and is none.
    """
    if text.startswith(DROPPED):
        return True
    from ppsim.schedules import find

    match = _SPELLED.fullmatch(text)
    return match is not None and bool(find(match[1]))


def names_cluster(text: str) -> bool:
    """Return whether a text names a cluster of the library."""
    from ppsim.workload.hardware.hardware import machines

    return text.lower() in machines()


def names_model(text: str) -> bool:
    """Return whether a text names a model of the library."""
    from ppsim.workload.model.model import library

    return text.lower() in library()


def are_factors(text: str) -> bool:
    """Return whether a text lists factors, and names no file of them."""
    from ppsim.inputs.profile.scale import names_file

    return not names_file(text)


def lists_numbers(text: str) -> bool:
    """Return whether a law's text lists numbers, and names no file."""
    return all(part and part.strip("0123456789.eE+- ") == "" for part in text.split(","))


# Options whose values are numbers, choices and words that are never opened as a file.
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
# Options that take a name or a path, each with the function that accepts names alone.
NAMES: dict[str, Callable[[str], bool]] = {
    "names": names_schedule,
    "schedule": names_schedule,
    "cluster": names_cluster,
    "model": names_model,
    "law": lists_numbers,
    "mb_scale": are_factors,
    "slice_scale": are_factors,
}
