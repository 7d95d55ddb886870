"""Pages of the command reference, made of click's own commands."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

from ppsim.cli import SECTIONS, _source, group
from ppsim.cli._command import Question
from ppsim.questions import place_of
from tests.site.fields import cell, code

HEAD = """# Commands

`ppsim COMMAND --help` shows the common options of a command; `--help-all` shows all options, as
these pages do. `-o FILE` is repeatable, and the suffix of the file decides its format.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the answer is no, such as a schedule that deadlocks |
| 2 | bad usage or unreadable input |
| 3 | something is not installed |
| 4 | measurements do not decide |
| 70 | an internal error; `--debug` shows where |
| 128 + n | signal n ended it, such as 130 for Ctrl-C |
"""
ALONE = "Other"


def command_pages() -> dict[str, str]:
    """Return the pages of the reference by their path: an index, then one for each command."""
    sections = (*SECTIONS, ALONE)
    listed = group.list_commands(click.Context(group))
    names = sorted(listed, key=lambda name: sections.index(section_of(name)))
    pages = {"commands/index.md": index_page(names)}
    return pages | {f"commands/{name}.md": command_page(name) for name in names}


def index_page(names: list[str]) -> str:
    """Return the list of commands, in the sections of ``ppsim --help``."""
    lines = [HEAD]
    for section in (*SECTIONS, ALONE):
        rows = [name for name in names if section_of(name) == section]
        if rows:
            lines += [f"## {section}", "", "| command | what it does |", "|---|---|"]
            lines += [f"| [`{name}`]({name}.md) | {cell(summary(name))} |" for name in rows]
            lines.append("")
    return "\n".join(lines)


def section_of(name: str) -> str:
    """Return the section of the help that lists a command."""
    place = place_of(_source(name))
    return place[0] if place else ALONE


def command_of(name: str) -> click.Command:
    """Return the command of a name."""
    command = group.get_command(click.Context(group), name)
    assert command, name
    return command


def summary(name: str) -> str:
    """Return the first sentence of a command's help."""
    return command_of(name).get_short_help_str(300)


def command_page(name: str) -> str:
    """Return a command's page: its help, then a table of each section of its options."""
    command = command_of(name)
    ctx = click.Context(command, info_name=f"ppsim {name}")
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [f"# ppsim {name}", "", f"```console\n$ ppsim {name} {usage}\n```", ""]
    lines += [as_markdown(command.help or ""), ""]
    for section, rows in option_rows(command, ctx).items():
        lines += [f"## {section}", "", "| option | meaning |", "|---|---|"]
        lines += [f"| {option} | {meaning} |" for option, meaning in rows]
        lines.append("")
    return "\n".join(lines)


def option_rows(command: click.Command, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return the rows of a command's options by section: spellings with the value, and what it
    means.
    """
    sections: dict[str, list[tuple[str, str]]] = {}
    declared = command.declared if isinstance(command, Question) else ()
    by_name = {each.name: each.section for each in declared}
    for param in command.params:
        record = param.get_help_record(ctx)
        if record and record[1]:
            section = by_name.get(str(param.name)) or "Options"
            sections.setdefault(section, []).append((code(record[0]), cell(record[1])))
    return sections


def as_markdown(text: str) -> str:
    """Return a help text as Markdown: what is indented, or keeps its lines, is code."""
    return "\n\n".join(_paragraphs(inspect_clean(text)))


def inspect_clean(text: str) -> str:
    """Return a help text without its own indentation."""
    first, _, rest = text.partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}"


def _paragraphs(text: str) -> Iterator[str]:
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.split("\n")
        keeps = lines[0].strip() == "\b"
        body = textwrap.dedent("\n".join(lines[1:] if keeps else lines))
        if keeps or part.startswith("  "):
            yield "```text\n" + body.rstrip() + "\n```"
        else:
            yield cell(body)
