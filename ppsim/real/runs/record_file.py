"""Types of a record's JSON; a value of another type is refused with its place in the file.

Unknown keys are ignored.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any

import msgspec

from ppsim.base.source import name_of, read_text
from ppsim.base.text import one_line, quote
from ppsim.base.typed_json import decode
from ppsim.core.soundness import LONGEST
from ppsim.errors import InputError

SCHEMA = "ppsim.record/1"
HINT = "a file that --record wrote"


class Placement(msgspec.Struct, frozen=True):
    """Placement of stages, as :class:`ppsim.core.schedule.Placement`."""

    name: str
    devices: list[list[int]]


class Queues(msgspec.Struct, frozen=True):
    """Columns of :class:`ppsim.core.schedule.Schedule`; older records have codes as kinds."""

    name: str
    placement: Placement
    microbatches: int
    offsets: list[int]
    kind: list[int | str]
    stage: list[int]
    microbatch: list[int]
    pair: list[int]


class Costs(msgspec.Struct, frozen=True):
    """Times in ms, as :class:`ppsim.core.costs.Costs`."""

    time: list[list[float]]
    pair: list[float] | None = None
    others: dict[str, list[float]] = {}


class Run(msgspec.Struct, frozen=True):
    """The run of one schedule; times are in multiples of the resolution, a row per repetition."""

    name: str
    compute: Queues
    queues: Queues
    batch: list[int]
    costs: Costs
    finished: list[list[int]]
    gap: list[list[int]]
    waited: list[list[int]]
    worked: list[list[int]]
    issued: list[list[int]] | None = None


@dataclass(frozen=True)
class Link:
    """Time of a message between two processes without contention."""

    alpha: float = 0.0  # latency in ms
    ms_per_byte: float = 0.0  # inverse bandwidth
    late: float = 0.0  # ms added if the receive is posted after the send


class Settings(msgspec.Struct, frozen=True):
    """The settings in a record that ppsim reads."""

    ops: str
    costs: str
    message_bytes: int
    link: Link
    cores: int = 0
    device: str = ""
    emulation: str = ""
    partition_sms: int | None = None
    interference: float | None = None
    launch_bound: dict[str, int] = {}
    issued_share: dict[str, float] = {}


class File(msgspec.Struct, frozen=True):
    """The whole file."""

    resolution_us: float
    runs: list[Run]
    settings: msgspec.Raw
    provenance: dict[str, str | int | float | None]


class _Head(msgspec.Struct, frozen=True):
    schema: str = ""


def is_record(text: str) -> bool:
    """Return whether a text is a record."""
    return f'"{SCHEMA}"' in text[:200]


KEYS = frozenset(
    key
    for part in (File, Run, Costs, Queues, Placement, Settings, _Head)
    for key in part.__struct_fields__
) | {field.name for field in fields(Link)}


def read_file(path: str) -> tuple[File, dict[str, Any]]:
    """Read a record's file; return its content, and all its settings.

    Raises:
        InputError: the file is not a record; the message names the place.
    """
    text, source = read_text(path, HINT), f"'{name_of(path)}'"
    schema = decode(text, _Head, source, HINT, KEYS).schema
    if schema != SCHEMA:
        raise InputError(f"{source} has schema {quote(schema)}, not {SCHEMA!r}", HINT)
    found = decode(text, File, source, HINT)
    if not found.runs:
        raise InputError(f"{source} has no run", HINT)
    if not 0 < found.resolution_us <= LONGEST:
        raise InputError(f"{source}: resolution_us is not a number above 0", HINT)
    settings = decode(found.settings, Settings, f"{source}: settings", HINT)
    numbers = (
        settings.message_bytes,
        settings.cores,
        settings.partition_sms or 0,
        settings.interference or 0.0,
    )
    if not all(0 <= number <= LONGEST for number in (*numbers, *astuple(settings.link))):
        raise InputError(f"{source}: settings has a number below 0", HINT)
    if settings.emulation and None in (settings.partition_sms, settings.interference):
        raise InputError(
            f"{source}: settings.partition_sms or settings.interference is missing", HINT
        )
    needed = {"date", "device", "machine", "cpu", "cores", "load", "torch"}
    if missing := needed - found.provenance.keys():
        raise InputError(f"{source}: provenance.{min(missing)} is missing", HINT)
    return found, _on_one_line(msgspec.json.decode(found.settings))


def _on_one_line(value: Any) -> Any:
    """Return a JSON value with all its texts on one line each."""
    if isinstance(value, dict):
        return {one_line(key): _on_one_line(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_on_one_line(item) for item in value]
    return one_line(value) if isinstance(value, str) else value
