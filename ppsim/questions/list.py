"""List all schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ppsim.questions import words
from ppsim.questions.answer import Answer
from ppsim.questions.blocks import Block, Line
from ppsim.questions.groups import JsonOption
from ppsim.questions.options import Request, group


@dataclass(frozen=True, kw_only=True)
class ListRequest(Request):
    """List all schedules: needs, bubble, peak activations, torch's name.

    \b
      ppsim list
      ppsim list --json
    """

    question: ClassVar[str] = "list"
    face: JsonOption = group(JsonOption)


def answer(request: ListRequest) -> Schedules:
    """List them."""
    return Schedules(request)


@dataclass(frozen=True)
class Schedules(Answer):
    """All schedules.

    Attributes:
        request: what was asked.
    """

    request: ListRequest

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row of facts for each."""
        from ppsim.schedules import families

        return [words.family_object(family) for family in families()]

    def to_json(self) -> dict[str, Any]:
        """The object of schema ``ppsim.list/1``."""
        return {"schema": "ppsim.list/1", "schedules": self.table}

    def blocks(self) -> Iterator[Block]:
        """Each with its needs, closed forms and torch's name."""
        from ppsim.schedules import families

        for family in families():
            also = f", also {', '.join(family.aliases)}" if family.aliases else ""
            yield Line([(family.name, "name"), (also, "quiet")], 4)
            facts = {
                "needs": words.needs(family),
                "bubble": family.bubble,
                "peak activations": family.peak,
                "torch": family.torch,
            }
            yield from (Line([(f"    {fact:<18}", "quiet"), text], 22) for fact, text in facts.items() if text)
        yield ""
        yield Line(
            "P devices, V stages per device, M microbatches, N group size, K slices of a sequence; times are for a "
            "device's share of the model."
        )
