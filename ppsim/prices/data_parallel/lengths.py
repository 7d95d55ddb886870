"""Sequences of different lengths: the times of every replica's microbatches, and the loss of the
step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.given import Need
from ppsim.ask.groups import DETAILED, mbs_option
from ppsim.ask.options import flag, option
from ppsim.base.numbers import format_number
from ppsim.errors import InputError
from ppsim.prices.options import CostOptions, ask_costs
from ppsim.prices.timing import refuse_rounds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.core.costs import Costs
    from ppsim.core.law import Law
    from ppsim.core.schedule import Schedule
    from ppsim.core.sequences import Sequences
    from ppsim.inputs.profile.lengths import Shares
    from ppsim.show.drawing.load_map import LoadMap

OF_ONE_STEP = "sequences of different lengths are of one step"
SECONDS = 2.0  # of a search for a dealing
NAMED = 4  # replicas named


@dataclass(frozen=True)
class SequenceLengths:
    """Options for the lengths of sequences in every replica's microbatches, whatever their
    number.
    """

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("padded",),
            lambda g: bool(g["lengths"]),
            "{options} needs --lengths",
            "add --lengths FILE, or --lengths lognormal:2048:1.2:7",
        ),
    )

    lengths: str | None = option(
        "--lengths",
        metavar="FILE|DISTRIBUTION",
        help="Lengths of the sequences of every replica: csv, jsonl or parquet with columns "
        "replica, microbatch, "
        "tokens (or factor) and perhaps stage; or lognormal:MEAN:SIGMA:SEED, "
        "uniform:LEAST:MOST:SEED, "
        "zipf:EXPONENT:MOST:SEED, choice:512,1024:SEED of tokens. The times given are those of a "
        "mean microbatch.",
    )
    padded: bool = flag(
        "--padded", help="Pad every sequence to the longest of its microbatch (packed)."
    )
    cp_of: str | None = option(
        "--cp-of",
        metavar="FILE",
        help="Context parallelism of microbatches: csv, jsonl or parquet with columns microbatch, "
        "cp and perhaps replica, factor (1/cp), collective (time of the one in parallel with each "
        "forward, twice as long with B and I; an op takes the longer of both).",
    )


@dataclass(frozen=True)
class LengthOptions(SequenceLengths):
    """Options for the lengths of the sequences in every replica's microbatches."""

    needs: ClassVar[tuple[Need, ...]] = (
        *SequenceLengths.needs,
        Need(
            ("mbs",),
            lambda g: bool(g["lengths"] or g["model"]),
            "{options} needs --lengths or --model",
            "add --lengths lognormal:2048:1.2:7, or --model NAME --cluster NAME",
        ),
    )

    mbs: int | None = mbs_option("--model or of a distribution of --lengths")


@dataclass(frozen=True)
class DealOptions:
    """Options for dealing the sequences of --lengths again."""

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("deal", "max_tokens"),
            lambda g: bool(g["lengths"]),
            "{options} needs the sequences of --lengths",
            "add --lengths FILE",
            ("run", "compare"),
        ),
        Need(
            ("across", "deal_for"),
            lambda g: bool(g["deal"] or g["max_tokens"]),
            "{options} needs --deal or --max-tokens",
            "add --deal",
        ),
        Need(
            ("deal", "max_tokens"),
            lambda g: not any(g[name] for name in DETAILED),
            "{options} uses the simple model, and these options ask for the detailed one",
        ),
    )

    deal: bool = flag(
        "--deal",
        help="Deal the sequences of --lengths again over as many microbatches of their replica; "
        "the step never gets longer. -o FILE.csv writes the assignment.",
    )
    across: bool = flag("--across", help="Deal sequences to other replicas too.")
    max_tokens: int | None = option(
        "--max-tokens",
        type=click.IntRange(1, 1 << 53),
        help="Pack the sequences again into microbatches of at most this many tokens, padding "
        "included; their number is the one with the shortest step.",
    )
    deal_for: float = option(
        "--deal-for",
        type=click.FloatRange(0, 3600),
        default=SECONDS,
        help="Time limit of the search for a dealing, in seconds.",
    )

    @property
    def is_asked(self) -> bool:
        """True if the sequences are to be dealt again."""
        return self.deal or self.max_tokens is not None


