"""Search for a dealing of sequences: a greedy start, then moves that shorten the simulated step.

The greedy start deals the longest sequence first, to the replica with the least load. A move takes
a sequence to another microbatch, swaps two sequences, or swaps two microbatches of the replica that
ends last. The best dealing so far is always valid, and its step never longer than the given one's.
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
from ppsim.search.dealing.problem import Problem, microbatch_time

SHORTER = 1e-12  # share of a time by which a move must shorten it
ALL = 600  # number of moves of a replica up to which all are tried
NUMBERS = 1 << 19  # ops timed in one array step
PATIENCE = 8  # batches of random moves without a gain, after which a descent ends
ORDERS = 5  # orders of a replica's microbatches that are tried at the start
KICKS = 40  # descents from the best dealing after some random moves
Slots = list[list[int]]  # the sequences of each slot
Move = dict[int, list[int]]  # slots and the sequences that they have after it


@dataclass(frozen=True)
class Dealt:
    """The best dealing that was found.

    Attributes:
        replica: shape (N,), the replica of each sequence.
        microbatch: shape (N,), its microbatch there.
        given_step: the step of the given dealing; infinite if a microbatch has too many tokens.
        makespans: shape (R,), of every replica.
        bound: a lower bound on the step of all dealings.
        simulated: the number of simulated pipelines.
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
    """A dealing, which moves change in place."""

    slots: Slots
    factors: Floats  # shape (R, M, Q), times of microbatches
    ends: Floats  # shape (R,), makespans of replicas

    def copy(self) -> _State:
        return _State([list(each) for each in self.slots], self.factors.copy(), self.ends.copy())


def deal(problem: Problem, seconds: float, seed: int = 0, kicks: int = KICKS) -> Dealt:
    """Search for a dealing with a shorter step.

    Args:
        problem: the sequences and microbatches.
        seconds: the time after which the search ends.
        seed: of the random moves; without a timeout the same seed finds the same dealing.
        kicks: the number of descents from the best dealing after some random moves.

    Raises:
        InputError: a sequence, or the sequences of a replica, do not fit into microbatches.
    """
    if problem.tokens is not None:
        refuse_long_sequences(problem.tokens, problem.most)
    return _Search(problem, monotonic() + seconds, seed).run(kicks)


def refuse_long_sequences(tokens: Floats, most: float) -> None:
    """Raise InputError if a sequence has more tokens than a microbatch may have.

    Args:
        tokens: the tokens of each sequence, shape (sequences,).
        most: the tokens of a microbatch at most.
    """
    if float(tokens.max()) > most:
        longest = format_number(float(tokens.max()))
        raise InputError(
            f"a sequence of {longest} tokens does not fit into microbatches of "
            f"{format_number(most)}",
            f"--max-tokens {longest.replace(',', '')}",
        )


