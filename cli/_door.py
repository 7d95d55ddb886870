"""Commands that come from files and pages, and not from whoever is at the keyboard, held to what those may state.

What a file may state for an option stands where the option is declared (:mod:`ppsim.questions.door`). Options of
commands that declare none have their row here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from ppsim.cli._options import declared_of, spell_out
from ppsim.errors import InputError
from ppsim.questions.door import (
    PATH,
    PRINTS,
    VALUE,
    WRITES,
    Door,
    admit_value,
    are_factors,
    door_of,
    names_cluster,
    names_model,
)
from ppsim.questions.options import Option


def states_values(change: str) -> bool:
    """Whether a change to a run states for each of its options what a file may state."""
    from ppsim.questions.whatif import read_keys

    doors = ((door_of(_with_row(option)), value) for option, value in read_keys(change) if option)
    return all(door == VALUE or (callable(door) and door(value)) for door, value in doors)


_MEASURES, _SERVES = "is for measuring on this machine", "opens a port"
DOORS: dict[str, Door] = {
    **dict.fromkeys(("links", "layout", "unit", "recompute", "offload", "host_link", "gantt"), VALUE),
    "recompute_modules": VALUE,
    **dict.fromkeys(("front", "iteration", "calibrate_on", "only", "schedules", "schedule_name", "recomputes"), VALUE),
    **dict.fromkeys(("layouts", "even", "ranks", "improve", "cap"), VALUE),
    **dict.fromkeys(("mb_scale", "slice_scale"), are_factors),
    **dict.fromkeys(("cluster", "machine"), names_cluster),
    "model": names_model,
    "changes": states_values,
    **dict.fromkeys(("file", "measured"), PATH),
    **dict.fromkeys(("output", "record"), WRITES),
    "module": "runs code",
    **dict.fromkeys(("ops", "runner", "device", "hidden", "heads", "microbatch_size", "layers", "vocab"), _MEASURES),
    **dict.fromkeys(("repeats", "warm_up", "real_time", "dtype", "max_bytes", "sizes", "note", "force"), _MEASURES),
    **dict.fromkeys(("port", "host", "public", "no_open", "print_url"), _SERVES),
    **dict.fromkeys(("debug", "shell", "only_print"), PRINTS),
}
# Commands that only compute, and why the others are not for files.
COMMANDS = {"check", "compare", "convert", "diff", "explain", "jitter", "layout", "list", "memory", "model"}
COMMANDS |= {"optimize", "partition", "plan", "read", "run", "sweep"}
REFUSED_COMMANDS = {
    "calibrate": "measures this machine",
    "validate": "starts processes",
    "gallery": "writes a folder of files",
    "rerun": "runs the command of another file",
    "serve": "opens a port",
    "open": "starts a browser",
    "profile": "only reads files",
    "completion": "only prints",
}


def admit(words: Sequence[str], source: str) -> click.Command:
    """Hold a command that a file states to what files may state, and return it.

    Args:
        words: the name of a command, its arguments and options.
        source: who states it, to begin the message with.

    Raises:
        InputError: a command or an option that only a user may type; the message names it.
    """
    from ppsim.cli import group

    name, *rest = words or [""]
    command = group.get_command(click.Context(group), name)
    if command is None:
        raise InputError(f"{source} states no command of ppsim", "ppsim --help lists them")
    if name not in COMMANDS:
        raise InputError(f"{source} states '{name}', which {REFUSED_COMMANDS[name]}", by_hand(words))
    check_values(command, _parse(command, rest, source), source, by_hand(words))
    return command


def check_values(command: click.Command, given: Mapping[str, Any], source: str, hint: str = "leave it out") -> None:
    """Hold values, by the names of a command's parameters, to what files may state; as :func:`admit`."""
    params = {param.name: param for param in command.params}
    retired = {param.name for param in getattr(command, "retired", ())}
    for name, value in given.items():
        if name in retired:
            continue
        if name not in params:
            raise InputError(f"{source} states '{name}', which {command.name} does not take", hint)
        admit_value(declared_in(command, params[name]), value, source, hint)


def declared_in(command: click.Command, param: click.Parameter) -> Option:
    """What is declared of a parameter, with what a file may state for it."""
    own = (each for each in getattr(command, "declared", ()) if each.name == param.name)
    found = next(own, None) or declared_of(param)
    only_path = isinstance(param.type, click.Path) and "NAME" not in (param.metavar or "")
    return replace(found, door=PATH) if only_path and callable(_with_row(found).door) else _with_row(found)


def _with_row(declared: Option) -> Option:
    return declared if declared.door is not None else replace(declared, door=DOORS.get(declared.name))


def by_hand(words: Sequence[str]) -> str:
    """The hint that gives a refused command for a shell."""
    return f"if you trust it, by hand: {shell_line(['ppsim', *words])}"


def shell_line(words: Sequence[str]) -> str:
    """Write words for a shell, which takes each of them as it is; what no terminal should get is escaped."""
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{_escape(word)}'" for word in words)


def _escape(word: str) -> str:
    return "".join(sign if sign.isprintable() and sign not in "'\\" else f"\\U{ord(sign):08x}" for sign in word)


def _parse(command: click.Command, words: Sequence[str], source: str) -> dict[str, Any]:
    """The texts given for each parameter, as click reads them, none of them converted yet."""
    try:
        context = click.Context(command, info_name=command.name, help_option_names=[])
        found, _, given = command.make_parser(context).parse_args([*spell_out(command.params, words)])
    except click.UsageError as error:
        raise InputError(f"{source} states what {command.name} does not take: {error.format_message()}") from None
    texts = (param for param in given if isinstance(param, click.Option) or isinstance(found[param.name], str | tuple))
    return {param.name: found[param.name] for param in texts}  # without arguments that are not there