@dataclass(frozen=True)
class Load:
    """Times of the microbatches of every replica.

    Attributes:
        sequences: with the microbatch of each.
        factors: shape (R, Q, M), each microbatch's time over the mean; Q is 1, or the number of
            stages where each has its own factor.
        collectives: shape (R, M), the time of the collective in parallel with each microbatch's
            forward, or None.
        ranks: shape (R, M), the context-parallel ranks of each microbatch, or None.
    """

    sequences: Sequences
    factors: NDArray[np.float64]
    collectives: NDArray[np.float64] | None = None
    ranks: NDArray[np.float64] | None = None

    @property
    def n_replicas(self) -> int:
        """Data-parallel replicas, R."""
        return len(self.factors)

    def empty_microbatches(self, microbatches: int) -> str:
        """Return a text on replicas with empty microbatches, empty if there are none."""
        import numpy as np

        used = np.zeros((self.n_replicas, microbatches), np.bool_)
        used[self.sequences.replica, self.sequences.microbatch] = True
        empty = microbatches - used.sum(axis=1)
        texts = [f"{n} of replica {r}" for r, n in enumerate(empty.tolist()) if n]
        more = f" and of {len(texts) - NAMED} more" if len(texts) > NAMED else ""
        return f"microbatches without sequences: {', '.join(texts[:NAMED])}{more}" if texts else ""

    def sizes(self, tokens: float | None = None) -> NDArray[np.float64]:
        """Return the length of each microbatch on a rank of its context, shape (R, Q, M), over that
        of the mean one, or over so many ``tokens`` where lengths are tokens.
        """
        import numpy as np

        found = self.sequences.lengths(self.factors.shape[2])
        mean = found.sum(axis=(0, 2), keepdims=True) / self.sequences.counts.sum()
        if tokens and self.sequences.in_tokens:
            mean = np.full_like(mean, tokens)
        sizes = found / np.where(mean > 0, mean, 1.0)
        return sizes if self.ranks is None else sizes / self.ranks[:, None]

    def describe_memory(self) -> str:
        """Return a note: memory grows with tokens, and the size of the longest microbatch."""
        longest = format_number(float(self.sizes().max()))
        growth = "memory is in proportion to the tokens of each microbatch"
        return f"{growth}; the longest has {longest} times the mean's"

    def costs(self, schedule: Schedule, made: Costs, replica: int) -> Costs:
        """Return the costs of a replica, from the costs of mean microbatches."""
        found = scale_costs(schedule, made, self.factors[replica])
        return (
            found
            if self.collectives is None
            else beside_collectives(schedule, found, self.collectives[replica])
        )

    def even_costs(self, schedule: Schedule, made: Costs) -> Costs:
        """Return the costs where all microbatches of all replicas take equal times."""
        import numpy as np

        mean = self.factors.mean(axis=(0, 2), keepdims=True)[0]
        found = scale_costs(schedule, made, mean.repeat(self.factors.shape[2], axis=1))
        if self.collectives is None:
            return found
        return beside_collectives(
            schedule, found, np.full(len(self.collectives[0]), self.collectives.mean())
        )


def scale_costs(schedule: Schedule, made: Costs, factors: NDArray[np.float64]) -> Costs:
    """Return costs with factors of microbatches, shape (1 or stages, microbatches)."""
    import numpy as np

    if made.op_times is None and len(factors) == 1:
        from ppsim.core.ops import COMPUTE

        scale = factors.repeat(schedule.n_slices, axis=1)
        base = (
            np.ones((len(COMPUTE), schedule.n_microbatches)) if made.scale is None else made.scale
        )
        return replace(made, scale=base * scale)
    from ppsim.core.sequences import linear_times

    times = linear_times(schedule, made, by_stage=len(factors) > 1)
    return replace(made, op_times=times.durations(factors.reshape(-1, 1))[:, 0])


