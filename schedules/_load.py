"""Schedules from users: a file of ops, a Python file with a generator, a building block, an entry
point.

A user's code runs only if the user named it. A Python file either declares its schedule like the
files here, or contains one function that takes a Shape and yields a row per device, packed or as
text::

    def mine(shape):
        for device in range(shape.devices):
            yield [f"{device}F{m}" for m in range(shape.microbatches)] + [
                f"{device}B{m}" for m in range(shape.microbatches)
            ]
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ppsim.core.costs import costs_for
from ppsim.core.ops import PAIRED, Packed, pack
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError, UnknownSchedule
from ppsim.schedules.registry import (
    Family,
    Generator,
    Pricing,
    Shape,
    families,
    find,
    generate,
    generate_once,
    schedule,
    take_rows,
)

GROUP = "ppsim.schedules"
CONTRACT = 'def mine(shape): yield one row per device, such as ["0F0", "0B0"]'
CHUNKS = re.compile(r"(.+):([0-9]{1,9})")
# Ops per stage and microbatch in a device's row: F, R, I, W, for two replicas. A longer row counts
# as endless.
MOST_OPS = 8


def schedule_from(
    spec: str, note: Callable[[str], None] | None = None, costs: Pricing = costs_for, **shape: Any
) -> Schedule:
    """Return a schedule by name, from a file, or from a user's code.

    Args:
        spec: a registered name; a file that :mod:`ppsim.inputs.drafts.read` reads, ``-`` for
            standard input; ``file.py`` or ``file.py:function``; a block in ``file.toml``
            (:mod:`ppsim.schedules._block`); or the name of an entry point of the group
            ``ppsim.schedules``. ``:V`` after any of them sets the stages per device.
        note: called with a sentence for each part of a file of ops that the schedule ignores.
        costs: as in :func:`ppsim.schedules.generate`.
        shape: as in :func:`ppsim.schedules.generate`; it must agree with a file of ops, which
            states its shape.

    Raises:
        InputError: no such schedule or file, a shape that does not fit, or code that fails.
        InvalidSchedule: ops that cannot run.
    """
    source, chunks = split_chunks(spec)
    if chunks is None:
        return _schedule_from(source, note, costs, shape)
    if shape.get("chunks") not in (None, chunks):
        raise InputError(
            f"'{spec}' asks for {chunks} stages per device, and --chunks for {shape['chunks']}",
            "leave one of them out",
        )
    try:
        return _schedule_from(source, note, costs, {**shape, "chunks": chunks})
    except InputError as error:
        error.hint = re.sub(r"--chunks (\d+)", rf"{source}:\1", error.hint)
        raise


def split_chunks(spec: str) -> tuple[str, int | None]:
    """Return source and V of a spelling ``SOURCE:V``; V is None without a colon.

    Raises:
        InputError: V is zero or missing after the colon.
    """
    if spec.endswith(":") and "." not in spec:
        raise InputError(
            f"'{spec}' ends where the stages per device should come", f"{spec}2, or {spec[:-1]}"
        )
    match = None if reads_ops(spec) else CHUNKS.fullmatch(spec)
    if not match:
        return spec, None
    if int(match[2]) == 0:
        raise InputError(f"'{spec}' asks for no stages per device", f"{match[1]}:2")
    return match[1], int(match[2])


def reads_ops(spec: str) -> bool:
    """Return whether a spelling is a file of ops, which states its shape."""
    return spec == "-" or (
        not spec.endswith((".py", ".toml")) and bool(Path(spec).suffix) and os.path.isfile(spec)
    )


def family_of(spec: str) -> Family | None:
    """Return the family of a spelling, None for a file of ops; a user's code is loaded.

    Raises:
        InputError: no such schedule or file, or code that fails.
    """
    source, _ = split_chunks(spec)
    return None if reads_ops(source) else _family(source)[0]


def _family(source: str) -> tuple[Family, bool]:
    """Return the family of a name, file or entry point, and whether its code is a user's."""
    if source.endswith(".toml"):
        from ppsim.schedules._block import load_block

        return load_block(source), False
    if source.partition(":")[0].endswith(".py"):
        return _load_file(source), True
    try:
        return find(source), False
    except UnknownSchedule:
        points = importlib.metadata.entry_points(group=GROUP, name=source)
        if points:
            return _load_entry_point(next(iter(points))), True
        _refuse_missing_file(source)
        raise


def _refuse_missing_file(source: str) -> None:
    from ppsim.inputs.drafts.read import readable

    if os.path.isdir(source):  # unlike Path.is_dir, this never raises for an impossible name
        raise InputError(
            f"'{source}' is a folder",
            "a file; ppsim read and ppsim explain --trace take a run's folder",
        )
    if "/" in source or (Path(source).suffix and source.lower().endswith(tuple(readable()))):
        from ppsim.base.source import read_bytes

        read_bytes(source)  # raises an error that says why it cannot be read
        raise InputError(
            f"the name of '{source}' does not say its format", f"one of {' '.join(readable())}"
        )


def _schedule_from(
    source: str, note: Callable[[str], None] | None, costs: Pricing, shape: dict[str, Any]
) -> Schedule:
    if reads_ops(source):
        return _schedule_of_file(source, shape, note)
    family, is_users = _family(source)
    if shape.get("microbatches") is None:
        raise InputError("the number of microbatches is missing", "give --mb")
    if is_users:
        return _generated(family, costs, shape)
    return generate_once(family.name, costs=costs, **shape)


