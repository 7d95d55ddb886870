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

LEAST_GAIN = 1e-12  # share of a time by which a move must shorten it
MOST_MOVES = 600  # number of moves of a replica up to which all are tried
OPS_AT_ONCE = 1 << 19  # ops timed in one array step
PATIENCE = 8  # batches of random moves without a gain, after which a descent ends
ORDERS = 5  # orders of a replica's microbatches that are tried at the start
KICKS = 40  # descents from the best dealing after some random moves
# A slot is a microbatch of a replica, numbered replica x M + microbatch.
Slots = list[list[int]]  # the sequences of each slot
Move = dict[int, list[int]]  # the new sequences of each slot that changes


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
        """Return a copy that moves can change."""
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
        self.simulated = 0  # pipelines
        self.may_be_empty = problem.may_be_empty
        ops = max(1, len(problem.pipeline.schedule))
        self.batch = max(16, min(512, OPS_AT_ONCE // ops))
        M = problem.microbatches
        # the slots that may have sequences: of each replica, and of all
        self.slots_of = [list(range(r * M, r * M + int(n))) for r, n in enumerate(problem.counts)]
        self.all_slots = [slot for slots in self.slots_of for slot in slots]

    def run(self, kicks: int) -> Dealt:
        """Descend from every start, then from the best dealing after some random moves."""
        problem = self.problem
        given = self._given_state()
        given_step = float(given.ends.max()) if given else np.inf
        bound = bound_step(problem)
        starts = [*([given] if given else []), *self._starts()]
        if not starts:
            raise self._does_not_fit()
        starts.sort(key=lambda state: float(state.ends.max()))
        best = starts[0].copy()
        for start in starts:
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
        step = float(best.ends.max())
        return Dealt(replica, microbatch, given_step, best.ends, min(bound, step), self.simulated)

    def _better(self, best: _State, other: _State) -> _State:
        """Return the dealing with the shorter step; the first one unless the gain is clear."""
        return other if other.ends.max() < best.ends.max() * (1 - LEAST_GAIN) else best

    def _is_over(self, best: _State, bound: float) -> bool:
        """Return True if time is over, or if the dealing attains the bound."""
        attained = float(best.ends.max()) <= bound * (1 + 2 * LEAST_GAIN)
        return attained or monotonic() >= self.deadline

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
        """Return the makespans of replicas with these times of microbatches, and count them."""
        self.simulated += len(factors)
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
        # A pool is a set of replicas between which sequences may move: all with --across, else one.
        pool_of = np.zeros(len(size), np.int64) if problem.across else problem.replica
        pools = (
            [list(range(problem.n_replicas))]
            if problem.across
            else [[r] for r in range(problem.n_replicas)]
        )
        sequences_left = np.bincount(pool_of, minlength=problem.n_replicas)
        empty_of, all_empty = problem.counts.copy(), int(problem.counts.sum())  # empty slots
        heaps = [[(0.0, r) for r in pool] for pool in pools]  # replicas by their load
        for sequence in np.argsort(-size, kind="stable").tolist():
            pool = int(pool_of[sequence])
            empty = all_empty if problem.across else int(empty_of[pool])
            # If no sequence can be spared, each must go into an empty slot.
            only_empty = int(sequences_left[pool]) <= empty
            heap, tried, chosen = heaps[pool], list[tuple[float, int]](), -1
            while heap and chosen < 0:
                total, r = heappop(heap)
                if only_empty and not empty_of[r]:
                    continue  # this replica gets no more sequences
                chosen = next(self._slots_with_room(slots, load, r, sequence, only_empty), -1)
                if chosen >= 0:
                    total += float(size[sequence]) * slow[r]
                tried.append((total, r))
            for entry in tried:
                heappush(heap, entry)
            if chosen < 0:
                return None
            empty_of[chosen // M] -= not slots[chosen]
            all_empty -= not slots[chosen]
            sequences_left[pool] -= 1
            slots[chosen].append(sequence)
            load[chosen] += size[sequence]
        return slots

    def _slots_with_room(
        self, slots: Slots, load: Floats, r: int, sequence: int, only_empty: bool
    ) -> Iterator[int]:
        """Yield a replica's slots with room for a sequence, the least loaded first.

        With ``only_empty``, slots that have sequences are left out.
        """
        allowed = [slot for slot in self.slots_of[r] if not (only_empty and slots[slot])]
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
        if not problem.padded or self.may_be_empty.any():
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
            for group in sorted(groups, key=lambda members: -len(members) * size[members[0]]):
                r = min((r for r in pool if free[r]), key=total.__getitem__)
                slots[free[r].pop(0)] = group.tolist()
                total[r] += len(group) * float(size[group[0]])
        return slots if all(map(problem.fits, slots)) else None

    def _ordered(self, state: _State) -> _State:
        """Return the dealing with each replica's microbatches in the fastest of some orders.

        The orders are: as dealt, rising, falling, and the longest in the middle or at both ends.
        """
        orders, replica, factors = list[list[int]](), list[int](), list[Floats]()
        for r, slots in enumerate(self.slots_of):
            size = state.factors[r].sum(axis=1)
            rising = sorted(range(len(slots)), key=size.__getitem__)
            longest_inside = rising[::2] + rising[1::2][::-1]
            half = len(longest_inside) // 2
            for order in (
                list(range(len(slots))),
                rising,
                rising[::-1],
                longest_inside,
                longest_inside[half:] + longest_inside[:half],
            ):
                orders.append(order)
                replica.append(r)
                reordered = state.factors[r].copy()
                reordered[: len(slots)] = state.factors[r][order]
                factors.append(reordered)
        ends = self._makespans(np.array(factors), np.array(replica))
        for r, slots in enumerate(self.slots_of):
            best = int(r * ORDERS + np.argmin(ends[r * ORDERS : (r + 1) * ORDERS]))
            before = [state.slots[slot] for slot in slots]
            for slot, microbatch in zip(slots, orders[best], strict=True):
                state.slots[slot] = before[microbatch]
            state.factors[r], state.ends[r] = factors[best], ends[best]
        return state

    # Moves.

    def _descend(self, state: _State, bound: float) -> _State:
        """Make moves that shorten the replica that ends last, until none does or time is over."""
        without_gain = 0
        while without_gain < PATIENCE and not self._is_over(state, bound):
            last = int(state.ends.argmax())
            moves, are_all_moves = self._moves(state, last)
            if not moves:
                break
            if self._make_best(state, moves):
                without_gain = 0
            elif are_all_moves:
                break
            else:
                without_gain += 1
        return state

    def _make_best(self, state: _State, moves: list[Move]) -> bool:
        """Make the move that shortens its replicas most; return False if none does."""
        M = self.problem.microbatches
        touched = [sorted({slot // M for slot in move}) for move in moves]
        factors, replica = list[Floats](), list[int]()
        for move, replicas in zip(moves, touched, strict=True):
            for r in replicas:
                changed = state.factors[r].copy()
                for slot, members in move.items():
                    if slot // M == r:
                        changed[slot % M] = microbatch_time(self.problem, members)
                factors.append(changed)
                replica.append(r)
        ends = self._makespans(np.array(factors), np.array(replica)).tolist()
        best_gain, best_move, first = (0.0, 0.0), -1, 0
        present = state.ends.tolist()
        for number, replicas in enumerate(touched):
            after = ends[first : first + len(replicas)]
            first += len(replicas)
            before = [present[r] for r in replicas]
            gain = (max(before) - max(after), sum(before) - sum(after))
            if gain[0] > LEAST_GAIN * max(before) and gain > best_gain:
                best_gain, best_move = gain, number
        if best_move < 0:
            return False
        first = sum(map(len, touched[:best_move]))
        for slot, members in moves[best_move].items():
            state.slots[slot] = members
        for offset, r in enumerate(touched[best_move]):
            state.factors[r], state.ends[r] = factors[first + offset], ends[first + offset]
        return True

    def _moves(self, state: _State, last: int) -> tuple[list[Move], bool]:
        """Return moves of one replica: all of them and True, or random ones and False."""
        targets = self.all_slots if self.problem.across else self.slots_of[last]
        sources = self.slots_of[last]
        sequences = sum(len(state.slots[slot]) for slot in sources)
        partners = sum(len(state.slots[slot]) for slot in targets)
        count = sequences * (len(targets) + partners) + len(sources) ** 2 // 2
        if count <= MOST_MOVES:
            return list(self._all_moves(state, last)), True
        drawn = (self._random_move(state, last) for _ in range(self.batch))
        return [move for move in drawn if move], False

    def _all_moves(self, state: _State, last: int) -> Iterator[Move]:
        """Yield all valid moves of a replica."""
        slots = state.slots
        for source in self.slots_of[last]:
            for target in self.all_slots if self.problem.across else self.slots_of[last]:
                if source == target:
                    continue
                for sequence in slots[source]:
                    if move := self._move_of(slots, sequence, source, target):
                        yield move
                    for other in slots[target]:
                        if move := self._swap(slots, sequence, source, other, target):
                            yield move
        for source, target in combinations(self.slots_of[last], 2):
            yield {source: slots[target], target: slots[source]}

    def _random_move(self, state: _State, last: int) -> Move | None:
        """Return a random move of a replica, or None if it is not valid."""
        slots, sources = state.slots, self.slots_of[last]
        targets = self.all_slots if self.problem.across else sources
        kind = int(self.rng.integers(3))  # 0 moves a sequence, 1 swaps two, 2 swaps microbatches
        source = self._drawn(sources)
        if kind == 2 and len(sources) > 1:
            target = self._drawn(sources)
            return {source: slots[target], target: slots[source]} if source != target else None
        target = self._drawn(targets)
        if source == target or not slots[source]:
            return None
        sequence = self._drawn(slots[source])
        if kind == 0 or not slots[target]:
            return self._move_of(slots, sequence, source, target)
        return self._swap(slots, sequence, source, self._drawn(slots[target]), target)

    def _drawn(self, choices: list[int]) -> int:
        """Return one of the choices at random."""
        return choices[int(self.rng.integers(len(choices)))]

    def _move_of(self, slots: Slots, sequence: int, source: int, target: int) -> Move | None:
        """Return the move of a sequence from one slot to another, or None if it is not valid."""
        if len(slots[source]) == 1 and not self.may_be_empty[source // self.problem.microbatches]:
            return None
        joined = [*slots[target], sequence]
        if not self.problem.fits(joined):
            return None
        return {source: [each for each in slots[source] if each != sequence], target: joined}

    def _swap(
        self, slots: Slots, sequence: int, source: int, other: int, target: int
    ) -> Move | None:
        """Return the swap of ``sequence`` in ``source`` with ``other`` in ``target``.

        None if it does not fit.
        """
        new_source = [other if each == sequence else each for each in slots[source]]
        new_target = [sequence if each == other else each for each in slots[target]]
        if not (self.problem.fits(new_source) and self.problem.fits(new_target)):
            return None
        return {source: new_source, target: new_target}

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
