"""Write files that show predictions above measurements: figures, and an interactive page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ppsim.base.atomic_file import open_atomically
from ppsim.core.curve import Curve
from ppsim.core.ops import mask
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError
from ppsim.real.runs.record import Record
from ppsim.real.validation.verdict import Validation, Verdict
from ppsim.show.drawing.lanes import compute_row
from ppsim.show.drawing.palette import IN_ROW
from ppsim.show.files.document import Document, PageExplanation
from ppsim.show.files.writers import figure, html
from ppsim.version import VERSION

SUFFIXES = (*figure.SUFFIXES, *html.SUFFIXES)
MOST_NAMED = 4


def check_suffix(suffix: str) -> None:
    """Refuse a format that cannot show the comparison (InputError: not in :data:`SUFFIXES`)."""
    if suffix not in SUFFIXES:
        raise InputError(
            f"predicted above measured cannot be shown as {suffix}", f"one of {' '.join(SUFFIXES)}"
        )


def save_overlay(
    validation: Validation,
    record: Record,  # its source, whose settings and provenance are embedded
    target: str,  # the file's path
    suffix: str,  # its format, one of :data:`SUFFIXES`
    style: str = "screen",  # ``screen`` or ``paper``, for figures
    width: float = 6.75,  # of a figure in inches
    titles: Sequence[str] = (),  # one per schedule; by default their names
    explanation: PageExplanation | None = None,  # for pages
    verdict: str = "",  # the answer in one sentence, for a page
) -> None:
    """Write the comparison to a file, or to standard output for ``-``.

    A failed write leaves no file.

    Raises:
        InputError: a format not in :data:`SUFFIXES`, an unknown style, an impossible width, or a
            path that cannot be written.
    """
    check_suffix(suffix)
    if suffix in html.SUFFIXES:
        page = replace(overlay_document(validation, record, titles, explanation), verdict=verdict)
        with open_atomically(target) as out:
            html.write(page, out, suffix)
        return
    from ppsim.real.validation.overlay_draw import plot_overlay
    from ppsim.show.drawing.canvas import write_figure

    titles = titles or names_of(validation)
    with open_atomically(target) as out:
        write_figure(
            lambda: plot_overlay(validation, titles, style, width, note_of(record)),
            out,
            suffix,
            title=", ".join(titles),
            inputs=inputs_of(record),
        )


def overlay_document(
    validation: Validation,
    record: Record,
    titles: Sequence[str] = (),
    explanation: PageExplanation | None = None,
) -> Document:
    """Build the document of a page: the predicted and the measured timeline of each schedule.

    The measured timeline has the residuals as a curve below it, and is the baseline of both.
    """
    verdicts = validation.verdicts
    titles = titles or names_of(validation)
    named = " · ".join(titles) if len(titles) <= MOST_NAMED else f"{len(titles)} schedules"
    return Document(
        timelines=timelines_of(validation),
        titles=tuple(f"{title} {what}" for title in titles for what in ("predicted", "measured")),
        inputs=inputs_of(record),
        curves=tuple(curves for v in verdicts for curves in ((), (shift_curve(v),))),
        baselines=tuple(2 * number + 1 for number in range(len(verdicts)) for _ in range(2)),
        title=": ".join(filter(None, (named, "predicted and measured", note_of(record)))),
        explanation=explanation,
    )


def timelines_of(validation: Validation) -> tuple[Timeline, ...]:
    """Return the predicted and the measured timeline of each schedule."""
    return tuple(timeline for v in validation.verdicts for timeline in (v.best.compute, v.measured))


def names_of(validation: Validation) -> list[str]:
    """Return the names of the compared schedules."""
    return [verdict.run.name for verdict in validation.verdicts]


def shift_curve(verdict: Verdict) -> Curve:
    """Return the predicted minus the measured start of each device's latest op, in ms.

    The value of an op lasts from its measured start to that of the next op.
    """
    row = compute_row(verdict.measured)
    kept = mask(IN_ROW)[verdict.measured.schedule.kind]
    return Curve(
        "predicted - measured start", "ms", row.schedule.offsets, row.start, verdict.shift[kept]
    )


def note_of(record: Record) -> str:
    """Return what must accompany every number of a record: the kind of emulation, or the part of a
    job that it shows; empty for other runs.
    """
    return str(record.settings.get("emulation", record.settings.get("shown", "")))


def inputs_of(record: Record) -> dict[str, Any]:
    """Return the inputs that files embed: version, command, settings and provenance."""
    provenance = {key: value for key, value in record.provenance.items() if key != "command"}
    return {
        "ppsim": VERSION,
        "command": record.provenance.get("command", ""),
        "settings": dict(record.settings),
        "provenance": provenance,
    }
