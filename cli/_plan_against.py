"""``ppsim plan --against``: published runs beside what the model predicts, and what a plan would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ppsim.base.numbers import format_share
from ppsim.cli._fit import echo_wrapped, print_table

if TYPE_CHECKING:
    from ppsim.cli._tasks import TaskOptions


def compare_runs(table: str, improve: bool, as_json: bool, quiet: bool, tasks: TaskOptions) -> None:
    """Predict the runs of a table; with ``improve`` plan each anew in the same model."""
    from ppsim.cli import _print as show
    from ppsim.planning.published import against
    from ppsim.planning.rows import read_table

    published = read_table(table)
    rows, summary = against(published)
    if improve:
        better = _improve(published, rows, tasks, show_progress=not as_json and not quiet)
        rows = [{**row, **found} for row, found in zip(rows, better, strict=True)]
        summary = {**summary, **_sum_up(rows)}
    if as_json:
        show.echo_json({"schema": "ppsim.plan-against/1", "rows": rows, "summary": summary})
        return
    if not quiet:
        _echo_rows(rows, improve)
    _echo_summary(summary)


def _improve(
    published: Sequence[Any], rows: Sequence[dict[str, Any]], tasks: TaskOptions, *, show_progress: bool
) -> list[dict[str, Any]]:
    """Plan every row that could be predicted."""
    from ppsim.base.workers import count_cores
    from ppsim.cli._progress import progress_bar
    from ppsim.cli._tasks import open_tasks
    from ppsim.planning.improve import improve, share_searches

    keys = [f"{number} {row['id']}" for number, row in enumerate(rows)]
    groups = share_searches(
        (key, entry) for key, row, entry in zip(keys, rows, published, strict=True) if row.get("predicted_step_s")
    )
    found: dict[str, Any] = {}
    count = sum(map(len, groups.values()))
    with progress_bar(show_progress) as report, open_tasks(tasks, ["improve", *published], count_cores()) as run:
        for _, answers in run(improve, groups):
            found.update(answers)
            report(len(found) / count, f"{len(found):,} of {count:,} runs")
    return [found.get(key, {}) for key in keys]


def _sum_up(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    planned = [row for row in rows if row.get("planned_step_s")]
    won = sum(row["planned_step_s"] <= row["predicted_step_s"] * (1 + 1e-9) for row in planned)
    tried = sum("planned_step_s" in row for row in rows)
    return {"planned": tried, "planned_equal_or_faster": won, "planned_share": won / tried if tried else None}


def _echo_rows(rows: Sequence[dict[str, Any]], improve: bool) -> None:
    headings = ["run", "layout", "predicted\ns", "measured\ns", "error"]
    if improve:
        headings += ["planned\ns", "change"]
    if cells := list(_cells(rows, improve)):
        print_table(headings, cells, at_least=200 if improve else 120, left=["layout", "change"])
    for row in rows:
        if "reason" in row:
            echo_wrapped(f"{row['id']}: left out, {row['reason']}", 2)


def _cells(rows: Sequence[dict[str, Any]], improve: bool) -> Iterator[list[str]]:
    for row in rows:
        if "reason" in row:
            continue
        layout = str(row.get("layout", "")) + (f" (not stated: {names})" if (names := _unstated(row)) else "")
        cells = [str(row["id"]), layout, _number(row["predicted_step_s"])]
        cells += [_number(row["measured_step_s"]), f"{row['error']:+.1%}" if "error" in row else "-"]
        if improve:
            cells += [_number(row.get("planned_step_s")), row.get("change", "")]
        yield cells


def _unstated(row: dict[str, Any]) -> str:
    """Name what the row does not say and was chosen."""
    return str(row.get("chosen", "")).split(":", 1)[0]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _echo_summary(summary: dict[str, Any]) -> None:
    text = f"{summary['predicted']} of {summary['rows']} runs predicted"
    text += f", {summary['skipped']} left out" if summary["skipped"] else ""
    if lacking := summary["predicted"] - summary["compared"]:
        text += f", {lacking} without a measured step"
    if "mean_error" in summary:
        text += (
            f": mean error {format_share(summary['mean_error'])}, median {format_share(summary['median_error'])}, "
            f"{format_share(summary['within_10_percent'])} within 10%"
        )
    echo_wrapped(text)
    if summary.get("memory_rows"):
        rows, error = summary["memory_rows"], format_share(summary["mean_memory_error"])
        echo_wrapped(f"peak memory of {rows} of them: mean error {error}")
    if summary.get("planned"):
        echo_wrapped(
            f"the plan is as fast as the published configuration or faster for {summary['planned_equal_or_faster']} of "
            f"{summary['planned']} ({format_share(summary['planned_share'])})"
        )