def beside_collectives(schedule: Schedule, made: Costs, collective: NDArray[np.float64]) -> Costs:
    """Return costs where each op takes at least as long as the collective in parallel with it.

    In parallel with a forward runs one collective of its microbatch, whose time has shape
    (microbatches,); with B and I, which move gradients too, one twice as long; with W none. A pair
    runs the collectives of both ops.
    """
    import numpy as np

    from ppsim.core.ops import COMPUTE, Kind

    times = {Kind.F: 1.0, Kind.R: 1.0, Kind.B: 2.0, Kind.I: 2.0}
    least = np.zeros(len(schedule))
    ops = np.flatnonzero(schedule.kind < len(COMPUTE))
    weight = np.array([times.get(kind, 0.0) for kind in COMPUTE])
    least[ops] = (
        weight[schedule.kind[ops]] * collective[schedule.microbatch[ops] // schedule.n_slices]
    )
    first, second = schedule.first_of_pairs, schedule.second_of_pairs
    least[first] = least[second] = least[first] + least[second]
    return replace(made, op_times=np.maximum(made.durations(schedule), least / schedule.n_slices))


def find_load(
    options: LengthOptions, schedule: Schedule, replicas: int | None, costs: CostOptions
) -> Load | None:
    """Read or draw the lengths that the options ask for; None for none.

    Raises:
        InputError: the lengths cannot be read, or are of another shape than the schedule.
    """
    M = schedule.whole_microbatches
    if options.lengths is not None:
        from ppsim.inputs.profile.lengths import read_sequences

        shares = shares_of(options, schedule, replicas)
        sequences = read_sequences(options.lengths, shares, law_of(costs), padded=options.padded)
    elif options.cp_of is not None:
        sequences = equal_sequences(replicas or 1, M)
    else:
        return None
    refuse_rounds(schedule, OF_ONE_STEP)
    load = Load(sequences, sequences.factors(M))
    if options.cp_of is None:
        return load
    from ppsim.inputs.profile.lengths import read_context_parallel

    factor, beside, ranks = read_context_parallel(options.cp_of, load.n_replicas, M)
    return replace(
        load,
        factors=load.factors * factor[:, None],
        collectives=beside if beside.any() else None,
        ranks=ranks,
    )


@dataclass(frozen=True)
class Loads:
    """The loads of several schedules, each read or drawn once.

    Attributes:
        options: the lengths of sequences.
        replicas: how many there are; None where the lengths say it.
        by_key: the loads by the options that they depend on.
    """

    options: LengthOptions
    replicas: int | None
    by_key: dict[tuple[Any, ...], Load | None] = field(default_factory=dict)

    @property
    def n_replicas(self) -> int:
        """The replicas of the loads that were made; 1 for none."""
        return max((load.n_replicas for load in self.by_key.values() if load), default=1)

    def find(self, schedule: Schedule, costs: CostOptions) -> Load | None:
        """Return the load of a schedule; None for none (InputError: as :func:`find_load`)."""
        law = None if self.options.lengths is None else law_of(costs)
        key = (schedule.whole_microbatches, schedule.n_stages, law)
        if key not in self.by_key:
            self.by_key[key] = find_load(self.options, schedule, self.replicas, costs)
        return self.by_key[key]


def equal_sequences(replicas: int, microbatches: int) -> Sequences:
    """Return one sequence of factor 1 for each microbatch of each replica."""
    import numpy as np

    from ppsim.core.sequences import Sequences

    replica, microbatch = np.divmod(np.arange(replicas * microbatches), microbatches)
    one, counts = np.ones((len(replica), 1)), np.full(replicas, microbatches)
    return Sequences(
        replica, microbatch, one, one, np.arange(len(replica)), counts, in_tokens=False
    )


def shares_of(options: LengthOptions, schedule: Schedule, replicas: int | None) -> Shares:
    """Return the replicas and microbatches that the lengths are divided among (InputError: --mbs of
    a file).
    """
    from ppsim.inputs.profile.lengths import Shares, is_distribution

    if options.mbs is not None and not is_distribution(options.lengths or ""):
        raise InputError(
            "--mbs needs a distribution of --lengths, and this is a file", "leave it out"
        )
    if options.padded and is_distribution(options.lengths or "") and (options.mbs or 1) == 1:
        raise InputError("--padded has no effect: every microbatch has one sequence", "add --mbs 4")
    return Shares(replicas, schedule.whole_microbatches, options.mbs or 1, schedule.n_stages)


def law_of(costs: CostOptions) -> Law | None:
    """Return the law of --law, else of a part; None for times in proportion to tokens."""
    if costs.law is not None:
        from ppsim.inputs.profile.chunk_times import read_law

        law, fitted = read_law(costs.law)
        if law.prefix and not fitted:
            raise InputError(
                "--law: G needs tokens before a chunk, which sequences of --lengths lack",
                "C,B,A, or C,0,B,A",
            )
        return law
    return ask_costs(costs).length_law()


def load_map(title: str, load: Load, ends: NDArray[np.float64], unit: str) -> LoadMap:
    """Return the map of a load; of factors by stage their mean.

    Args:
        title: of the map.
        load: the times of microbatches.
        ends: shape (R,), the end of each replica's pipeline.
        unit: of the ends.
    """
    from ppsim.show.drawing.load_map import LoadMap

    return LoadMap(title, load.factors.mean(axis=1), ends, unit)


def lengths_object(load: Load) -> dict[str, Any]:
    """Return the object of JSON: how long microbatches are, by replica."""
    factors = load.factors
    found = factors[:, 0] if factors.shape[1] == 1 else factors
    return {
        "sequences": len(load.sequences),
        "in": "tokens" if load.sequences.in_tokens else "factors",
        "microbatches": load.sequences.counts.tolist(),
        "factors": found.tolist(),
    }
