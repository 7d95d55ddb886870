"""Look at measured profiles and compare them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.groups import FaceOptions
from ppsim.ask.options import Request, group, option
from ppsim.base.numbers import format_column

if TYPE_CHECKING:
    from ppsim.inputs.profile.profile import Profile
    from ppsim.inputs.profile.text import Differences
    from ppsim.show.drawing.card_bars import Bars


@dataclass(frozen=True, kw_only=True)
class ProfileRequest(Request):
    """Print the times and the setting of a profile."""

    question: ClassVar[str] = "profile show"
    file: str = option(metavar="FILE", required=True, type=click.Path())
    face: FaceOptions = group(FaceOptions)


@dataclass(frozen=True, kw_only=True)
class ProfileDiffRequest(Request):
    """Compare two profiles: settings and times.

    Each time has the ratio of both, with a mark if the spreads do not overlap.
    """

    question: ClassVar[str] = "profile diff"
    before: str = option(metavar="BEFORE", required=True, type=click.Path())
    after: str = option(metavar="AFTER", required=True, type=click.Path())
    face: FaceOptions = group(FaceOptions)


def answer(request: ProfileRequest) -> ShownProfile:
    """Read the profile of the request."""
    from ppsim.inputs.profile.profile import read

    return ShownProfile(request, read(request.file), request.file)


def answer_diff(request: ProfileDiffRequest) -> ProfileDiff:
    """Compare the two profiles of the request."""
    from ppsim.inputs.profile.profile import read
    from ppsim.inputs.profile.text import differences

    return ProfileDiff(request, differences(read(request.before), read(request.after)))


@dataclass(frozen=True)
class ShownProfile(Answer[Request]):
    """The costs of ops and messages in a profile.

    Attributes:
        profile: the measured times and their setting.
        file: the path of the profile; None if it is not written yet.
    """

    profile: Profile
    file: str | None

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.profile-summary/1``."""
        from ppsim.inputs.profile.text import summary

        return {
            "schema": "ppsim.profile-summary/1",
            "file": self.file,
            **asdict(self.profile),
            "summary": summary(self.profile),
        }

    @property
    def verdict(self) -> str:
        """The times of a stage and of its message, and the extra time of a split backward."""
        from ppsim.inputs.profile.text import sentence

        return sentence(self.profile)

    def bars(self) -> Bars:
        """The middle 80% of each op's times as bars, with a mark at the median."""
        from ppsim.inputs.profile.text import op_name
        from ppsim.show.drawing.card_bars import Bar, Bars

        ops = self.profile.op
        texts = format_column([op.median_ms for op in ops])
        return Bars(
            "time of each op (ms): p10 to p90, and the median as a mark and a number",
            [
                Bar(op_name(op), op.p90_ms, text, op.p10_ms, op.median_ms)
                for op, text in zip(ops, texts, strict=True)
            ],
        )

    def line(self) -> Iterator[Block]:
        """The times of a stage on one line."""
        from ppsim.inputs.profile.text import result_line

        yield Line(result_line(self.profile))

    def blocks(self) -> Iterator[Block]:
        """The setting, the table of ops with its sums, and a table of messages for each link."""
        from ppsim.inputs.profile.text import fit_lines, heading, lines, message_rows, op_rows

        for line in heading(self.profile):
            yield Line([(line, "quiet")], 4)
        yield ""
        rows = op_rows(self.profile)
        yield Table(
            ["op", "median\nms", "p10\nms", "p90\nms", "n", "note"],
            rows,
            spare=["n", "p10\nms", "p90\nms"],
            left=["note"],
            tone=lambda row, column: ("", "name", "", "", "quiet", "bad")[column],
        )
        for line in lines(self.profile):
            yield Line(line, 4)
        for link in dict.fromkeys(message.link for message in self.profile.message):
            patterns, sizes = message_rows(self.profile, link)
            yield ""
            yield Table([f"{link} messages\nms", *(f"\n{pattern}" for pattern in patterns)], sizes)
        for line in fit_lines(self.profile):
            yield Line(line, 4)


@dataclass(frozen=True)
class ProfileDiff(Answer[ProfileDiffRequest]):
    """The differences of two profiles: settings, times, and ops of one profile only."""

    differences: Differences

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.profile-diff/1``."""
        before, after = self.request.before, self.request.after
        return {
            "schema": "ppsim.profile-diff/1",
            "before": before,
            "after": after,
            **asdict(self.differences),
        }

    @property
    def verdict(self) -> str:
        """The number of times that agree."""
        from ppsim.inputs.profile.text import differing

        times = len(self.differences.times)
        same = times - len(differing(self.differences))
        return (
            f"{same} of {times} times of {self.request.after} differ by 5% at most from those of "
            f"{self.request.before}, within their spreads"
        )

    def blocks(self) -> Iterator[Block]:
        """The settings that differ, then the times that differ, the largest change first."""
        from ppsim.inputs.profile.text import differing

        found, changed = self.differences, differing(self.differences)
        yield Line([(self.request.before, "name"), " -> ", (self.request.after, "name")])
        for name, (old, new) in found.settings.items():
            yield Line([(f"  {name}: ", "quiet"), f"{old} -> {new}"], 4)
        if changed:
            yield Table(
                ["", "before\nms", "after\nms", "\nratio", "\nspreads"],
                [
                    (
                        r.name,
                        f"{r.before_ms:.3f}",
                        f"{r.after_ms:.3f}",
                        f"{r.ratio:.2f}",
                        "" if r.overlap else "apart",
                    )
                    for r in changed
                ],
                spare=["\nspreads"],
                tone=lambda row, column: (
                    ("bad" if changed[row].ratio > 1 else "good") if column == 3 else ""
                ),
            )
        yield "--json has all"
        for title, names in (("only before", found.only_before), ("only after", found.only_after)):
            if names:
                yield Line([(f"{title}: ", "quiet"), ", ".join(sorted(names))], 2)