def _generated(family: Family, costs: Pricing, shape: dict[str, Any]) -> Schedule:
    """Return the schedule that a user's code generates, checked."""
    from ppsim.base.outside_code import outside_code
    from ppsim.core.draft import Draft
    from ppsim.inputs.drafts.read import require_sound

    with outside_code(family.name):
        made = generate(family.name, costs=costs, **shape)
        draft = require_sound(Draft.from_schedule(made))
    if (draft.n_stages, draft.n_microbatches) != (made.n_stages, made.n_microbatches):
        raise InputError(
            f"{family.name} yields {draft.n_stages} stages and {draft.n_microbatches} "
            f"microbatches instead of {made.n_stages} and {made.n_microbatches}",
            "use shape.stages and shape.microbatches",
        )
    if not np.array_equal(draft.placement.devices, made.placement.devices):
        raise InputError(
            f"{family.name} places its stages {draft.placement.name}, and is declared "
            f"{made.placement.name}",
            "declare it with @ppsim.schedules.schedule(..., placement=...)",
        )
    return made


def _schedule_of_file(
    path: str, shape: dict[str, Any], note: Callable[[str], None] | None
) -> Schedule:
    from ppsim.inputs.drafts.read import read, require_sound, unused_sentences

    draft = require_sound(read(path))
    schedule = draft.schedule()
    require_shape(path, schedule, shape)
    if note:
        for sentence in unused_sentences(draft):
            note(sentence)
    return schedule


def require_shape(source: str, schedule: Schedule, shape: dict[str, Any]) -> None:
    """Raise InputError if options of the shape differ from a schedule, of a file or of Python.

    ``source`` is the path or the name in the message.
    """
    has = {
        "stages": schedule.n_stages,
        "devices": schedule.n_devices,
        "chunks": schedule.n_chunks,
        "microbatches": schedule.whole_microbatches,
        "slices": schedule.n_slices,
    }
    for name, value in shape.items():
        if value is not None and value != has.get(name):
            what = (
                f"has {has[name]} {name}, not {value}"
                if name in has
                else f"takes no {name.replace('_', ' ')}"
            )
            raise InputError(f"{source} {what}", "leave it out: the schedule states its shape")


def _load_file(spec: str) -> Family:
    """Return the schedule of a Python file: that of the function named, or the only one."""
    path, _, wanted = spec.partition(":")
    module, declared = _run(path)
    if wanted:
        function = getattr(module, wanted, None)
        if not inspect.isfunction(function):
            raise InputError(
                f"{path} has no function '{wanted}'",
                f"one of {', '.join(_functions(module)) or 'none'}",
            )
        return next((family for family in declared if family.generate is function), None) or _adopt(
            function
        )
    if len(declared) == 1:
        return declared[0]
    names = [family.generate.__name__ for family in declared] or _functions(module)
    if len(names) != 1:
        if not names:
            raise InputError(f"{path} has no function that takes a Shape and yields rows", CONTRACT)
        raise InputError(
            f"{path} has {len(names)} schedules: {', '.join(names)}", f"name one: {path}:{names[0]}"
        )
    return _adopt(getattr(module, names[0]))


@cache
def _run(path: str) -> tuple[ModuleType, list[Family]]:
    """Run a Python file, and return its module and the schedules it declares."""
    from ppsim.base.outside_code import run_file

    before = {family.name for family in families()}
    module = run_file(path)
    return module, [family for family in families() if family.name not in before]


def _functions(module: ModuleType) -> list[str]:
    """Return the names of the public generator functions that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isgeneratorfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def _load_entry_point(point: importlib.metadata.EntryPoint) -> Family:
    """Return the schedule of an installed package's entry point."""
    from ppsim.base.outside_code import outside_code

    with outside_code(f"entry point '{point.name}'"):
        function = point.load()
    declared = next((family for family in families() if family.generate is function), None)
    return declared or _adopt(function, point.name)


@cache
def _adopt(function: Callable[..., Any], name: str = "") -> Family:
    """Register a function without a declaration under its name; stage s is on device s mod P."""
    name = name or function.__name__.replace("_", "-")

    def rows(shape: Shape) -> Iterator[Packed]:
        yielded = take_rows(name, function(shape), shape)
        most = MOST_OPS * shape.stages * shape.microbatches
        texts = [_text(row, most) for row in yielded if not isinstance(row, np.ndarray)]
        packed = iter(_pack(texts, name))
        yield from (row if isinstance(row, np.ndarray) else next(packed) for row in yielded)

    generator: Generator = rows
    text = (inspect.getdoc(function) or name).partition("\n")[0]
    try:
        schedule(name, title=name, idea=text, bubble="", peak="", paper="", placement="loop")(
            generator
        )
    except ValueError:
        raise InputError(
            f"there is a schedule named '{name}' already", "give the function another name"
        ) from None
    return find(name)


def _text(row: str | Iterable[Any], most: int) -> str:
    """Return a row, ``"0F0,0B0"`` or ``["0F0", "0B0"]``, as a line of a file.

    Raises:
        InputError: the row has more than ``most`` cells.
    """
    cells = [row] if isinstance(row, str) else [str(cell) for cell in islice(row, most + 1)]
    if len(cells) > most:
        raise InputError(f"a row has more than {most} ops", "yield each op of a device once")
    return ",".join(cells)


def _pack(lines: list[str], name: str) -> Iterator[Packed]:
    """Yield packed rows from rows of text, which are parsed like the lines of a schedule file."""
    from ppsim.inputs.drafts.readers.csv import parse

    draft = parse("\n".join(lines), f"what {name} yields")
    ops = pack(draft.stage, draft.microbatch) | draft.kind
    ops[draft.first_of_pairs] |= PAIRED
    yield from np.split(ops, draft.offsets[1:-1])
