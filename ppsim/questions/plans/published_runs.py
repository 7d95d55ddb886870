"""Published runs, their predicted steps, and plans for the same jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.groups import OutputOptions
from ppsim.ask.tasks import open_tasks
from ppsim.ask.write import Writers, find_targets, inputs_of
from ppsim.base.notes import progress
from ppsim.base.numbers import format_change, format_number, format_range, format_share
from ppsim.base.workers import count_cores
from ppsim.errors import InputError
from ppsim.questions.plans.measured import describe_anchors

if TYPE_CHECKING:
    from ppsim.workload.plans.nearby import Nearby
    from ppsim.workload.plans.rows import UserNames

LEFT = ("layout", "change")  # columns of text, aligned left
NAMES = ("model", "GPU", "software", "source")  # further ones on a page


def compare_runs(request: Any, table: str, runs: Nearby, user_names: UserNames) -> PublishedRuns:
    """Return the predictions of a table's runs, with --improve also a plan for each.

    Raises:
        InputError: a row of the table is wrong.
    """
    from ppsim.workload.plans.published import against
    from ppsim.workload.plans.rows import read_table, unknown_keys

    published = read_table(table)
    rows, summary = against(published, runs, user_names)
    if request.improve:
        better = _improve(request, published, rows, user_names)
        rows = [
            {**row, **_corrected_row(row, found)} for row, found in zip(rows, better, strict=True)
        ]
        summary = {**summary, **_sum_up(rows)}
    if unknown := unknown_keys(published):
        summary = {**summary, "unknown_keys": unknown}
    return PublishedRuns(request, tuple(rows), summary, tuple(describe_anchors(runs)))


@dataclass(frozen=True)
class PublishedRuns(Answer[Any]):
    """Published runs and their predicted steps."""

    rows: tuple[dict[str, Any], ...]  # the runs
    summary: dict[str, Any]  # counts of runs, and errors of the predictions
    moved: tuple[str, ...] = ()  # sentences on the corrections by the user's anchors

    @property
    def table(self) -> list[dict[str, Any]]:
        """The runs as rows."""
        return list(self.rows)

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.plan-against/1``."""
        return {"schema": "ppsim.plan-against/1", "rows": self.table, "summary": self.summary}

    def blocks(self) -> Iterator[Block]:
        """The runs, those left out, and the rest of the summary."""
        yield ""
        headings = self._headings
        if cells := list(_cells(self.rows, self.request.improve)):
            yield Table(headings, cells, 200 if self.request.improve else 120, left=LEFT)
        yield from (
            Line(f"{row['id']}: left out, {row['reason']}", 2)
            for row in self.rows
            if "reason" in row
        )
        yield from (Line(line) for line in self.moved)
        if unknown := self.summary.get("unknown_keys"):
            yield Line(f"unknown keys of rows, not read: {', '.join(unknown)}")
        yield from self._further_blocks()

    @property
    def _headings(self) -> list[str]:
        planned = ["planned\ns", "change"] if self.request.improve else []
        return ["run", "layout", "predicted\ns", "range\ns", "measured\ns", "error", *planned]

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o: published against predicted steps as a picture, or with the
        table as a page.
        """
        from ppsim.show.drawing.trust import draw_published
        from ppsim.show.files.chart import save_chart

        if not self.summary["compared"]:
            raise InputError(
                "no run of the table has a prediction and a measured step to draw",
                "--json has the rows",
            )
        save = partial(
            save_chart,
            partial(draw_published, self.rows),
            output.width,
            title="Published against predicted",
            sentences=self.verdict,
            inputs=inputs_of(self.typed_options),
            left=(*NAMES, *LEFT),
            headings=[
                "run",
                *NAMES[:-1],
                *(each.replace("\n", " ") for each in self._headings[1:]),
                NAMES[-1],
            ],
            rows=list(self._page_rows()),
        )
        return [(target, partial(save, target, suffix)) for target, suffix in find_targets(output)]

    def _page_rows(self) -> Iterator[list[str]]:
        """Yield the cells of each run: first runs left out, then by error, the largest first."""
        yield from (
            [str(row["id"]), f"left out: {row['reason']}"] for row in self.rows if "reason" in row
        )
        predicted = [row for row in self.rows if "reason" not in row]
        for row in sorted(predicted, key=lambda row: -abs(row.get("error", 0.0))):
            ((name, *numbers),) = _cells([row], self.request.improve)
            *names, source = (
                str(row.get(key) or "-") for key in ("model", "gpu", "software", "source")
            )
            yield [name, *names, *numbers, source]

    def line(self) -> Iterator[Block]:
        """The errors of the predictions, and the number of plans that are as fast as the runs."""
        yield self.headline
        yield from self._further_blocks()

    def _further_blocks(self) -> Iterator[Block]:
        """The error of predicted memory, and the number of plans that are as fast as the runs."""
        summary = self.summary
        if summary.get("memory_rows"):
            rows, error = summary["memory_rows"], format_share(summary["mean_memory_error"])
            yield Line(f"peak memory of {rows} of them: mean error {error}")
        if summary.get("planned"):
            won = f"{summary['planned_equal_or_faster']} of {summary['planned']}"
            share = format_share(summary["planned_share"])
            yield Line(
                f"the plan is as fast as the published configuration or faster for {won} ({share})"
            )

    @property
    def verdict(self) -> str:
        """The error of predicted steps against published ones."""
        summary = self.summary
        text = f"{summary['predicted']} of {summary['rows']} runs predicted"
        text += f", {summary['skipped']} left out" if summary["skipped"] else ""
        if lacking := summary["predicted"] - summary["compared"]:
            text += f", {lacking} without a measured step"
        if "mean_error" in summary:
            text += (
                f": mean error of a step {format_share(summary['mean_error'])}, "
                f"median {format_share(summary['median_error'])}, "
                f"{format_share(summary['within_10_percent'])} within 10%, "
                f"{format_share(summary['within_range'])} in their range"
            )
        return text


def _improve(
    request: Any, published: Sequence[Any], rows: Sequence[dict[str, Any]], user_names: UserNames
) -> list[dict[str, Any]]:
    """Return a plan for each row, as fields to add to it; none for a row without a prediction."""
    from ppsim.workload.plans.improve import improve, is_sound, share_searches

    keys = [f"{number} {row['id']}" for number, row in enumerate(rows)]
    groups = share_searches(
        (
            (key, entry)
            for key, row, entry in zip(keys, rows, published, strict=True)
            if row.get("predicted_step_s")
        ),
        user_names,
    )
    found: dict[str, Any] = {}
    count = sum(map(len, groups.values()))
    work = ["improve", str((user_names.model, user_names.machine)), *published]
    with (
        progress(request.shows_progress) as report,
        open_tasks(request.tasks, work, count_cores(), is_sound=is_sound) as run,
    ):
        for _, answers in run(partial(improve, user_names=user_names), groups):
            found.update(answers)
            report(len(found) / count, f"{len(found):,} of {count:,} runs")
    return [found.get(key, {}) for key in keys]


def _corrected_row(row: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan with its step corrected by the factor of the run's step."""
    if not found.get("planned_step_s"):
        return found
    factored = found["planned_step_s"] * row["predicted_step_s"]
    return {**found, "planned_step_s": factored / row["modelled_step_s"]}


