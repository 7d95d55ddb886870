"""What a page tells of validated runs: each one's time by kind and cause, to compare any two, and the errors of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ppsim.base.numbers import format_change

if TYPE_CHECKING:
    from ppsim.real.validation.analyse import Validation
    from ppsim.show.files.document import Story


def picker_of(validation: Validation, titles: Sequence[str]) -> Story:
    """What ``report_picker.js`` compares timelines by, predicted and measured ones read alike."""
    from ppsim.analysis.diff import MEANINGS, TERMS, terms_of
    from ppsim.analysis.idle import explain_idle
    from ppsim.analysis.observed import observe
    from ppsim.real.validation.overlay import timelines_of
    from ppsim.show.files.document import Story

    found = map(observe, timelines_of(validation))
    rows = np.array([terms_of(explain_idle(each.timeline, each.arrival)) for each in found])
    used = np.flatnonzero(rows.any(axis=(0, 1)))
    names, levels = [TERMS[term] for term in used], list(validation.verdicts[0].errors)
    picker = {
        "terms": names,
        "meanings": {name: MEANINGS[name] for name in names},
        "rows": [[[float(f"{value:.5g}") for value in device] for device in run] for run in rows[:, :, used]],
        "levels": levels,
        "errors": [
            {"name": title, "texts": [format_change(verdict.errors[level]) for level in levels]}
            for title, verdict in zip(titles, validation.verdicts, strict=True)
        ],
    }
    return Story({"picker": picker})
