"""Hold commands that files state to the options that a stranger may state.

What a file may state for an option stands where the option is declared (:mod:`ppsim.questions.door`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ppsim.cli._command import Question, spell_out
from ppsim.errors import InputError
from ppsim.questions.door import admit_value

# Commands that only compute, and why the others are not for files.
COMMANDS = {"check", "compare", "convert", "diff", "explain", "jitter", "layout", "list", "memory", "model"}
COMMANDS |= {"optimize", "partition", "plan", "read", "run", "sweep"}
REFUSED_COMMANDS = {
    "calibrate": "measures this machine",
    "validate": "starts processes",
    "rerun": "runs the command of another file",
    "serve": "opens a port",
    "open": "starts a browser",
    "profile": "only reads files",
    "completion": "only prints",
}


def admit(words: Sequence[str], source: str) -> Question:
    """Hold a command that a file states to what files may state, and return it; ``source`` says who states it.

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
    assert isinstance(command, Question)
    check_values(command, _parse(command, rest, source), source, by_hand(words))
    return command


def check_values(command: Question, given: Mapping[str, Any], source: str, hint: str = "leave it out") -> None:
    """Hold values, by the names of a command's parameters, to what files may state; as :func:`admit`."""
    declared, retired = {each.name: each for each in command.declared}, {each.name for each in command.retired}
    for name, value in given.items():
        if name in retired:
            continue
        if name not in declared:
            raise InputError(f"{source} states '{name}', which {command.name} does not take", hint)
        admit_value(declared[name], value, source, hint)


def by_hand(words: Sequence[str]) -> str:
    """The hint that gives a refused command for a shell."""
    return f"if you trust it, by hand: {shell_line(['ppsim', *words])}"


def shell_line(words: Sequence[str]) -> str:
    """Write words for a shell, which takes each of them as it is; what no terminal should get is escaped."""
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{_escape(word)}'" for word in words)


def _escape(word: str) -> str:
    return "".join(sign if sign.isprintable() and sign not in "'\\" else f"\\U{ord(sign):08x}" for sign in word)


def _parse(command: Question, words: Sequence[str], source: str) -> dict[str, Any]:
    """The texts given for each parameter, as click reads them, none of them converted yet."""
    try:
        context = click.Context(command, info_name=command.name, help_option_names=[])
        found, _, given = command.make_parser(context).parse_args([*spell_out(command.get_params(context), words)])
    except click.UsageError as error:
        raise InputError(f"{source} states what {command.name} does not take: {error.format_message()}") from None
    texts = (param for param in given if isinstance(param, click.Option) or isinstance(found[param.name], str | tuple))
    return {param.name: found[param.name] for param in texts}  # without arguments that are not there