def _sum_up(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    planned = [row for row in rows if row.get("planned_step_s")]
    won = sum(row["planned_step_s"] <= row["predicted_step_s"] * (1 + 1e-9) for row in planned)
    tried = sum("planned_step_s" in row for row in rows)
    return {
        "planned": tried,
        "planned_equal_or_faster": won,
        "planned_share": won / tried if tried else None,
    }


def _cells(rows: Sequence[dict[str, Any]], improve: bool) -> Iterator[list[str]]:
    for row in rows:
        if "reason" in row:
            continue
        layout = str(row.get("layout", ""))
        if names := _unstated_settings(row):
            layout += f" (not stated: {names})"
        cells = [str(row["id"]), layout, _number(row["predicted_step_s"])]
        cells += [format_range(row["low_s"], row["high_s"])]
        cells += [
            _number(row["measured_step_s"]),
            format_change(row["error"]) if "error" in row else "-",
        ]
        if improve:
            cells += [_number(row.get("planned_step_s")), row.get("change", "")]
        yield cells


def _unstated_settings(row: dict[str, Any]) -> str:
    """Return the names of settings that the row leaves out, so that they were chosen."""
    return str(row.get("chosen", "")).split(":", 1)[0]


def _number(value: float | None) -> str:
    return "-" if value is None else format_number(value)
