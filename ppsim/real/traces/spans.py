"""Spans of Megatron-LM's OpenTelemetry, as a collector's file exporter writes them (OTLP as JSON), as a table of ops.

Names and attributes are those of Megatron-Core's guide (user guide, observability: span groups; pipeline-parallel trace
correlation). A forward has its ``megatron.microbatch_id``; a backward has none, and is that of the next microbatch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from ppsim.base.source import name_of
from ppsim.base.typed_json import decode
from ppsim.base.unpack.json_objects import check_objects
from ppsim.base.unpack.texts import split_lines
from ppsim.errors import InputError

MARK = '"resourceSpans"'
HEAD = 4096
STEP, LINKED = "megatron.train_step", "megatron.pp.recv_forward.linked"
OPS = {"megatron.microbatch.forward": "F", "megatron.microbatch.backward": "B"}
ITERATION, MICROBATCH = "megatron.iteration", ("megatron.microbatch_id", "dl.microbatch_id")
RANK = "dl.{}_parallel.rank"
HINT = "spans of every rank, with MEGATRON_OTEL_SPAN_GROUPS=all and MEGATRON_OTEL_EXPORT_RANK for each rank"
NOTES = (
    "a backward's span has no microbatch: they are taken in the order of the forwards",
    "spans are times of the host: an op that the host only launches on a GPU looks shorter than it is",
)


class Value(msgspec.Struct, frozen=True):
    """An attribute's value; OTLP writes whole numbers as text."""

    number: int | str | None = msgspec.field(name="intValue", default=None)


class Attribute(msgspec.Struct, frozen=True):
    """A name and its value."""

    key: str
    value: Value


class Span(msgspec.Struct, frozen=True, rename="camel"):
    """Something that a rank did, from one time to another in ns."""

    name: str
    span_id: str
    start_time_unix_nano: int | str
    end_time_unix_nano: int | str
    parent_span_id: str = ""
    attributes: tuple[Attribute, ...] = ()


class Scope(msgspec.Struct, frozen=True):
    """The spans of one library."""

    spans: tuple[Span, ...] = ()


class Resource(msgspec.Struct, frozen=True):
    """A rank."""

    attributes: tuple[Attribute, ...] = ()


class Rank(msgspec.Struct, frozen=True):
    """The spans of one rank."""

    resource: Resource = Resource()
    scopes: tuple[Scope, ...] = msgspec.field(name="scopeSpans", default=())


class Export(msgspec.Struct, frozen=True):
    """One export of a collector."""

    ranks: tuple[Rank, ...] = msgspec.field(name="resourceSpans", default=())


def matches(text: str) -> bool:
    """Tell whether a text holds spans as a collector exports them."""
    return MARK in text[:HEAD]


def table_of(texts: Mapping[str, str]) -> tuple[bytes, tuple[str, ...]]:
    """Make a table of ops, as CSV, of all spans, and say what was assumed (InputError: no export, or not told)."""
    spans, attributes = defaultdict[str, list[Span]](list), dict[str, dict[str, int]]()
    for path, text in texts.items():
        for rank in _ranks(text, f"'{name_of(path)}'"):
            about = _numbers(rank.resource.attributes)
            own = [span for scope in rank.scopes for span in scope.spans]
            key = repr(sorted(about.items())) if about else path
            attributes[key] = about
            spans[key] += own
    places = dict[tuple[int, int], tuple[int, str]]()
    for key, own in spans.items():
        if any(span.name in OPS for span in own):
            place = _rank_of("data", attributes[key], own, 0), _rank_of("pipeline", attributes[key], own, None)
            tensor = _rank_of("tensor", attributes[key], own, 0)
            if place not in places or tensor < places[place][0]:  # all tensor-parallel ranks run the same ops
                places[place] = tensor, key
    if not places:
        raise InputError(f"{', '.join(map(name_of, texts))}: no spans of microbatches", HINT)
    ran = {device for _, device in places}
    if missing := sorted(set(range(min(max(ran), len(ran)) + 1)) - ran):
        raise InputError(f"pipeline rank {max(ran)} has spans, and rank {missing[0]} has none", HINT)
    starts = (_whole(span.start_time_unix_nano, "the start") for own in spans.values() for span in own)
    first = min(starts)  # times since 1970 in ns have more digits than a float
    rows = chain.from_iterable(
        _rows(replica, device, spans[key], first) for (replica, device), (_, key) in places.items()
    )
    lines = ("step,dp_rank,pp_rank,kind,microbatch,start_ms,end_ms", *rows)
    return "\n".join(lines).encode(), NOTES