class _Search:
    """One search."""

    def __init__(self, problem: Problem, deadline: float, seed: int) -> None:
        self.problem, self.deadline = problem, deadline
        self.rng = np.random.default_rng(seed)
        self.tried = 0
        self.empty = problem.may_be_empty
        self.batch = max(16, min(512, NUMBERS // max(1, len(problem.pipeline.schedule))))
        M = problem.microbatches
        # the slots that may have sequences: of each replica, and of all
        self.slots_of = [list(range(r * M, r * M + int(n))) for r, n in enumerate(problem.counts)]
        self.all_slots = [slot for slots in self.slots_of for slot in slots]

    def run(self, kicks: int) -> Dealt:
        """Descend from every start, then from the best dealing after some random moves."""
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
            if self._is_over(best, bound) or len(self.all_slots) < 2:
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
        """Return the given dealing, or None if one of its microbatches has too many tokens."""
        slots: Slots = [[] for _ in range(self.problem.n_replicas * self.problem.microbatches)]
        for sequence, slot in enumerate(self.problem.slot.tolist()):
            slots[slot].append(sequence)
        return self._timed_state(slots) if all(map(self.problem.fits, slots)) else None

    def _timed_state(self, slots: Slots) -> _State:
        """Return a dealing with the makespans of all replicas."""
        problem, R = self.problem, self.problem.n_replicas
        rows = np.array([microbatch_time(problem, members) for members in slots])
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
        """Yield greedy dealings, with the best of some orders of each replica's microbatches."""
        for slots in (self._greedy(), self._group_by_length()):
            if slots is not None:
                yield self._ordered(self._timed_state(slots))

    def _greedy(self) -> Slots | None:
        """Return a greedy dealing, None if it does not fit.

        The longest sequence goes first, to the replica and then the microbatch with the least work
        that has room.
        """
        problem, M = self.problem, self.problem.microbatches
        size = problem.time.sum(axis=1)
        slots: Slots = [[] for _ in range(problem.n_replicas * M)]
        load, slow = np.zeros(len(slots)), problem.pipeline.slow.max(axis=1).tolist()
        # Without --across, sequences stay on their replicas.
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
            # all sequences that are left are needed so that no microbatch stays empty
            must = int(left[home]) <= empty
            heap, tried, place = heaps[home], list[tuple[float, int]](), -1
            while heap and place < 0:
                total, r = heappop(heap)
                if must and not bare[r]:
                    continue  # this replica gets no more sequences
                place = next(self._slots_with_room(slots, load, r, sequence, must), -1)
                tried.append((total + float(size[sequence]) * slow[r] if place >= 0 else total, r))
            for each in tried:
                heappush(heap, each)
            if place < 0:
                return None
            bare[place // M] -= not slots[place]
            empty_slots -= not slots[place]
            left[home] -= 1
            slots[place].append(sequence)
            load[place] += size[sequence]
        return slots

    def _slots_with_room(
        self, slots: Slots, load: Floats, r: int, sequence: int, bare: bool
    ) -> Iterator[int]:
        """Yield a replica's slots with room for a sequence, the least loaded first.

        With ``bare`` only empty slots are considered.
        """
        allowed = [slot for slot in self.slots_of[r] if not (bare and slots[slot])]
        if not allowed:
            return
        least = min(allowed, key=load.__getitem__)
        if self.problem.fits([*slots[least], sequence]):
            yield least
        for slot in sorted(allowed, key=load.__getitem__):
            if self.problem.fits([*slots[slot], sequence]):
                yield slot

    def _group_by_length(self) -> Slots | None:
        """Return a dealing whose microbatches have sequences of similar length, for padding.

        None without padding, or if it does not fit.
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
            members = np.flatnonzero(np.isin(problem.replica, list(pool)))
            order = members[np.argsort(-size[members], kind="stable")]
            groups = np.array_split(order, int(problem.counts[list(pool)].sum()))
            free, total = {r: list(self.slots_of[r]) for r in pool}, dict.fromkeys(pool, 0.0)
            for group in sorted(groups, key=lambda each: -len(each) * size[each[0]]):
                r = min((r for r in pool if free[r]), key=total.__getitem__)
                slots[free[r].pop(0)] = group.tolist()
                total[r] += len(group) * float(size[group[0]])
        return slots if all(map(problem.fits, slots)) else None

    def _ordered(self, state: _State) -> _State:
        """Reorder each replica's microbatches into the fastest of ``ORDERS`` orders."""
        orders, replica, found = list[list[int]](), list[int](), list[Floats]()
        for r, slots in enumerate(self.slots_of):
            size = state.factors[r].sum(axis=1)
            rising = sorted(range(len(slots)), key=size.__getitem__)
            folded = rising[::2] + rising[1::2][::-1]
            half = len(folded) // 2
            for order in (
                list(range(len(slots))),
                rising,
                rising[::-1],
                folded,
                folded[half:] + folded[:half],
            ):
                orders.append(order)
                replica.append(r)
                moved = state.factors[r].copy()
                moved[: len(slots)] = state.factors[r][order]
                found.append(moved)
        ends = self._makespans(np.array(found), np.array(replica))
        for r, slots in enumerate(self.slots_of):
            at = int(r * ORDERS + np.argmin(ends[r * ORDERS : (r + 1) * ORDERS]))
            before = [state.slots[slot] for slot in slots]
            for slot, place in zip(slots, orders[at], strict=True):
                state.slots[slot] = before[place]
            state.factors[r], state.ends[r] = found[at], ends[at]
        return state

    # Moves.

    def _descend(self, state: _State, bound: float) -> _State:
        """Make moves that shorten the replica that ends last, until none does or time is over."""
        idle = 0
        while idle < PATIENCE and not self._is_over(state, bound):
            last = int(state.ends.argmax())
            moves, are_all = self._moves(state, last)
            if not moves:
                break
            if self._make_best(state, moves):
                idle = 0
            elif are_all:
                break
            else:
                idle += 1
        return state

    def _make_best(self, state: _State, moves: list[Move]) -> bool:
        """Make the move that shortens its replicas most; return False if none does."""
        M = self.problem.microbatches
        touched = [sorted({slot // M for slot in move}) for move in moves]
        factors, replica = list[Floats](), list[int]()
        for move, replicas in zip(moves, touched, strict=True):
            for r in replicas:
                moved = state.factors[r].copy()
                for slot, members in move.items():
                    if slot // M == r:
                        moved[slot % M] = microbatch_time(self.problem, members)
                factors.append(moved)
                replica.append(r)
        ends = self._makespans(np.array(factors), np.array(replica)).tolist()
        best, chosen, at = (0.0, 0.0), -1, 0
        now = state.ends.tolist()
        for number, replicas in enumerate(touched):
            after = ends[at : at + len(replicas)]
            at += len(replicas)
            before = [now[r] for r in replicas]
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
        """Return moves of one replica: all of them and True, or random ones and False."""
        targets = self.all_slots if self.problem.across else self.slots_of[last]
        here = self.slots_of[last]
        sequences = sum(len(state.slots[slot]) for slot in here)
        count = (
            sequences * (len(targets) + sum(len(state.slots[slot]) for slot in targets))
            + len(here) ** 2 // 2
        )
        if count <= ALL:
            return list(self._all_moves(state, last)), True
        drawn = (self._random_move(state, last) for _ in range(self.batch))
        return [move for move in drawn if move], False

    def _all_moves(self, state: _State, last: int) -> Iterator[Move]:
        slots = state.slots
        for a in self.slots_of[last]:
            for b in self.all_slots if self.problem.across else self.slots_of[last]:
                if a == b:
                    continue
                for i in slots[a]:
                    if move := self._move_of(slots, a, i, b):
                        yield move
                    for j in slots[b]:
                        if move := self._swap(slots, a, i, b, j):
                            yield move
        for a, b in combinations(self.slots_of[last], 2):
            yield {a: slots[b], b: slots[a]}

    def _random_move(self, state: _State, last: int) -> Move | None:
        """Return a random move of a replica, or None if it is not valid."""
        slots, own = state.slots, self.slots_of[last]
        targets = self.all_slots if self.problem.across else own
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
        """Return the move of sequence i from slot a to b, or None if it is not valid."""
        if len(slots[a]) == 1 and not self.empty[a // self.problem.microbatches]:
            return None
        there = [*slots[b], i]
        if not self.problem.fits(there):
            return None
        return {a: [each for each in slots[a] if each != i], b: there}

    def _swap(self, slots: Slots, a: int, i: int, b: int, j: int) -> Move | None:
        """Return the swap of sequence i of slot a with j of b, or None if it does not fit."""
        here = [j if each == i else each for each in slots[a]]
        there = [i if each == j else each for each in slots[b]]
        return {a: here, b: there} if self.problem.fits(here) and self.problem.fits(there) else None

    def _kicked(self, best: _State) -> _State:
        """Return the best dealing after some random moves."""
        slots = [list(each) for each in best.slots]
        for _ in range(int(self.rng.integers(2, 5))):
            last = int(self.rng.integers(self.problem.n_replicas))
            if move := self._random_move(_State(slots, best.factors, best.ends), last):
                for slot, members in move.items():
                    slots[slot] = list(members)
        return self._timed_state(slots)

    def _does_not_fit(self) -> InputError:
        """Return the error for sequences that do not fit into microbatches."""
        message = f"the sequences do not fit into {self.problem.microbatches} microbatches"
        return InputError(message, "a larger --max-tokens, or more --mb")
