"""Dealing of sequences: the longest first to the replica with the least load, then moves that
shorten the simulated step.

A move takes a sequence to another microbatch, swaps two sequences, or swaps two microbatches of
the replica that ends last. The best dealing so far is always valid, and never longer than the one
given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations
from time import monotonic

import numpy as np

from ppsim.base.numbers import format_number
from ppsim.core.sequences import Floats, Ints
from ppsim.errors import InputError
from ppsim.search.dealing.bound import bound_step
from ppsim.search.dealing.problem import Problem, joined

SHORTER = 1e-12  # share of a time by which a move must shorten it
ALL = 600  # moves of a replica up to which all are tried
NUMBERS = 1 << 19  # ops timed in one array step
PATIENCE = 8  # batches of drawn moves without a gain after which a descent ends
ORDERS = 5  # of a replica's microbatches that are tried first
KICKS = 40  # descents from the best dealing with some moves at random
Slots = list[list[int]]  # the sequences of each slot
Move = dict[int, list[int]]  # slots and the sequences that they have after it


@dataclass(frozen=True)
class Dealt:
    """The best dealing that was found.

    Attributes:
        replica: shape (N,), the replica of each sequence.
        microbatch: shape (N,), its microbatch there.
        given_step: the step of the given dealing; infinite where a microbatch has too many tokens.
        makespans: shape (R,), of every replica.
        bound: a step that no dealing beats.
        simulated: pipelines that were simulated.
    """

    replica: Ints
    microbatch: Ints
    given_step: float
    makespans: Floats
    bound: float
    simulated: int

    @property
    def step(self) -> float:
        """The step with this dealing."""
        return float(self.makespans.max())


@dataclass
class _State:
    """A dealing that moves change."""

    slots: Slots
    factors: Floats  # (R, M, Q)
    ends: Floats  # (R,)

    def copy(self) -> _State:
        return _State([list(each) for each in self.slots], self.factors.copy(), self.ends.copy())


def deal(problem: Problem, seconds: float, seed: int = 0, kicks: int = KICKS) -> Dealt:
    """Search for a dealing with a shorter step.

    Args:
        problem: the sequences and microbatches.
        seconds: the time after which the search ends.
        seed: of the moves drawn; the same seed and as much time find the same dealing.
        kicks: descents from the best dealing with some moves at random, before the search ends.

    Raises:
        InputError: a sequence, or the sequences of a replica, do not fit into microbatches.
    """
    return _Search(problem, monotonic() + seconds, seed).run(kicks)


class _Search:
    """One search."""

    def __init__(self, problem: Problem, deadline: float, seed: int) -> None:
        self.problem, self.deadline = problem, deadline
        self.rng = np.random.default_rng(seed)
        self.tried = 0
        self.empty = problem.may_be_empty
        self.batch = max(16, min(512, NUMBERS // max(1, len(problem.pipeline.schedule))))
        M = problem.microbatches
        self.own = [list(range(r * M, r * M + int(n))) for r, n in enumerate(problem.counts)]
        self.all = [slot for own in self.own for slot in own]

    def run(self, kicks: int) -> Dealt:
        """Descend from every start, then from the best with some moves at random."""
        problem = self.problem
        given = self._given_state()
        before = float(given.ends.max()) if given else np.inf
        bound = bound_step(problem)
        starts = [*([given] if given else []), *self._starts()]
        if not starts:
            raise self._does_not_fit()
        best = min(starts, key=lambda state: float(state.ends.max())).copy()
        for start in sorted(starts, key=lambda state: float(state.ends.max())):
            best = self._better(best, self._descend(start, bound))
            if self._is_over(best, bound):
                break
        for _ in range(kicks):
            if self._is_over(best, bound) or len(self.all) < 2:
                break
            best = self._better(best, self._descend(self._kicked(best), bound))
        replica, microbatch = problem.replica.copy(), problem.microbatch.copy()
        for slot, members in enumerate(best.slots):
            replica[members], microbatch[members] = divmod(slot, problem.microbatches)
        return Dealt(
            replica, microbatch, before, best.ends, min(bound, float(best.ends.max())), self.tried
        )

    def _better(self, best: _State, other: _State) -> _State:
        return other if other.ends.max() < best.ends.max() * (1 - SHORTER) else best

    def _is_over(self, best: _State, bound: float) -> bool:
        return monotonic() >= self.deadline or float(best.ends.max()) <= bound * (1 + 2 * SHORTER)

    def _given_state(self) -> _State | None:
        """Return the dealing given, or None where a microbatch of it holds too many tokens."""
        slots: Slots = [[] for _ in range(self.problem.n_replicas * self.problem.microbatches)]
        for sequence, slot in enumerate(self.problem.slot.tolist()):
            slots[slot].append(sequence)
        return self._timed_state(slots) if all(map(self.problem.fits, slots)) else None

    def _timed_state(self, slots: Slots) -> _State:
        """Time all replicas."""
        problem, R = self.problem, self.problem.n_replicas
        rows = np.array([joined(problem, members) for members in slots])
        factors = rows.reshape(R, problem.microbatches, -1)
        return _State(slots, factors, self._makespans(factors, np.arange(R)))

    def _makespans(self, factors: Floats, replica: Ints) -> Floats:
        self.tried += len(factors)
        parts = [
            self.problem.pipeline.makespans(
                factors[first : first + self.batch], replica[first : first + self.batch]
            )
            for first in range(0, len(factors), self.batch)
        ]
        return np.concatenate(parts)

    # Starts.

    def _starts(self) -> Iterator[_State]:
        """Yield greedy dealings, each replica's microbatches in the order that is fastest of
        some.
        """
        for slots in (self._greedy(), self._group_by_length()):
            if slots is not None:
                yield self._ordered(self._timed_state(slots))

    def _greedy(self) -> Slots | None:
        """Deal the longest first, to the replica and the microbatch of it with the least work that
        has room.
        """
        problem, M = self.problem, self.problem.microbatches
        size = problem.time.sum(axis=1)
        slots: Slots = [[] for _ in range(problem.n_replicas * M)]
        load, slow = np.zeros(len(slots)), problem.pipeline.slow.max(axis=1).tolist()
        # Without --across every replica is dealt to alone.
        pool = np.zeros(len(size), np.int64) if problem.across else problem.replica
        empty_slots = int(problem.counts.sum())
        left, bare = np.bincount(pool, minlength=problem.n_replicas), problem.counts.copy()
        groups = (
            [list(range(problem.n_replicas))]
            if problem.across
            else [[r] for r in range(problem.n_replicas)]
        )
        heaps = [[(0.0, r) for r in group] for group in groups]
        for sequence in np.argsort(-size, kind="stable").tolist():
            home = int(pool[sequence])
            empty = empty_slots if problem.across else int(bare[home])
            # what is left is needed so that no microbatch stays empty
            must = int(left[home]) <= empty
            heap, full, place = heaps[home], list[tuple[float, int]](), -1
            while heap and place < 0:
                total, r = heappop(heap)
                if must and not bare[r]:
                    continue  # now and for all that are left
                place = next(self._rooms(slots, load, r, sequence, must), -1)
                full.append((total + float(size[sequence]) * slow[r] if place >= 0 else total, r))
            for each in full:
                heappush(heap, each)
            if place < 0:
                return None
            bare[place // M] -= not slots[place]
            empty_slots -= not slots[place]
            left[home] -= 1
            slots[place].append(sequence)
            load[place] += size[sequence]
        return slots

    def _rooms(
        self, slots: Slots, load: Floats, r: int, sequence: int, bare: bool
    ) -> Iterator[int]:
        """Yield the microbatches of a replica that have room for a sequence, the least of load
        first.
        """
        own = [slot for slot in self.own[r] if not (bare and slots[slot])]
        if not own:
            return
        least = min(own, key=load.__getitem__)
        if self.problem.fits([*slots[least], sequence]):
            yield least
        for slot in sorted(own, key=load.__getitem__):
            if self.problem.fits([*slots[slot], sequence]):
                yield slot

    def _group_by_length(self) -> Slots | None:
        """Put sequences of about one length into a microbatch each, and deal these; for padded
        ones.
        """
        problem = self.problem
        if not problem.padded or self.empty.any():
            return None
        size = problem.time.sum(axis=1)
        slots: Slots = [[] for _ in range(problem.n_replicas * problem.microbatches)]
        pools = (
            [range(problem.n_replicas)]
            if problem.across
            else [[r] for r in range(problem.n_replicas)]
        )
        for pool in pools:
            own = np.flatnonzero(np.isin(problem.replica, list(pool)))
            order = own[np.argsort(-size[own], kind="stable")]
            groups = np.array_split(order, int(problem.counts[list(pool)].sum()))
            free, total = {r: list(self.own[r]) for r in pool}, dict.fromkeys(pool, 0.0)
            for group in sorted(groups, key=lambda each: -len(each) * size[each[0]]):
                r = min((r for r in pool if free[r]), key=total.__getitem__)
                slots[free[r].pop(0)] = group.tolist()
                total[r] += len(group) * float(size[group[0]])
        return slots if all(map(problem.fits, slots)) else None

    def _ordered(self, state: _State) -> _State:
        """Put each replica's microbatches into the fastest of some orders."""
        ways, replica, found = list[list[int]](), list[int](), list[Floats]()
        for r, own in enumerate(self.own):
            size = state.factors[r].sum(axis=1)
            rising = sorted(range(len(own)), key=size.__getitem__)
            folded = rising[::2] + rising[1::2][::-1]
            half = len(folded) // 2
            for order in (
                list(range(len(own))),
                rising,
                rising[::-1],
                folded,
                folded[half:] + folded[:half],
            ):
                ways.append(order)
                replica.append(r)
                moved = state.factors[r].copy()
                moved[: len(own)] = state.factors[r][order]
                found.append(moved)
        ends = self._makespans(np.array(found), np.array(replica))
        for r, own in enumerate(self.own):
            at = int(r * ORDERS + np.argmin(ends[r * ORDERS : (r + 1) * ORDERS]))
            before = [state.slots[slot] for slot in own]
            for slot, place in zip(own, ways[at], strict=True):
                state.slots[slot] = before[place]
            state.factors[r], state.ends[r] = found[at], ends[at]
        return state

    # Moves.

    def _descend(self, state: _State, bound: float) -> _State:
        """Shorten the replica that ends last until no move does, or the time is over."""
        idle = 0
        while idle < PATIENCE and not self._is_over(state, bound):
            last = int(state.ends.argmax())
            moves, whole = self._moves(state, last)
            if not moves:
                break
            if self._take_best(state, moves):
                idle = 0
            elif whole:
                break
            else:
                idle += 1
        return state

    def _take_best(self, state: _State, moves: list[Move]) -> bool:
        """Make the move that shortens its replicas most; return whether there is one."""
        M = self.problem.microbatches
        touched = [sorted({slot // M for slot in move}) for move in moves]
        factors, replica = list[Floats](), list[int]()
        for move, own in zip(moves, touched, strict=True):
            for r in own:
                moved = state.factors[r].copy()
                for slot, members in move.items():
                    if slot // M == r:
                        moved[slot % M] = joined(self.problem, members)
                factors.append(moved)
                replica.append(r)
        ends = self._makespans(np.array(factors), np.array(replica)).tolist()
        best, chosen, at = (0.0, 0.0), -1, 0
        now = state.ends.tolist()
        for number, own in enumerate(touched):
            after = ends[at : at + len(own)]
            at += len(own)
            before = [now[r] for r in own]
            gain = max(before) - max(after)
            if gain > SHORTER * max(before) and (gain, sum(before) - sum(after)) > best:
                best, chosen = (gain, sum(before) - sum(after)), number
        if chosen < 0:
            return False
        first = sum(map(len, touched[:chosen]))
        for slot, members in moves[chosen].items():
            state.slots[slot] = members
        for offset, r in enumerate(touched[chosen]):
            state.factors[r], state.ends[r] = factors[first + offset], ends[first + offset]
        return True

    def _moves(self, state: _State, last: int) -> tuple[list[Move], bool]:
        """Return moves of one replica, and whether they are all that there are."""
        targets = self.all if self.problem.across else self.own[last]
        here = self.own[last]
        held = sum(len(state.slots[slot]) for slot in here)
        count = (
            held * (len(targets) + sum(len(state.slots[slot]) for slot in targets))
            + len(here) ** 2 // 2
        )
        if count <= ALL:
            return list(self._all_moves(state, last)), True
        drawn = (self._drawn_move(state, last) for _ in range(self.batch))
        return [move for move in drawn if move], False

    def _all_moves(self, state: _State, last: int) -> Iterator[Move]:
        slots = state.slots
        for a in self.own[last]:
            for b in self.all if self.problem.across else self.own[last]:
                if a == b:
                    continue
                for i in slots[a]:
                    if move := self._move_of(slots, a, i, b):
                        yield move
                    for j in slots[b]:
                        if move := self._swap(slots, a, i, b, j):
                            yield move
        for a, b in combinations(self.own[last], 2):
            yield {a: slots[b], b: slots[a]}

    def _drawn_move(self, state: _State, last: int) -> Move | None:
        """Draw a move of a replica; None where the one drawn is not valid."""
        slots, own = state.slots, self.own[last]
        targets = self.all if self.problem.across else own
        kind = int(self.rng.integers(3))
        a = own[int(self.rng.integers(len(own)))]
        if kind == 2 and len(own) > 1:
            b = own[int(self.rng.integers(len(own)))]
            return {a: slots[b], b: slots[a]} if a != b else None
        b = targets[int(self.rng.integers(len(targets)))]
        if a == b or not slots[a]:
            return None
        i = slots[a][int(self.rng.integers(len(slots[a])))]
        if kind == 0 or not slots[b]:
            return self._move_of(slots, a, i, b)
        return self._swap(slots, a, i, b, slots[b][int(self.rng.integers(len(slots[b])))])

    def _move_of(self, slots: Slots, a: int, i: int, b: int) -> Move | None:
        """Take sequence i from a to b."""
        if len(slots[a]) == 1 and not self.empty[a // self.problem.microbatches]:
            return None
        there = [*slots[b], i]
        if not self.problem.fits(there):
            return None
        return {a: [each for each in slots[a] if each != i], b: there}

    def _swap(self, slots: Slots, a: int, i: int, b: int, j: int) -> Move | None:
        """Swap sequence i of a with j of b."""
        here = [j if each == i else each for each in slots[a]]
        there = [i if each == j else each for each in slots[b]]
        return {a: here, b: there} if self.problem.fits(here) and self.problem.fits(there) else None

    def _kicked(self, best: _State) -> _State:
        """Return the best dealing after some moves at random."""
        slots = [list(each) for each in best.slots]
        for _ in range(int(self.rng.integers(2, 5))):
            last = int(self.rng.integers(self.problem.n_replicas))
            if move := self._drawn_move(_State(slots, best.factors, best.ends), last):
                for slot, members in move.items():
                    slots[slot] = list(members)
        return self._timed_state(slots)

    def _does_not_fit(self) -> InputError:
        """Return the error for sequences that do not fit into microbatches."""
        problem = self.problem
        tokens = np.zeros(1) if problem.tokens is None else problem.tokens
        if float(tokens.max()) > problem.most:
            most, longest = format_number(problem.most), format_number(float(tokens.max()))
            what = f"a sequence of {longest} tokens does not fit into microbatches of {most}"
            return InputError(what, f"--max-tokens {longest.replace(',', '')}")
        what = f"the sequences do not fit into {problem.microbatches} microbatches"
        return InputError(what, "a larger --max-tokens, or more --mb")
