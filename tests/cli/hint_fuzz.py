"""Refusals' hints, followed to the letter: what a hint names must not be refused for the same
reason.

    python -m tests.cli.hint_fuzz SEED COUNT [COMMAND TO LEAVE OUT]...

prints every hint, of so many random command lines, that leads to the same refusal again, and every
internal error.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from ppsim.cli import group
from tests.cli.option_fuzz import CODES, commands, inputs, words_of
from tests.commands import answer

LEFT_OUT = ("completion",)
SECONDS = 120
# What stands for the words of hints that users replace, and for options that a hint names without a
# value.
FILLED = {
    "FILE": "x.json",
    "NAME": "1f1b",
    "STRING": "Et|t|t|tL",
    "N": "8",
    "M": "8",
    "P": "4",
    "FACTORS": "1,1,1,1,1,1,1,1",
}
USUAL = {"--mb": "8", "--devices": "4", "--stages": "4", "--num-layers": "8", "--chunks": "2"}
ALTERNATIVE = re.compile(
    r",? or (?=-|'|leave|another|ppsim|add|more|fewer|\d)|[;,] (?=add|leave|-o|--)"
)
OPTION = re.compile(r"--?[a-z][a-z-]*")


def follow(words: list[str], said: str, hint: str) -> Iterator[list[str]]:
    """The command lines that a hint names: options added, replaced or left out, layouts, other
    commands.
    """
    options = options_of(words)
    for text in ALTERNATIVE.split(re.sub(r"\([^)]*\)", "", hint.removeprefix("such as "))):
        named = [word for word in OPTION.findall(text) if word in options]
        if text.startswith("leave"):
            blamed = (
                named
                or [word for word in OPTION.findall(said) if word in options and word in words][:1]
            )
            changed = words
            for option in blamed:
                changed = without(changed, options[option])
            if changed != words:
                yield changed
        elif match := re.match(r"ppsim (.+)", text):
            file = next((word for word in words if os.path.isfile(word)), "FILE")
            line = [
                file if word == "FILE" else fill(word)
                for word in re.split(" (?:adds|writes) ", match[1])[0].split()
            ]
            if line[0] in group.list_commands(click.Context(group)) and not re.search(
                r"[A-Z]{2}|\.\.\.", " ".join(line)
            ):
                yield line
        elif spec := re.match(r"([\w./-]+):[\w-]+", text):
            yield [spec[0] if word.partition(":")[0] == spec[1] else word for word in words]
        elif layout := re.match(r"'([^']*)'", text):
            if given := next((option for option in ("--layout",) if option in words), None):
                yield [*without(words, options[given]), given, layout[1]]
            elif words[0] == "layout":
                yield [layout[1] if "|" in word else word for word in words]
        elif match := re.match(
            r"(?:add |give |fewer )?((?:--?[a-z][a-z-]*(?:[ =][^\s-][^\s,;]*)? ?)+)", text
        ):
            changed = added(words, match[1].replace("=", " ").split(), options)
            if changed:
                yield changed


def added(words: list[str], tokens: list[str], options: dict[str, click.Parameter]) -> list[str]:
    """The words with options and values of a hint in place of those given; empty where the hint
    names no value.
    """
    at = 0
    while at < len(tokens):
        option = options.get(tokens[at])
        if not isinstance(option, click.Option):
            return []
        words = without(words, option) if not option.multiple else words
        if option.is_flag:
            words, at = [*words, tokens[at]], at + 1
            continue
        value = tokens[at + 1] if at + 1 < len(tokens) else USUAL.get(tokens[at], "")
        value = fill(value.rstrip(",.;").strip("'"))
        if not value or re.fullmatch(r"[A-Z][A-Z_|:.]*", value):
            return []
        words, at = [*words, tokens[at], value], at + 2
    return words


def fill(word: str) -> str:
    """A word of a hint with what users replace filled in: FILE.svg is x.svg."""
    return FILLED.get(word) or word.replace("FILE.", "x.")


def options_of(words: list[str]) -> dict[str, click.Parameter]:
    """The options of a command line's command by their spellings."""
    command = group.get_command(click.Context(group), words[0])
    if isinstance(command, click.Group):
        command = command.commands.get(words[1]) if len(words) > 1 else None
    return {
        word: param
        for param in (command.params if command else [])
        for word in (*param.opts, *param.secondary_opts)
    }


def without(words: list[str], param: click.Parameter) -> list[str]:
    """The words without an option and its values, however it is spelled."""
    kept, at = list[str](), 0
    while at < len(words):
        if words[at] in (*param.opts, *param.secondary_opts):
            at += 1 if isinstance(param, click.Option) and param.is_flag else 2
        else:
            if not any(words[at].startswith(f"{spelling}=") for spelling in param.opts):
                kept.append(words[at])
            at += 1
    return kept


def reason(errors: str) -> str:
    """What an error says, whatever its numbers."""
    return re.sub(r"\d[\d.,]*", "#", errors[errors.find("Error: ") :].partition("\n  try: ")[0])


def run(words: list[str]) -> tuple[object, str]:
    """Run a command line in this process: its exit code, or how it ended otherwise, and its
    errors.
    """

    def late(*_: object) -> None:
        raise TimeoutError(f"{SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        code, _, errors = answer(*words)
    except Exception as error:
        return repr(error), ""
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return code, errors


def faults_of(words: list[str], tried: list[int]) -> Iterator[str]:
    """What is wrong with a refusal's hints; each that is followed counts in ``tried``."""
    code, errors = run(words)
    if code not in CODES or "Traceback" in errors:
        yield f"exit {code}: {errors[-300:]}"
        return
    said, _, hint = errors.partition("\n  try: ")
    for changed in follow(words, said, " ".join(hint.split())) if code and hint else ():
        tried.append(len(changed))
        again, then = run(changed)
        if again not in CODES:
            yield f"then ppsim {shlex.join(changed)}: exit {again}: {then[-300:]}"
        elif again and reason(then) == reason(errors):
            yield (
                f"{errors.strip()[-400:]}\n  then ppsim {shlex.join(changed)}: {then.strip()[:300]}"
            )


def faults(
    seed: int, count: int, left_out: tuple[str, ...], tried: list[int]
) -> Iterator[tuple[list[str], str]]:
    """Every fault of so many random command lines, none of the commands that are left out."""
    draw = random.Random(seed)
    known = [
        (names, command) for names, command in commands() if names[0] not in (*LEFT_OUT, *left_out)
    ]
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        inputs(Path(folder))
        os.chdir(folder)
        try:
            for _ in range(count):
                words = words_of(*draw.choice(known), draw)
                # which no terminal of these tests takes
                if not any("\udcff" in word for word in words):
                    for fault in faults_of(words, tried):
                        yield words, fault
        finally:
            os.chdir(here)


if __name__ == "__main__":
    found, hints = 0, list[int]()
    for case, fault in faults(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]), hints):
        found += 1
        print(
            f"ppsim {shlex.join(case)}"[:600].encode(errors="replace").decode(),
            f"\n  {fault}",
            flush=True,
        )
    print(
        f"{found} faults of {sys.argv[2]} cases of seed {sys.argv[1]}, with {len(hints)} hints "
        f"followed"
    )
    sys.exit(found > 0)
