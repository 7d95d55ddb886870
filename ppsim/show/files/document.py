"""The document that a file is written from, and the formats, found by suffix."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsim.base.atomic_file import open_atomically
from ppsim.base.scan import load_files
from ppsim.base.text import guess_of
from ppsim.core.curve import Curve
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError
from ppsim.show.drawing.look import PLAIN, Look
from ppsim.show.files import writers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.analysis.idle import Idle
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.engine.simple.metrics import Round
    from ppsim.engine.simple.segments import OpsInside


@dataclass(frozen=True)
class PageExplanation:
    """An answer's explanation of a picture, for pages."""

    # bars, tables and steps, as ``report_story.js`` shows them; a search has ``steps``
    content: Mapping[str, Any]
    # other timelines, one for each change that is told, to lay over the first
    ghosts: tuple[Timeline, ...] = ()
    # shape (ops, 2), the ops that both timelines have; empty for none
    twins: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Document:
    """Timelines, titles and inputs to write as a file.

    Attributes:
        timelines: one, or several to draw one above the other on one time axis.
        titles: one per timeline.
        inputs: command, version and resolved settings of the run; embedded where the format can.
        style: ``screen`` or ``paper``, for figures.
        width: width of a figure in inches.
        memory: memory of the devices of each timeline, to show below it; empty to leave it out.
        cap: the most a device may hold, to mark there.
        caps: the same of each device, for pages; empty where all share one.
        curves: further curves of each timeline, for pages; empty for none.
        baselines: which timeline each one's makespan is compared with, in pages; empty for the
            first.
        executions: the executions whose compute ops the timelines are, to show messages and
            collectives; empty where they are not known.
        insides: the segments of the ops of each timeline, to show inside wide cells; empty where
            they are not known.
        title: the page's title; empty to list the titles of the timelines.
        idles: the idle time of each timeline by cause, to colour bubbles by; empty to leave them
            grey.
        bounds: a time that no order of the ops of each timeline beats; empty where nobody asked for
            it.
        rounds: what a round of each timeline takes without end, None for one that does not go
            round; empty where nobody asked for it.
        below: HTML that pages show below the chart, such as an SVG; empty for none.
        cluster: HTML of the map of where it runs, which pages move with the time under the pointer;
            empty for none.
        look: palette, labels, window and what else charts can show.
        left: schedules that were asked for and refuse, as they were spelled, each with the reason;
            for live pages.
        explanation: what the answer says of it, for pages; None for pictures alone.
        verdict: the answer in one sentence, for pages and JSON; empty for none.
        costs: what the ops of each timeline cost, so that pages can time an edited order; empty
            where that is not known.
        memory_models: what ``memory`` follows from, for the same; empty to count activations.
        known: schedules of families of the same size by name, for each timeline, so that pages can
            name edited queues, None for one that took too long to make; empty to leave that out.
        blank: whether a page begins with empty rows, for its reader to place the ops.
        lesson: what a page asks its reader to do: ``title``, ``text`` (a list of paragraphs),
            ``par`` (a makespan), perhaps ``most`` (activations of a device), and ``proof``, a
            clause on why nothing is faster; None for none.
        edit_bounds: of each timeline a time that no order of its ops beats in any memory, and one
            that none beats either where backwards are split or joined; not a number where unknown.
        edit_command: the command that times the file of an edited schedule, spelled FILE; empty for
            costs that no options state.
    """

    timelines: tuple[Timeline, ...]
    titles: tuple[str, ...]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    style: str = "screen"
    width: float = 6.75
    memory: tuple[Curve, ...] = ()
    cap: float | None = None
    caps: tuple[float, ...] = ()
    curves: tuple[tuple[Curve, ...], ...] = ()
    baselines: tuple[int, ...] = ()
    executions: tuple[Execution, ...] = ()
    insides: tuple[OpsInside, ...] = ()
    title: str = ""
    idles: tuple[Idle, ...] = ()
    bounds: tuple[float, ...] = ()
    rounds: tuple[Round | None, ...] = ()
    below: str = ""
    cluster: str = ""
    look: Look = PLAIN
    left: tuple[tuple[str, str], ...] = ()
    explanation: PageExplanation | None = None
    verdict: str = ""
    costs: tuple[Costs, ...] = ()
    memory_models: tuple[MemoryModel, ...] = ()
    known: tuple[Mapping[str, Schedule | None], ...] = ()
    blank: bool = False
    lesson: Mapping[str, Any] | None = None
    edit_bounds: tuple[tuple[float, float], ...] = ()
    edit_command: str = ""


