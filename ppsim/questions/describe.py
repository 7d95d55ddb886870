"""Explain one schedule in a screenful."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.errors import InputError
from ppsim.questions import words
from ppsim.questions.answer import Answer
from ppsim.questions.ask import ask
from ppsim.questions.blocks import Block, Chart, Drawn, Line
from ppsim.questions.groups import JsonOption, OneSchedule
from ppsim.questions.options import Request, group, option

if TYPE_CHECKING:
    from rich.console import Console

    from ppsim.schedules import Family


@dataclass(frozen=True, kw_only=True)
class DescribeRequest(Request):
    """Explain one schedule: idea, needs, closed forms, paper, a small chart.

    \b
      ppsim describe zb-1p
      ppsim describe dualpipe --devices 8 --mb 20
    """

    question: ClassVar[str] = "describe"
    schedule: OneSchedule = group(OneSchedule)
    devices: int = option(
        "--devices", "--pp", type=int, default=4, show_default=True, help="Devices of the example.", common=True
    )
    microbatches: int = option(
        "--mb",
        "-m",
        "--microbatches",
        type=int,
        default=8,
        show_default=True,
        help="Microbatches of the example.",
        common=True,
    )
    face: JsonOption = group(JsonOption)


def describe(schedule: str, **options: Any) -> Description:
    """Explain one schedule; ``options`` are ``devices`` and ``microbatches`` of its example.

    Raises:
        InputError: no such schedule.
    """
    return answer(ask(DescribeRequest, {"names": schedule} | options))


def answer(request: DescribeRequest) -> Description:
    """Find the schedule."""
    from ppsim.schedules import family_of

    spec = request.schedule.spec
    family = family_of(spec)
    if family is None:
        raise InputError(f"{spec} is a file of ops, not a schedule that is described", f"ppsim run {spec}")
    return Description(request, family)


@dataclass(frozen=True)
class Description(Answer):
    """A schedule explained.

    Attributes:
        request: what was asked.
        family: the schedule.
    """

    request: DescribeRequest
    family: Family

    def to_json(self) -> dict[str, Any]:
        """The object of schema ``ppsim.describe/1``."""
        return {"schema": "ppsim.describe/1", **words.family_object(self.family)}

    def blocks(self) -> Iterator[Block]:
        """Idea, facts and a small chart."""
        from ppsim.core.costs import costs_for
        from ppsim.engine.simple.columns import shape_of
        from ppsim.engine.simple.longest_path import simulate
        from ppsim.engine.simple.metrics import measure
        from ppsim.schedules import schedule_from

        family, request = self.family, self.request
        schedule = schedule_from(request.schedule.spec, devices=request.devices, microbatches=request.microbatches)
        timeline = simulate(schedule, costs_for(schedule))
        metrics = measure(timeline)
        more = " unless --chunks says so" if family.chunks > 1 else ""
        facts = {
            "needs": words.needs(family),
            "placement": f"{family.placement}, {family.chunks} per device{more}",
            "bubble": family.bubble,
            "peak activations": family.peak,
            "paper": family.paper,
            "torch": family.torch,
            "also called": ", ".join(family.aliases),
            "options": ", ".join(f"--{option.replace('_', '-')}" for option in family.options),
        }
        yield Line([(family.title, "name"), f" ({family.name})\n"])
        yield Drawn(self._idea)
        yield ""
        yield from (Line([(f"{fact:<18}", "quiet"), text], 18) for fact, text in facts.items() if text)
        yield ""
        yield Line(f"{words.shape_line(schedule)}, t_F = t_I = t_W = 1 per device", 2)
        yield Chart(timeline, metrics)
        yield ""
        yield Line(words.result_line(family.name, metrics, shape_of(schedule), timeline.unit))

    def _idea(self, screen: Console) -> Iterator[Block]:
        yield Line(" ".join(self.family.idea.split()) if screen.is_terminal else self.family.idea)