def _ranks(text: str, source: str) -> Iterator[Rank]:
    """The ranks of a file: one export, or one a line."""
    check_objects(text, source, HINT)  # of all its lines, which are decoded one by one
    lines = split_lines(text, source) if text.count(MARK) > 1 else [text]
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = source if len(lines) == 1 else f"{source}, line {number}"
            yield from decode(line, Export, where, "the file of a collector's file exporter, in JSON").ranks


def _numbers(attributes: Sequence[Attribute]) -> dict[str, int]:
    """Those attributes that are whole numbers."""
    found = ((each.key, each.value.number) for each in attributes)
    return {key: _whole(number, key) for key, number in found if number is not None}


def _whole(number: int | str, what: str) -> int:
    if isinstance(number, str) and not (number.isdecimal() and len(number) < 20):
        raise InputError(f"{what} of a span is no whole number", HINT)
    return int(number)


def _rank_of(kind: str, about: Mapping[str, int], own: Sequence[Span], missing: int | None) -> int:
    """The rank along one kind of parallelism: of the process, or of a span of its."""
    name = RANK.format(kind)
    values = chain([about], (_numbers(span.attributes) for span in own if span.name == LINKED))
    found = next((each[name] for each in values if name in each), missing)
    if found is None:
        raise InputError(f"spans of a rank do not tell its {name}", f"it among the resource's attributes; {HINT}")
    return found


def _rows(replica: int, device: int, own: Sequence[Span], first: int) -> Iterator[str]:
    """The rows of one device's ops, in order of time, which counts from ``first``."""
    parents = {span.span_id: span for span in own}
    seen = defaultdict[tuple[int, str], list[int]](list)
    for span in sorted((s for s in own if s.name in OPS), key=lambda s: _whole(s.start_time_unix_nano, "the start")):
        step, kind = _step_of(span, parents), OPS[span.name]
        told = _numbers(span.attributes)
        done = seen[step, kind]
        if kind == "B" and not any(name in told for name in MICROBATCH):
            forwards = seen[step, "F"]
            if len(done) >= len(forwards):
                raise InputError(f"device {device} runs a backward before its forward in step {step}", HINT)
            microbatch = forwards[len(done)]
        else:
            found = next((told[name] for name in MICROBATCH if name in told), None)
            if found is None:
                raise InputError(f"a {span.name} of device {device} tells no {MICROBATCH[0]}", HINT)
            microbatch = found
        if microbatch in done:
            what = f"device {device} runs {kind} of microbatch {microbatch} twice in step {step}"
            raise InputError(f"{what}: spans do not tell chunks", "a table of ops with stages, or ppsim.record")
        done.append(microbatch)
        begin, end = ((_whole(t, "a time") - first) / 1e6 for t in (span.start_time_unix_nano, span.end_time_unix_nano))
        yield f"{step},{replica},{device},{kind},{microbatch},{begin},{end}"


def _step_of(span: Span, parents: Mapping[str, Span]) -> int:
    """The iteration of the step that a span is part of."""
    at: Span | None = span
    for _ in range(16):
        if at is None:
            break
        if at.name == STEP and ITERATION in (told := _numbers(at.attributes)):
            return told[ITERATION]
        at = parents.get(at.parent_span_id)
    raise InputError(f"a {span.name} is part of no {STEP} with {ITERATION}", HINT)
