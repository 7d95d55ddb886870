"""Lookup of a draft's ops by kind, stage and microbatch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.draft import Draft
from ppsim.core.ops import Kind


@dataclass(frozen=True)
class Tables:
    """Lookup tables of a draft; ops are given by their position in the draft."""

    # shape (kinds, S, M): the first op of each kind, stage and microbatch, -1 for none
    first: NDArray[np.int64]
    repeats: NDArray[np.int64]  # the ops that repeat an earlier one

    @classmethod
    def from_draft(cls, draft: Draft) -> Tables:
        """Return the tables of a draft, without ops beyond its stages and microbatches."""
        shape = (len(Kind), draft.n_stages, draft.n_microbatches)
        fits = (
            (draft.stage >= 0)
            & (draft.stage < shape[1])
            & (draft.microbatch >= 0)
            & (draft.microbatch < shape[2])
        )
        ops = np.flatnonzero(fits)
        slot = np.ravel_multi_index(
            (draft.kind[ops].astype(np.int64), draft.stage[ops], draft.microbatch[ops]), shape
        )
        first = np.full(np.prod(shape), -1, np.int64)
        first[slot[::-1]] = ops[::-1]
        return cls(first.reshape(shape), ops[first[slot] != ops])

    def needs(self, draft: Draft) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all pairs of an op and an op that it needs, as two arrays.

        F(s, m) needs F(s-1, m); B or I(s, m) needs F(s, m), R(s, m) if there is one, and B or
        I(s+1, m); W(s, m) needs I(s, m), R(s, m) needs F(s, m). If results are fed back, F(0, m)
        needs the last stage's F of m in the previous round.
        """
        forward, full, split = self.first[Kind.F], self.first[Kind.B], self.first[Kind.I]
        back = np.where(full >= 0, full, split)
        pairs = [
            (forward[1:], forward[:-1]),
            (back, forward),
            (back[:-1], back[1:]),
            (self.first[Kind.W], split),
            (self.first[Kind.R], forward),
            (back, self.first[Kind.R]),
        ]
        if draft.feeds_back:
            per_round = draft.n_microbatches // draft.n_rounds
            pairs.append((forward[0, per_round:], forward[-1, : draft.n_microbatches - per_round]))
        op = np.concatenate([a.ravel() for a, _ in pairs])
        need = np.concatenate([b.ravel() for _, b in pairs])
        exist = (op >= 0) & (need >= 0)
        order = np.argsort(op[exist], kind="stable")
        return op[exist][order], need[exist][order]
