"""Schedules from outside: a file of ops, a Python file with a generator, an entry point of an installed package.

Nothing outside is run unless its name was given. A Python file either declares its schedule as the files here do,
or holds one function that takes a Shape and yields a row per device, packed or as text::

    def mine(shape):
        for device in range(shape.devices):
            yield [f"{device}F{m}" for m in range(shape.microbatches)] + [
                f"{device}B{m}" for m in range(shape.microbatches)
            ]
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ppsim.core.ops import PAIRED, Packed, pack
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError, PpsimError, UnknownSchedule
from ppsim.schedules._registry import Family, Generator, Shape, families, find, generate, schedule

GROUP = "ppsim.schedules"
CONTRACT = 'def mine(shape): yield one row per device, such as ["0F0", "0B0"]'


def schedule_from(spec: str, note: Callable[[str], None] | None = None, **shape: Any) -> Schedule:
    """A schedule by name, from a file, or from someone else's code.

    Args:
        spec: a registered name; a file that :mod:`ppsim.files.read` reads, ``-`` for standard input; ``file.py`` or
            ``file.py:function``; or the name of an entry point of the group ``ppsim.schedules``.
        note: is told, a sentence each, what a file of ops holds and its schedule leaves out.
        shape: what :func:`ppsim.schedules.generate` takes. A file of ops states its own shape; what is given for it
            must agree.

    Raises:
        InputError: no such schedule or file, a shape that does not fit, or code that fails.
        InvalidSchedule: ops that cannot run.
    """
    if spec.partition(":")[0].endswith(".py"):
        return _generated(_load_file(spec), shape)
    if spec == "-" or (Path(spec).suffix and Path(spec).is_file()):
        return _stated(spec, shape, note)
    try:
        name = find(spec).name
    except UnknownSchedule as error:
        points = importlib.metadata.entry_points(group=GROUP, name=spec)
        if points:
            return _generated(_load_entry_point(next(iter(points))), shape)
        raise _near(spec) or error from None
    return generate(name, **_needed(shape))


def _near(spec: str) -> InputError | None:
    """What is wrong with a name that is no schedule's, but a file's, or a schedule's with its chunks."""
    from ppsim.files.read import readable

    if Path(spec).suffix and ("/" in spec or spec.lower().endswith(tuple(readable()))):
        return InputError(f"cannot read '{spec}': No such file or directory", "check the path")
    name, _, chunks = spec.partition(":")
    if not chunks.isdecimal():
        return None
    return InputError(f"'{spec}' is no schedule's name", f"--schedule {find(name).name} --chunks {chunks}")


def _needed(shape: dict[str, Any]) -> dict[str, Any]:
    if shape.get("microbatches") is None:
        raise InputError("the number of microbatches is missing", "give --mb")
    return shape


def _generated(family: Family, shape: dict[str, Any]) -> Schedule:
    """Generate, and check what outside code made."""
    from ppsim.core.draft import Draft
    from ppsim.files.read import sound

    try:
        made = generate(family.name, **_needed(shape))
    except PpsimError:
        raise
    except (Exception, SystemExit) as error:
        raise _broken(family.name, error) from error
    draft = sound(Draft.from_schedule(made))
    if (draft.n_stages, draft.n_microbatches) != (made.n_stages, made.n_microbatches):
        raise InputError(
            f"{family.name} yields {draft.n_stages} stages and {draft.n_microbatches} microbatches, where "
            f"{made.n_stages} and {made.n_microbatches} were asked for",
            "use shape.stages and shape.microbatches",
        )
    if not np.array_equal(draft.placement.devices, made.placement.devices):
        raise InputError(
            f"{family.name} places its stages {draft.placement.name}, and is declared {made.placement.name}",
            "declare it with @ppsim.schedules.schedule(..., placement=...)",
        )
    return made


