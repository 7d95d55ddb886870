"""Pages of the Python reference, made of the signatures and docstrings that editors show."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from typing import Any

import ppsim
from ppsim.ask.signatures import python_options, signature_of
from ppsim.questions import list_functions, module_of
from tests.site.fields import cell

HEAD = """# Python

Each command below is a function of the same name, with the same options: `--what-if` is
`what_if=`, `--mb` is `microbatches=`. `print(answer)` shows the text of a terminal, `to_json()`
returns the object of `--json`, `save("x.svg")` writes the file of `-o x.svg`, and tables are lists
of dicts. Errors are `ppsim.PpsimError`; `error.hint` suggests a remedy.

```python
import ppsim as pp

run = pp.run("zb-1p", devices=4, microbatches=8)
print(run.metrics.makespan)
```
"""
FURTHER = {
    "ppsim.record": ("record", "op"),
    "ppsim.schedules": ("schedule", "Shape", "Queue", "stream", "place"),
}

# The sections of docstrings, as pages call them.
SECTIONS = {
    "Args:": "Takes",
    "Attributes:": "Has",
    "Returns:": "Returns",
    "Yields:": "Yields",
    "Raises:": "Raises",
}


def python_pages() -> dict[str, str]:
    """Return the pages of the reference by their path: an index, then questions, then what they are
    made of.
    """
    questions = list_functions()
    others = [name for name in ppsim.__all__ if name not in questions]
    pages = {"python/index.md": index_page(questions, others)}
    pages |= {f"python/{name}.md": question_page(name) for name in questions}
    pages |= {f"python/{slug(name)}.md": object_page("ppsim", name) for name in others}
    for module, names in FURTHER.items():
        pages |= {f"python/{slug(module, name)}.md": object_page(module, name) for name in names}
    return pages


def slug(*names: str) -> str:
    """Return a page's name; a class and a function may differ by case alone, and files must not."""
    plain = "-".join(name.removeprefix("ppsim.") for name in names)
    return f"{plain.lower()}-class" if names[-1][:1].isupper() else plain


def index_page(questions: list[str], others: list[str]) -> str:
    """Return the list of functions and classes, each with what it does."""
    lines = [HEAD, "| question | what it does |", "|---|---|"]
    lines += [
        f"| [`pp.{name}`]({name}.md) | {cell(first_line(getattr(ppsim, name)))} |"
        for name in questions
    ]
    lines += ["", "| building block | what it does |", "|---|---|"]
    lines += [
        f"| [`pp.{name}`]({slug(name)}.md) | {cell(first_line(getattr(ppsim, name)))} |"
        for name in others
    ]
    lines += ["", "| from other modules | what it does |", "|---|---|"]
    for module, names in FURTHER.items():
        for name in names:
            found = getattr(importlib.import_module(module), name)
            lines.append(
                f"| [`{module}.{name}`]({slug(module, name)}.md) | {cell(first_line(found))} |"
            )
    return "\n".join([*lines, ""])


def first_line(found: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(found) or "").partition("\n")[0]


def question_page(name: str) -> str:
    """Return the page of a question: its call, what it does, and a table of its arguments."""
    function = getattr(ppsim, name)
    module = importlib.import_module(str(module_of(name)))
    signature = signature_of(module, vars(module)[name])
    text = (inspect.getdoc(function) or "").partition("\n\nOptions:")[0]
    required = [
        str(each).partition(":")[0]
        for each in signature.parameters.values()
        if each.kind != each.KEYWORD_ONLY
    ]
    call = ", ".join([*required, "**arguments"])
    lines = [
        f"# pp.{name}",
        "",
        f"```python\npp.{name}({call}) -> {signature.return_annotation}\n```",
        "",
    ]
    lines += [docstring(text), "", "## Arguments", ""]
    lines += [
        "Each is given by its name, and has the unit and the default of the command line.",
        "",
    ]
    lines += ["| argument | meaning | default | type |", "|---|---|---|---|"]
    for each in python_options(module, vars(module)[name]):
        parameter = signature.parameters[each.keyword]
        default = "" if parameter.default in (None, "", ()) else f"`{parameter.default!r}`"
        lines.append(
            f"| `{each.keyword}` | {cell(each.help)} | {default} | "
            f"{cell(str(parameter.annotation))} |"
        )
    return "\n".join([*lines, ""])


def object_page(module: str, name: str) -> str:
    """Return the page of a class or function that is no question."""
    found = getattr(importlib.import_module(module), name)
    shown = f"pp.{name}" if module == "ppsim" else f"{module}.{name}"
    lines = [f"# {shown}", ""]
    if module != "ppsim":
        lines += [f"```python\nfrom {module} import {name}\n```", ""]
    lines += [
        f"```python\n{call_of(shown, found)}\n```",
        "",
        docstring(inspect.getdoc(found) or ""),
        "",
    ]
    if inspect.isclass(found):
        for member, value in public_members(found):
            what = value.fget if isinstance(value, property) else getattr(found, member)
            head = member if isinstance(value, property) else call_of(member, what)
            lines += [
                f"## {member}",
                "",
                f"```python\n{head}\n```",
                "",
                docstring(inspect.getdoc(what) or ""),
                "",
            ]
    return "\n".join(lines)


def public_members(found: type) -> list[tuple[str, Any]]:
    """List the documented methods and properties that a class itself defines, in the order of its
    source.
    """
    return [
        (name, value)
        for name, value in vars(found).items()
        if not name.startswith("_")
        and (isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value))
        and inspect.getdoc(value)
    ]


def call_of(name: str, found: Any) -> str:
    """Return how something is called, as source text; its name alone where it has no signature."""
    if not callable(found):
        return name
    try:
        text = f"{name}{inspect.signature(found)}"
    except ValueError:
        return name
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def docstring(text: str) -> str:
    """Return a docstring as Markdown: its sections are lists, and what it shows of code is code."""
    parts = []
    for part in re.split(r"\n\n", text.replace("``", "`")):
        head, _, body = part.partition("\n")
        if head in SECTIONS and body.startswith("    "):
            if entries := listed(body):
                parts.append(f"**{SECTIONS[head]}**\n\n{entries}")
        elif part.startswith("    "):
            parts.append("```python\n" + textwrap.dedent(part) + "\n```")
        else:
            parts.append(cell(part.replace("::", ":")))
    return "\n\n".join(parts)


def listed(body: str) -> str:
    """Return the entries of a docstring's section as a list, options left out; text without names
    as a paragraph.
    """
    entries = [
        each
        for each in re.split(r"\n(?! )", textwrap.dedent(body))
        if not each.startswith("options:")
    ]
    named = [re.match(r"([\w*., ]+): (.*)", entry, re.DOTALL) for entry in entries]
    if not all(named):
        return cell(body)
    return "\n".join(f"- `{match[1]}`: {cell(match[2])}" for match in named if match)
