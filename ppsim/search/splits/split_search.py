"""The state of a search for the best split: timed splits, cuts, and the bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from ppsim.search.splits.splits import Cut, Ends, Floats, SplitProblem, layers_in

Split = tuple[int, ...]
Report = Callable[[float, float, int], None]


@dataclass
class SplitSearch:
    """The state of a search: timed splits, their cuts, and the bound."""

    problem: SplitProblem
    accepts: Callable[[Split], bool] | None
    report: Report
    deadline: float
    makespans: dict[Split, float] = field(default_factory=dict)
    accepted: dict[Split, bool] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    bound: float = 0.0
    complete: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline

    def time_all(self, ends: Ends) -> Floats:
        """Time splits and store their makespans; return these."""
        makespans = self.problem.makespans(ends)
        for column, makespan in zip(ends.T, makespans.tolist(), strict=True):
            self.makespans[layers_in(column, self.problem.n_layers)] = makespan
        return makespans

    def evaluate(self, ends: Ends) -> float:
        """Time one split, store its cut and, if it fits the cap, its makespan; return this."""
        problem, cut = self.problem, self.problem.cut_at(ends)
        self.cuts.append(cut)
        makespan = float(cut.rate @ problem.weigh(ends[:, None])[:, 0] + cut.constant)
        if not np.isfinite(problem.cap) or problem.peaks(ends[:, None])[0] <= problem.cap:
            self.makespans[layers_in(ends, problem.n_layers)] = makespan
        return makespan

    def fits(self, split: Split) -> bool:
        """Return True if the caller accepts a split; the answer is cached."""
        if self.accepts is None:
            return True
        if split not in self.accepted:
            self.accepted[split] = self.accepts(split)
        return self.accepted[split]

    def best(self, count: int, most: float = np.inf) -> list[tuple[Split, float]]:
        """Return the ``count`` best accepted splits with a makespan of at most ``most``.

        Among equal splits the most even comes first. Once the time is up, only splits that have
        been accepted before count.
        """
        result = list[tuple[Split, float]]()
        for split, makespan in rank_splits(
            self.problem, [known for known in self.makespans.items() if known[1] <= most]
        ):
            if self.accepted.get(split, self.accepts is None) if self.is_over else self.fits(split):
                result.append((split, makespan))
                if len(result) == count:
                    break
        return result

    def report_progress(self) -> None:
        """Report the best makespan, the bound and the number of splits timed."""
        best = self.best(1)
        self.report(best[0][1] if best else np.inf, self.bound, len(self.makespans))


def rank_splits(
    problem: SplitProblem, found: Iterable[tuple[Split, float]]
) -> list[tuple[Split, float]]:
    """Return splits sorted by makespan, the most even first if they differ by rounding only."""
    unit = max(problem.first_weights[-1], 1e-300)
    return sorted(
        found,
        key=lambda known: (
            round(float(known[1] / unit), 9),
            sum(n * n for n in known[0]),
            known[0],
        ),
    )