def _stated(path: str, shape: dict[str, Any], note: Callable[[str], None] | None) -> Schedule:
    from ppsim.files.read import read, sound, unused

    draft = sound(read(path))
    schedule = draft.schedule()
    has = {
        "stages": schedule.n_stages,
        "devices": schedule.n_devices,
        "chunks": schedule.n_chunks,
        "microbatches": schedule.n_microbatches,
    }
    for name, value in shape.items():
        if value is not None and value != has.get(name):
            what = f"has {has[name]} {name}, not {value}" if name in has else f"takes no {name.replace('_', ' ')}"
            raise InputError(f"{path} {what}", "leave it out: the file states its own shape")
    if note:
        for sentence in unused(draft):
            note(sentence)
    return schedule


def _load_file(spec: str) -> Family:
    """The schedule of a Python file: the function named, or the only one there is."""
    path, _, wanted = spec.partition(":")
    if not Path(path).is_file():
        raise InputError(f"cannot read '{path}': No such file or directory", "check the path")
    module, declared = _run(path)
    if wanted:
        function = getattr(module, wanted, None)
        if not inspect.isfunction(function):
            raise InputError(f"{path} has no function '{wanted}'", f"one of {', '.join(_functions(module)) or 'none'}")
        return next((family for family in declared if family.generate is function), None) or _adopt(function)
    if len(declared) == 1:
        return declared[0]
    names = [family.generate.__name__ for family in declared] or _functions(module)
    if len(names) != 1:
        if not names:
            raise InputError(f"{path} has no function that takes a Shape and yields rows", CONTRACT)
        raise InputError(f"{path} has {len(names)} schedules: {', '.join(names)}", f"name one: {path}:{names[0]}")
    return _adopt(getattr(module, names[0]))


@cache
def _run(path: str) -> tuple[ModuleType, list[Family]]:
    """The module that a file makes, and the schedules it declares."""
    before = {family.name for family in families()}
    spec = importlib.util.spec_from_file_location(f"ppsim_user_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _broken(path, error) from error
    return module, [family for family in families() if family.name not in before]


def _functions(module: ModuleType) -> list[str]:
    """The public generator functions that a module defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isgeneratorfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def _load_entry_point(point: importlib.metadata.EntryPoint) -> Family:
    """The schedule of an installed package's entry point."""
    try:
        function = point.load()
    except (Exception, SystemExit) as error:
        raise _broken(f"entry point '{point.name}'", error) from error
    declared = next((family for family in families() if family.generate is function), None)
    return declared or _adopt(function, point.name)


@cache
def _adopt(function: Callable[..., Any], name: str = "") -> Family:
    """Register a plain function under its name; stages in a loop, that is, stage s on device s mod P."""
    name = name or function.__name__.replace("_", "-")

    def rows(shape: Shape) -> Iterator[Packed]:
        for row in function(shape):
            yield row if isinstance(row, np.ndarray) else _packed(row)

    generator: Generator = rows
    text = (inspect.getdoc(function) or name).partition("\n")[0]
    try:
        schedule(name, title=name, idea=text, bubble="", peak="", paper="", placement="loop")(generator)
    except ValueError:
        raise InputError(f"there is a schedule named '{name}' already", "give the function another name") from None
    return find(name)


def _packed(row: Any) -> Packed:
    """A row given as text, ``"0F0,0B0"`` or ``["0F0", "0B0"]``, as packed ops."""
    from ppsim.files.readers.csv import parse

    draft = parse(row if isinstance(row, str) else ",".join(str(cell) for cell in row), "the row yielded")
    ops = pack(draft.stage, draft.microbatch) | draft.kind
    ops[draft.first_of_pairs] |= PAIRED
    return ops


def _broken(what: str, error: BaseException) -> InputError:
    """The error of someone else's code, with the line it was raised on."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((f" (line {f.lineno})" for f in reversed(frames) if f.filename.endswith(what)), "")
    if not line and frames:
        line = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    if isinstance(error, SystemExit):
        return InputError(f"{what} ends the program: sys.exit({error.code}){line}", "leave the exit out of it")
    return InputError(
        f"{what} fails: {type(error).__name__}: {error}{line}", "mend it, or run it by itself to see more"
    )
