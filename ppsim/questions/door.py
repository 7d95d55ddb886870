"""Which options a stranger's file or a page may state, and not the user alone.

Where an option is declared, ``door`` says what a stranger may give for it: a ``VALUE``, which no question takes for a
path; a text that a function finds to be no path; the ``PATH`` of data, where whoever asks lets it be read; or nothing,
for the reason given. Numbers and choices are values, schedules are named by the registry's names, and a type for paths
takes paths; texts and flags have to say it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from ppsim.base.text import quote
from ppsim.errors import InputError
from ppsim.questions.options import Option
from ppsim.questions.types import CountList, Counts, Highlighted, Numbers, ScheduleName, Share, Window

VALUE, PATH = "value", "path"
# Why only a user gives some options.
WRITES = "says what is written where"
PRINTS = "changes what is printed, not a file"
CONNECTS = "connects to other machines"
KEEPS = "reads and writes a file"
Door = str | Callable[[str], bool]
MayRead = Callable[[Door, str], bool]
_NUMBERS = (click.types.IntParamType, click.types.FloatParamType, Numbers, Counts, CountList, Share, Window)
_SPELLED = re.compile(r"([A-Za-z0-9_-]+)(:[0-9]{1,9})?")


def door_of(declared: Option) -> Door | None:
    """What a stranger may give for an option; None where nobody has said it."""
    if declared.door is not None or declared.is_object:
        return declared.door or "only Python gives"
    kind = click.types.convert_type(declared.type)
    if isinstance(kind, (*_NUMBERS, click.Choice, Highlighted)):
        return VALUE
    if isinstance(kind, ScheduleName):
        return names_schedule
    return PATH if isinstance(kind, click.Path | click.File) else None


def admit_value(
    declared: Option, value: Any, source: str, hint: str, may_read: MayRead = lambda door, text: False
) -> None:
    """Hold a value that was not typed, or each of several, to what may be given; ``source`` says who states it.

    ``may_read`` tells whether an option with this door may hold this path of a file that is read.

    Raises:
        InputError: only a user may give it; the message names the option.
    """
    door = door_of(declared)
    if door == VALUE:
        return
    if not callable(door) and door != PATH:
        raise InputError(f"{source} states {declared.spelling}, which {door or 'only a user gives'}", hint)
    for text in map(str, value if isinstance(value, list | tuple) else [value]):
        if not (text and may_read(door, text)) and (door == PATH or not door(text)):  # type: ignore[operator]
            raise InputError(f"{source} states {declared.spelling} {quote(text)}, which may be a file to read", hint)


def names_schedule(text: str) -> bool:
    """Whether a text names a schedule of ours; a word that no file has raises what the registry says of it."""
    from ppsim.schedules import find

    match = _SPELLED.fullmatch(text)
    return match is not None and bool(find(match[1]))


def names_cluster(text: str) -> bool:
    """Whether a text names a cluster of ours."""
    from ppsim.workload.hardware.hardware import machines

    return text.lower() in machines()


def names_model(text: str) -> bool:
    """Whether a text names a model of ours."""
    from ppsim.workload.model.model import library

    return text.lower() in library()


def are_factors(text: str) -> bool:
    """Whether a text has factors, and names no file of them."""
    from ppsim.inputs.profile.scale import names_file

    return not names_file(text)
