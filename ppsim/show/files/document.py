"""The document that a file is written from, and the formats, found by suffix."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsim.base.atomic_file import open_atomically
from ppsim.base.scan import load_files
from ppsim.base.text import check_text, guess_of, quote
from ppsim.core.curve import Curve
from ppsim.core.soundness import require_each, require_type
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

    # bars, tables and steps, which ``report_story.js`` shows; a search has ``steps``
    content: Mapping[str, Any]
    # other timelines to lay over the first, one for each change that is explained
    ghosts: tuple[Timeline, ...] = ()
    # shape (ops, 2), indices of the ops that both timelines have; None if there is one timeline
    twins: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Document:
    """Timelines, titles and inputs to write as a file.

    Attributes:
        timelines: one, or several to draw one above the other on one time axis.
        titles: one per timeline.
        inputs: command, version and resolved settings of the run; embedded if the format can.
        style: ``screen`` or ``paper``, for figures.
        width: width of a figure in inches.
        memory: memory of the devices of each timeline, shown below it; empty to leave it out.
        cap: the memory cap of every device, marked in the memory panel.
        caps: the memory cap of each device, for pages; empty if all have the same.
        curves: further curves of each timeline, for pages; empty for none.
        baselines: for each timeline the one that its makespan is compared with, in pages; empty
            for the first.
        executions: the executions that the timelines were read off, to show messages and
            collectives; empty if unknown.
        insides: the segments of the ops of each timeline, shown inside wide cells; empty if
            unknown.
        title: the page's title; empty to list the titles of the timelines.
        idles: idle time by cause of each timeline, which colours bubbles; empty for grey ones.
        bounds: a lower bound on the makespan of each timeline; empty if not asked for.
        rounds: the steady state of each timeline, None for a schedule that does not go round;
            empty if not asked for.
        below: HTML that pages show below the chart, such as an SVG; empty for none.
        cluster: HTML of the map of the cluster, which pages update for the time under the pointer;
            empty for none.
        look: palette, labels, window and other looks of charts.
        left: schedules that were asked for and refused, as they were spelled, each with the
            reason; for live pages.
        explanation: the answer's explanation of the picture, for pages; None for a picture alone.
        verdict: the answer in one sentence, for pages and JSON; empty for none.
        costs: the costs of each timeline, so that pages can time an edited order; empty if
            unknown.
        memory_models: the memory model of each timeline, so that pages can compute the memory of
            an edited order; empty to count activations.
        known: for each timeline the schedules of families of the same size by name, so that pages
            can name edited queues; None for a schedule that took too long to make. Empty to leave
            names out.
        blank: whether a page begins with empty rows, for its reader to place the ops.
        lesson: an exercise for the page's reader: ``title``, ``text`` (a list of paragraphs),
            ``par`` (a makespan), perhaps ``most`` (activations of a device), and ``proof``, a
            clause on why nothing is faster; None for no exercise.
        edit_bounds: for each timeline two lower bounds on the makespan without a memory cap: of
            its own ops, and of its ops with backwards split or joined; NaN if unknown.
        edit_command: the command that times the file of an edited schedule, spelled FILE; empty
            for costs that cannot be given as options.
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
    """Return idle time by cause for each timeline; None if arrival times of inputs are unknown."""
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

    one_schedule: bool = False  # a file contains one schedule only
    figure: bool = False  # a drawing, with a style and a width
    view: bool = False  # accepts a palette, a title, a window and a highlight
    memory: bool = False  # shows the memory of devices
    times: bool = True  # states when ops run
    edits: bool = False  # its reader can change the schedule
    lowered: bool = False  # can contain sends, receives and FSDP ops in the queues
    # suffixes whose default style is ``paper``
    paper: tuple[str, ...] = ()


@cache
def formats() -> dict[str, Any]:
    """Return the module of each format in :mod:`ppsim.show.files.writers`, by suffix."""
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
    """Return the longest known suffix of a file's name (InputError: no format has this suffix)."""
    name, known = Path(target).name.lower(), formats()
    if found := [suffix for suffix in known if name.endswith(suffix)]:
        return max(found, key=len)
    raise InputError(
        f"unknown output format '{Path(name).suffix or name}' of "
        f"'{target}'.{guess_of(Path(name).suffix, known)}",
        f"one of {' '.join(sorted(known))}",
    )


def require_suffix(suffix: str, able: Collection[str], what: str, more: str = "") -> None:
    """Raise InputError if a suffix is not among those ``able`` to represent ``what``."""
    if suffix not in able:
        raise InputError(f"{what} cannot be written as {suffix}", f"one of {' '.join(able)}{more}")


def require_one(document: Document, suffix: str) -> Timeline:
    """Return the only timeline of a document (InputError: it has several)."""
    if len(document.timelines) > 1:
        raise InputError(
            f"{suffix} holds one schedule, not {len(document.timelines)}",
            "write each with ppsim run",
        )
    return document.timelines[0]


def _check_charts(document: Document) -> None:
    """Raise InputError for a document with values of other types than its fields declare."""
    for each in fields(document):
        value = getattr(document, each.name)
        for declared, kind in (("tuple", tuple), ("str", str), ("Mapping[str, Any]", Mapping)):
            if str(each.type) == declared or str(each.type).startswith(f"{declared}["):
                require_type(each.name, value, kind, "Document(timelines, titles)")
    timelines, titles = document.timelines, document.titles
    require_each("timelines", timelines, Timeline, len(timelines))
    require_each("titles", titles, str, len(timelines))
    require_each("memory", document.memory, Curve, len(timelines))
    if len(titles) != len(timelines):
        raise InputError(
            f"{len(titles)} titles for {len(timelines)} timelines", "one title for each timeline"
        )
    for key in document.inputs:
        require_type("a key of inputs", key, str, '{"command": "ppsim run ..."}')
    for curves in document.curves:
        require_type("curves", curves, tuple, "((curve,),)")
        require_each("curves", curves, Curve, len(curves))
    require_type("look", document.look, Look, 'Look(palette="mono")')
    require_type("width", document.width, Real, "6.75")
    for cap in (document.cap, *document.caps):
        if cap is not None:
            require_type("cap", cap, Real, "6.0")
            if not document.memory:
                raise InputError("a cap without the memory of timelines", "memory=(curve,)")


def save(document: Document, target: str, suffix: str = "") -> None:
    """Write a document to a file, or to standard output for ``-``; a failed write leaves no file.

    Args:
        document: timelines to write.
        target: the file's path; its suffix determines the format.
        suffix: the format, in place of the path's suffix; json if ``target`` is ``-``.

    Raises:
        InputError: an unknown suffix, a path that cannot be written, or a document the format
            cannot carry.
    """
    require_type("document", document, Document, 'Document((timeline,), ("1f1b",))')
    _check_charts(document)
    if not isinstance(target, str | os.PathLike):
        raise InputError(f"not a path: {quote(target)}; expected e.g. run.svg", "run.svg")
    target = os.fspath(target)
    check_text("target", target)
    if isinstance(suffix, str):
        suffix = suffix or (".json" if target == "-" else suffix_of(target))
    if not isinstance(suffix, str) or suffix not in formats():
        raise InputError(f"not a format: {quote(suffix)}", f"one of {' '.join(sorted(formats()))}")
    with open_atomically(target) as out:
        formats()[suffix].write(document, out, suffix)