def find_idles(document: Document) -> list[Idle | None]:
    """Return the idle time of each timeline by cause; None if arrival times of inputs are
    unknown.
    """
    if document.idles:
        return list(document.idles)
    from ppsim.analysis.idle import explain_known

    runs = document.executions or (None,) * len(document.timelines)
    return [
        explain_known(timeline, run) for timeline, run in zip(document.timelines, runs, strict=True)
    ]


@dataclass(frozen=True)
class Abilities:
    """The abilities of a format."""

    one_schedule: bool = False  # it holds a single schedule
    figure: bool = False  # it is a drawing, with a style and a width
    view: bool = False  # it takes a palette, a title, a window and a highlight
    memory: bool = False  # it shows the memory of devices
    times: bool = True  # it states when ops run
    edits: bool = False  # its reader can change the schedule
    lowered: bool = False  # it can hold sends, receives and FSDP ops in the queues
    # its suffixes that are drawn in style ``paper`` unless the user says otherwise
    paper: tuple[str, ...] = ()


@cache
def formats() -> dict[str, Any]:
    """Find every format, a module of :mod:`ppsim.show.files.writers`, by suffix."""
    modules = load_files(writers, "SUFFIXES", "ABILITIES", "write")
    return {suffix: module for module in modules for suffix in module.SUFFIXES}


def abilities_of(suffix: str) -> Abilities:
    """Return the abilities of a suffix's format."""
    found: Abilities = formats()[suffix].ABILITIES
    return found


def style_of(suffix: str, asked: str | None = None) -> str:
    """Return the style of a suffix's figures: the one asked for, or the format's default."""
    return asked or ("paper" if suffix in abilities_of(suffix).paper else "screen")


def suffix_of(target: str) -> str:
    """Find the longest known suffix of a file's name (InputError: no format has this suffix)."""
    name, known = Path(target).name.lower(), formats()
    if found := [suffix for suffix in known if name.endswith(suffix)]:
        return max(found, key=len)
    raise InputError(
        f"unknown output format '{Path(name).suffix or name}' of "
        f"'{target}'.{guess_of(Path(name).suffix, known)}",
        f"one of {' '.join(sorted(known))}",
    )


def require_suffix(suffix: str, able: Collection[str], what: str, more: str = "") -> None:
    """Refuse a format in which something cannot be written (InputError: it is not in ``able``)."""
    if suffix not in able:
        raise InputError(f"{what} cannot be written as {suffix}", f"one of {' '.join(able)}{more}")


def require_one(document: Document, suffix: str) -> Timeline:
    """Take the timeline of a document that must have one only (InputError: the document has
    several).
    """
    if len(document.timelines) > 1:
        raise InputError(
            f"{suffix} holds one schedule, not {len(document.timelines)}",
            "write each with ppsim run",
        )
    return document.timelines[0]


def save(document: Document, target: str, suffix: str = "") -> None:
    """Write a document to a file, or to standard output for ``-``; a failed write leaves no file.

    Args:
        document: timelines to write.
        target: the file's path; its suffix tells the format.
        suffix: the format, overriding the name's own; json where ``target`` is ``-``.

    Raises:
        InputError: an unknown suffix, a path that cannot be written, or a document the format
            cannot carry.
    """
    suffix = suffix or (".json" if target == "-" else suffix_of(target))
    with open_atomically(target) as out:
        formats()[suffix].write(document, out, suffix)
