"""Types of torch.profiler's JSON; a value of another type is refused with its place in the file."""

from __future__ import annotations

import math

import msgspec

from ppsim.base.source import name_of
from ppsim.base.text import shorten
from ppsim.base.typed_json import decode
from ppsim.errors import InputError

HINT = (
    "a trace that torch.profiler exported, one per process, with the pipeline's own spans "
    "(PP:0F0, or Forward 0)"
)
LATEST_US = 1e17  # microseconds since 1970, which some traces count from: year 5138
MOST_BYTES = 1 << 50
BYTES = {
    "double": 8,
    "long": 8,
    "float": 4,
    "int": 4,
    "half": 2,
    "bfloat16": 2,
    "c10::half": 2,
    "c10::bfloat16": 2,
    "unsigned char": 1,
}


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event, times in microseconds."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float | str | None = None
    dur: float | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"null")


class Arguments(msgspec.Struct, frozen=True):
    """Shapes and types of an operator's inputs; for a list of tensors, a list of shapes."""

    dims: list[object] | None = msgspec.field(name="Input Dims", default=None)
    types: list[object] | None = msgspec.field(name="Input type", default=None)


class Collective(msgspec.Struct, frozen=True):
    """The message of an NCCL kernel; numbers are texts in some versions."""

    name: object = msgspec.field(name="Collective name", default="")
    elements: object = msgspec.field(name="In msg nelems", default=0)
    kind: object = msgspec.field(name="dtype", default="")


class Launch(msgspec.Struct, frozen=True):
    """The link between a kernel and the call that launched it."""

    correlation: int | None = None


class Device(msgspec.Struct, frozen=True):
    """A GPU."""

    name: str = "GPU"


class Distributed(msgspec.Struct, frozen=True):
    """The process, as torch.distributed describes it."""

    rank: int | None = None


class File(msgspec.Struct, frozen=True):
    """The file; other keys are ignored."""

    events: list[Event] = msgspec.field(name="traceEvents")
    epoch_ns: float = msgspec.field(name="baseTimeNanoseconds", default=0.0)
    distributed: Distributed = msgspec.field(name="distributedInfo", default=Distributed())
    host: str = msgspec.field(name="host_name", default="")
    devices: list[Device] = msgspec.field(name="deviceProperties", default_factory=list)


KEYS = frozenset(
    field.encode_name for field in (*msgspec.structs.fields(File), *msgspec.structs.fields(Event))
)


def kernel_of(event: Event) -> tuple[str, int]:
    """Return the operation of an NCCL kernel, such as ``recv``, and its bytes, or '' and 0."""
    try:
        message = msgspec.json.decode(event.args, type=Collective | None) or Collective()
    except msgspec.DecodeError:
        return "", 0
    elements, size = str(message.elements), 0
    if elements.isascii() and elements.isdecimal() and len(elements) < 16:
        size = int(elements) * BYTES.get(str(message.kind).lower(), 0)
    return str(message.name).lower(), size if size <= MOST_BYTES else 0


def correlation_of(event: Event) -> int | None:
    """Return the number that a kernel shares with its launch, or None if the trace has none."""
    try:
        launch = msgspec.json.decode(event.args, type=Launch | None)
    except msgspec.DecodeError:
        return None
    return launch.correlation if launch else None


def parse_file(text: str, path: str) -> File:
    """Return the trace in the text of a file (InputError: it is not a trace)."""
    source = f"'{name_of(path)}'"
    file = decode(text, File, source, HINT, KEYS)
    if not 0 <= file.epoch_ns <= LATEST_US * 1e3:
        raise InputError(f"{source}: baseTimeNanoseconds is not a time since 1970", HINT)
    return file


def span_of(event: Event, path: str) -> tuple[float, float]:
    """Return start and end of an event in ms (InputError: it has no such times)."""
    ts, dur = event.ts, event.dur
    if (
        isinstance(ts, float | int)
        and isinstance(dur, float | int)
        and abs(ts) <= LATEST_US
        and 0 <= dur <= LATEST_US
    ):
        return ts * 1e-3, (ts + dur) * 1e-3
    raise InputError(
        f"'{name_of(path)}': {shorten(event.name, 60)} has no ts and dur in microseconds", HINT
    )


def bytes_of(event: Event) -> int:
    """Return the bytes of an operator's inputs, or 0 if the trace does not state them."""
    try:
        found = msgspec.json.decode(event.args, type=Arguments | None)
    except msgspec.DecodeError:
        return 0
    if found is None:
        return 0
    total = 0
    for shape, kind in zip(found.dims or [], found.types or [], strict=False):
        if (
            isinstance(shape, list)
            and shape
            and all(isinstance(n, int) and 0 <= n <= MOST_BYTES for n in shape)
        ):
            total += math.prod(shape) * BYTES.get(str(kind).lower(), 0)
    return total if total <= MOST_BYTES else 0
