"""Lengths of sequences: a file from a data loader, or a distribution of tokens.

A file (csv, jsonl, parquet) has a row for each sequence: its tokens or its factor, and optionally
its replica, its microbatch and the stage with this length. A distribution is
``lognormal:2048:1.2:7`` (mean, sigma of the logarithm, seed), ``uniform:128:4096:7``,
``zipf:1.5:8192:7`` (exponent, longest) or ``choice:512,1024,8192:7`` (one of these values). The
time of a sequence of L tokens is given by a law: t(L) = C + B L + A L^2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.numbers import plain_float
from ppsim.base.source import name_of, read_bytes
from ppsim.base.tables import read_table
from ppsim.base.text import quote, shorten
from ppsim.base.unpack.json_objects import decode_row
from ppsim.base.unpack.limits import Meter
from ppsim.base.unpack.texts import Lines
from ppsim.core.law import Law
from ppsim.core.sequences import Sequences, join_times
from ppsim.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Our names of columns, each with the names that data loaders use, the least ambiguous first.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "replica": ("replica", "dp_rank", "dp", "data_parallel_rank"),
    "microbatch": ("microbatch", "micro_batch", "mb", "mb_id", "microbatch_id", "micro_batch_id"),
    "tokens": (
        "tokens",
        "num_tokens",
        "n_tokens",
        "length",
        "seq_len",
        "seqlen",
        "sequence_length",
    ),
    "factor": ("factor",),
    "stage": ("stage",),
    "sequence": ("sequence", "sequence_id", "sample", "sample_id", "id"),
}
CP_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "replica": COLUMNS["replica"],
    "microbatch": COLUMNS["microbatch"],
    "cp": ("cp", "cp_size", "context_parallel_size"),
    "factor": COLUMNS["factor"],
    "collective": ("collective",),
}
SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")
CP_HINT = (
    "csv, jsonl or parquet with columns microbatch, cp and perhaps replica, factor, collective"
)
MOST_CP = 4096
HINT = "csv, jsonl or parquet with columns replica, microbatch, tokens (or factor)"
DISTRIBUTIONS = "lognormal:2048:1.2:7, uniform:128:4096:7, zipf:1.5:8192:7, choice:512,1024,8192:7"
MOST = 1 << 22  # sequences of a step
MOST_REPLICAS = 4096
LONGEST = 1e12  # tokens of a sequence, and factors
ROW = 400  # bytes of memory per row of a file, besides its characters
_NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,3})?"


@dataclass(frozen=True)
class Shares:
    """The replicas and microbatches to which lengths are assigned."""

    replicas: int | None  # R, or None for the number in the file
    microbatches: int  # M
    sequences: int  # sequences of a microbatch, if the lengths have no microbatches
    stages: int  # of the pipeline


def is_distribution(text: str) -> bool:
    """Return whether a text is a distribution of lengths; otherwise it names a file."""
    return text.partition(":")[0] in DRAWS


def read_sequences(text: str, shares: Shares, law: Law | None, *, padded: bool) -> Sequences:
    """Return the sequences of a step, read from a file or drawn from a distribution.

    Args:
        text: a file, or a distribution.
        shares: the replicas and microbatches of the sequences.
        law: the time of a sequence by its tokens; None for a time proportional to them.
        padded: whether sequences are padded to the longest of their microbatch.

    Raises:
        InputError: the text is neither, or the file has other replicas or microbatches.
        MissingDependency: Parquet without pyarrow.
    """
    if is_distribution(text):
        return _add_times(_drawn(text, shares), law, padded=padded)
    found = _read_file(text, shares)
    if law and not found.in_tokens:
        raise InputError("--law is of tokens, and the file has factors", "leave it out")
    return _add_times(found, law, padded=padded)


def count_microbatches(path: str) -> Ints:
    """Return the number of microbatches of each replica in a file, shape (R,).

    Raises:
        InputError: the file cannot be read, or has no column of microbatches.
    """
    source, rows = f"'{name_of(path)}'", _rows_of(path)
    if not rows:
        raise InputError(f"{source} has no rows", HINT)
    found = _find_columns(source, list(dict.fromkeys(name for row in rows[:100] for name in row)))
    if "microbatch" not in found:
        raise InputError(f"{source} has no column of microbatch", HINT)
    replica = _Column(source, rows, found.get("replica", "")).integers(MOST_REPLICAS - 1)
    microbatch = _Column(source, rows, found["microbatch"]).integers(MOST)
    counts = np.zeros(int(replica.max()) + 1, np.int64)
    np.maximum.at(counts, replica, microbatch + 1)
    return counts


def read_context_parallel(
    path: str, replicas: int, microbatches: int
) -> tuple[Floats, Floats, Floats]:
    """Return the time factor, the collective time and the ranks of microbatches with context
    parallelism.

    Args:
        path: a file with a row for each such microbatch; a row without a replica applies to all.
        replicas: R.
        microbatches: M.

    Returns:
        Three arrays of shape (R, M): the factor on the microbatch's time (1/cp if the row has no
        factor, 1 without a row); the time of a forward's collective, which runs in parallel with
        its compute; and the number of ranks (1 without a row).

    Raises:
        InputError: the file cannot be read, or names another replica or microbatch.
    """
    source, rows = f"'{name_of(path)}'", _rows_of(path)
    if not rows:
        raise InputError(f"{source} has no rows", CP_HINT)
    found = _columns_of(list(dict.fromkeys(name for row in rows[:100] for name in row)), CP_COLUMNS)
    for name in ("microbatch", "cp"):
        if name not in found:
            raise InputError(f"{source} has no column of {name}", CP_HINT)
    replica = _Column(source, rows, found.get("replica", "")).integers(replicas - 1, missing=-1)
    microbatch = _Column(source, rows, found["microbatch"]).integers(microbatches - 1)
    cp = _Column(source, rows, found["cp"]).integers(MOST_CP)
    if not cp.all():
        at = int(np.argmin(cp))
        raise InputError(f"{source}, row {at + 1}: cp is 0", "1 for a microbatch on one rank")
    factors = (
        _Column(source, rows, found["factor"]).numbers(LONGEST) if "factor" in found else 1.0 / cp
    )
    collectives = (
        _Column(source, rows, found["collective"]).numbers(LONGEST)
        if "collective" in found
        else 0.0 * cp
    )
    key = replica * microbatches + microbatch
    if len(np.unique(key)) < len(key):
        raise InputError(f"{source} has two rows of one microbatch", "one for each")
    factor, collective, ranks = (
        np.full((replicas, microbatches), default) for default in (1.0, 0.0, 1.0)
    )
    for at in np.argsort(replica, kind="stable").tolist():  # rows of all replicas come first
        which = slice(None) if replica[at] < 0 else slice(int(replica[at]), int(replica[at]) + 1)
        factor[which, microbatch[at]] = factors[at]
        collective[which, microbatch[at]] = collectives[at]
        ranks[which, microbatch[at]] = cp[at]
    return factor, collective, ranks


def _add_times(found: Sequences, law: Law | None, *, padded: bool) -> Sequences:
    """Return the sequences with their times.

    With tokens, a time is relative to the mean of a microbatch; with factors, it is the factor.
    """
    time = found.length
    if found.in_tokens:
        absolute = (law or Law()).times_of_sequences(found.length)
        slot = np.cumsum(np.append(0, found.counts))[found.replica] + found.microbatch
        slots = int(found.counts.sum())
        mean = join_times(absolute, slot, slots, padded=padded).sum(axis=0) / slots
        if not mean.max() > 0:
            raise InputError("no sequence takes any time", "tokens above 0, and a --law above 0")
        time = absolute / np.where(mean > 0, mean, 1.0)
    return Sequences(
        found.replica,
        found.microbatch,
        found.length,
        time,
        found.names,
        found.counts,
        found.in_tokens,
        padded,
    )


def _drawn(text: str, shares: Shares) -> Sequences:
    """Return drawn sequences for all replicas."""
    R, M, each = shares.replicas or 1, shares.microbatches, shares.sequences
    _refuse_many(R * M * each)
    tokens = np.concatenate([draw_tokens(text, M * each, replica) for replica in range(R)])
    return _fill_in_order(tokens[:, None], np.repeat(np.arange(R), M * each), R, M, in_tokens=True)


def draw_tokens(text: str, n: int, replica: int, steps: int | None = None) -> Floats:
    """Return the drawn tokens of ``n`` sequences of a replica, shape (n,), or with ``steps``,
    shape (steps, n).

    All replicas and steps draw different numbers.
    """
    name, _, rest = text.partition(":")
    draw, seed = DRAWS[name](rest, text)
    key = (seed, replica) if steps is None else (seed, replica, 1)
    shape = (n,) if steps is None else (steps, n)
    return np.maximum(np.rint(draw(np.random.default_rng(key), shape)), 1.0)


Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]


def _lognormal(rest: str, text: str) -> tuple[Draw, int]:
    mean, sigma, seed = _two_numbers(rest, text, LONGEST, 10.0)
    return lambda rng, shape: np.minimum(
        rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, shape), LONGEST
    ), seed


def _uniform(rest: str, text: str) -> tuple[Draw, int]:
    least, most, seed = _two_numbers(rest, text, LONGEST, LONGEST)
    if least > most:
        raise _not_a_distribution(text)
    return lambda rng, shape: rng.uniform(least, most, shape), seed


def _zipf(rest: str, text: str) -> tuple[Draw, int]:
    exponent, longest, seed = _two_numbers(rest, text, 100.0, float(MOST))
    weight = np.arange(1, int(longest) + 1, dtype=np.float64) ** -exponent
    below = np.cumsum(weight) / weight.sum()

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return 1.0 + np.minimum(np.searchsorted(below, rng.random(shape)), len(below) - 1)

    return draw, seed


def _choice(rest: str, text: str) -> tuple[Draw, int]:
    listed, _, seed = rest.partition(":")
    parts = listed.split(",")
    if not all(re.fullmatch(_NUMBER, part) for part in parts) or not re.fullmatch(
        "[0-9]{0,9}", seed
    ):
        raise _not_a_distribution(text)
    values = np.array([float(part) for part in parts])
    if not (values <= LONGEST).all():
        raise _not_a_distribution(text)
    return lambda rng, shape: values[rng.integers(0, len(values), shape)], int(seed or 0)


DRAWS: Mapping[str, Callable[[str, str], tuple[Draw, int]]] = {
    "lognormal": _lognormal,
    "uniform": _uniform,
    "zipf": _zipf,
    "choice": _choice,
}


def _two_numbers(rest: str, text: str, most: float, most_second: float) -> tuple[float, float, int]:
    """Return the numbers of ``A:B`` or ``A:B:SEED``, with A above 0 and B from 0."""
    match = re.fullmatch(rf"({_NUMBER}):({_NUMBER})(?::([0-9]{{1,9}}))?", rest)
    if match is None or not (0 < float(match[1]) <= most and 0 <= float(match[2]) <= most_second):
        raise _not_a_distribution(text)
    return float(match[1]), float(match[2]), int(match[3] or 0)


def _not_a_distribution(text: str) -> InputError:
    message = (
        f"not a distribution of tokens: '{shorten(text, 40)}'; expected e.g. lognormal:2048:1.2:7"
    )
    return InputError(message, DISTRIBUTIONS)


def _refuse_many(count: int) -> None:
    if count > MOST:
        raise InputError(
            f"{count:,} sequences, more than the maximum of {MOST:,}",
            "fewer --replicas, --mbs or --samples",
        )


def _fill_in_order(
    length: Floats, replica: Ints, replicas: int, microbatches: int, *, in_tokens: bool
) -> Sequences:
    """Return the sequences of each replica, divided in order and equally among its microbatches."""
    order, number = np.argsort(replica, kind="stable"), np.bincount(replica, minlength=replicas)
    place = np.zeros(len(length), np.int64)
    rank = np.arange(len(length)) - np.repeat(np.cumsum(number) - number, number)
    place[order] = rank * microbatches // np.repeat(number, number)
    counts = np.full(replicas, microbatches, np.int64)
    names = np.arange(len(length), dtype=np.int64)
    return Sequences(replica.astype(np.int64), place, length, length, names, counts, in_tokens)


def _read_file(path: str, shares: Shares) -> Sequences:
    """Return the sequences in a data loader's file."""
    source, rows = f"'{name_of(path)}'", _rows_of(path)
    if not rows:
        raise InputError(f"{source} has no rows", HINT)
    _refuse_many(len(rows))
    names = list(dict.fromkeys(name for row in rows[:100] for name in row))
    found = _find_columns(source, names)
    in_tokens = "tokens" in found
    value = _Column(source, rows, found["tokens" if in_tokens else "factor"])
    length = value.numbers(LONGEST)
    if "replica" not in found and "microbatch" not in found:
        if "stage" in found:
            raise InputError(f"{source} has a stage and no microbatch", HINT)
        return _deal_as_sampler(source, length, shares, in_tokens=in_tokens)
    if "microbatch" not in found:
        raise InputError(f"{source} has no column of microbatch", HINT)
    replica = _Column(source, rows, found.get("replica", "")).integers(MOST_REPLICAS - 1)
    microbatch = _Column(source, rows, found["microbatch"]).integers(MOST)
    counts = _counts(source, replica, microbatch, shares)
    stage = _Column(source, rows, found.get("stage", "")).integers(shares.stages - 1, missing=-1)
    named = _Column(source, rows, found["sequence"]).names() if "sequence" in found else None
    return _by_stage(source, replica, microbatch, stage, length, named, counts, shares, in_tokens)


def _deal_as_sampler(source: str, length: Floats, shares: Shares, *, in_tokens: bool) -> Sequences:
    """Return lengths divided as by a distributed sampler: the n-th belongs to replica n mod R."""
    R, M = shares.replicas or 1, shares.microbatches
    if len(length) % (R * M):
        least = max(1, len(length) // (R * M)) * R * M
        message = f"{source} has {len(length)} lengths for {R} replicas of {M} microbatches"
        raise InputError(message, f"{least} lengths, or columns replica and microbatch")
    replica = np.arange(len(length), dtype=np.int64) % R
    return _fill_in_order(length[:, None], replica, R, M, in_tokens=in_tokens)


def _counts(source: str, replica: Ints, microbatch: Ints, shares: Shares) -> Ints:
    """Return the number of microbatches of each replica.

    Raises:
        InputError: the file has other replicas or microbatches than ``shares``.
    """
    R, M = int(replica.max()) + 1, int(microbatch.max()) + 1
    if shares.replicas not in (None, R):
        message = f"{source} has {R} replicas, and --replicas is {shares.replicas}"
        raise InputError(message, f"--replicas {R}")
    counts = np.zeros(R, np.int64)
    np.maximum.at(counts, replica, microbatch + 1)
    if not counts.all():
        raise InputError(f"{source} has no sequence of replica {int(np.argmin(counts))}", HINT)
    if shares.microbatches != M:
        message = f"{source} has {M} microbatches, and the schedule has {shares.microbatches}"
        raise InputError(message, f"--mb {M}")
    return counts


def _by_stage(
    source: str,
    replica: Ints,
    microbatch: Ints,
    stage: Ints,
    length: Floats,
    named: Ints | None,
    counts: Ints,
    shares: Shares,
    in_tokens: bool,
) -> Sequences:
    """Return the sequences, each from the rows of its stages.

    A row without a stage applies to all stages that have no row.
    """
    if not (stage >= 0).any():
        names = np.arange(len(length), dtype=np.int64) if named is None else named
        if named is not None and len(np.unique(names)) < len(names):
            raise InputError(f"{source} has two rows of one sequence", "a row for each, or a stage")
        return Sequences(
            replica, microbatch, length[:, None], length[:, None], names, counts, in_tokens
        )
    place = named if named is not None else _place_of_stage(replica, microbatch, stage)
    key = np.stack([replica, microbatch, place])
    first, number = np.unique(key, axis=1, return_index=True, return_inverse=True)[1:]
    number = number.ravel()
    S = shares.stages
    table = np.full((len(first), S + 1), np.nan)
    column = np.where(stage >= 0, stage, S)
    if len(np.unique(number * (S + 1) + column)) < len(number):
        raise InputError(f"{source} has two rows of one sequence and stage", "one for each stage")
    table[number, column] = length
    spread = np.where(np.isnan(table[:, :S]), table[:, S:], table[:, :S])
    if np.isnan(spread).any():
        row, lacks = (int(part[0]) for part in np.nonzero(np.isnan(spread)))
        at = int(first[row])
        message = (
            f"{source}: replica {replica[at]}, microbatch {microbatch[at]} has no row of stage "
            f"{lacks}"
        )
        raise InputError(message, "a row for each stage, or one without a stage for the others")
    names = named[first] if named is not None else np.arange(len(first), dtype=np.int64)
    return Sequences(replica[first], microbatch[first], spread, spread, names, counts, in_tokens)


def _place_of_stage(replica: Ints, microbatch: Ints, stage: Ints) -> Ints:
    """Return the number of each row within its microbatch and stage.

    The k-th rows of all stages are one sequence.
    """
    seen, place = dict[tuple[int, int, int], int](), np.zeros(len(stage), np.int64)
    for row, key in enumerate(
        zip(replica.tolist(), microbatch.tolist(), stage.tolist(), strict=True)
    ):
        place[row] = seen.get(key, 0)
        seen[key] = int(place[row]) + 1
    return place


def _columns_of(names: Sequence[str], wanted: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the file's names of the wanted columns, by our names, without missing ones."""
    simple = {str(name).strip().lower().replace(" ", "_").replace("-", "_"): name for name in names}
    found = {}
    for ours, words in wanted.items():
        if word := next((word for word in words if word in simple), ""):
            found[ours] = simple[word]
    return found


def _find_columns(source: str, names: Sequence[str]) -> dict[str, str]:
    """Return the names of our columns in the file, by our names.

    Raises:
        InputError: the file has no column of lengths, or two.
    """
    found = _columns_of(names, COLUMNS)
    if "tokens" in found and "factor" in found:
        raise InputError(f"{source} has tokens and factors", "one column of lengths")
    if not {"tokens", "factor"} & found.keys():
        raise InputError(f"{source} has no column of tokens or factor", HINT)
    return found


@dataclass(frozen=True)
class _Column:
    """One column of a file's rows; its name is empty if the file lacks it."""

    source: str
    rows: Sequence[Mapping[str, Any]]
    name: str

    def numbers(self, most: float) -> Floats:
        """Return numbers from 0 (InputError: a cell is not one)."""
        found = np.empty(len(self.rows))
        for at, row in enumerate(self.rows):
            found[at] = _number(row.get(self.name))
        self._refuse(~(found >= 0) | (found > most), f"a number from 0 to {most:g}")
        return found

    def integers(self, most: int, missing: int | None = None) -> Ints:
        """Return whole numbers from 0, or ``missing`` for an empty cell.

        Raises:
            InputError: a cell is not such a number.
        """
        if not self.name:
            return np.full(len(self.rows), 0 if missing is None else missing, np.int64)
        found = np.empty(len(self.rows))
        for at, row in enumerate(self.rows):
            cell = row.get(self.name)
            empty = missing is not None and _is_empty(cell)
            found[at] = missing if empty and missing is not None else _number(cell)
        low = 0 if missing is None else missing
        wrong = ~(found >= low) | (found > most) | (found != np.floor(found))
        self._refuse(wrong, f"a whole number from 0 to {most}")
        return found.astype(np.int64)

    def names(self) -> Ints:
        """Return the ids of sequences as whole numbers; other texts are numbered in order."""
        cells = [row.get(self.name) for row in self.rows]
        numbers = np.array([_number(cell) for cell in cells])
        if ((numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < 1 << 53)).all():
            return numbers.astype(np.int64)
        known = dict[str, int]()
        return np.array([known.setdefault(str(cell), len(known)) for cell in cells], np.int64)

    def _refuse(self, wrong: NDArray[np.bool_], wanted: str) -> None:
        if wrong.any():
            at = int(np.argmax(wrong))
            cell = quote(self.rows[at].get(self.name))
            raise InputError(
                f"{self.source}, row {at + 1}: {shorten(self.name, 40)} is {cell}", wanted
            )


def _is_empty(cell: object) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and np.isnan(cell))


def _number(cell: object) -> float:
    """Return a cell as a number; NaN if it is not one."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return float("nan")
    try:
        return plain_float(cell) if isinstance(cell, str) else float(cell)
    except (ValueError, OverflowError):
        return float("nan")


def _rows_of(path: str) -> list[dict[str, Any]]:
    """Return the rows of a file (InputError: it has another suffix, or cannot be read)."""
    suffix = next((each for each in SUFFIXES if path.lower().endswith(each)), "")
    if not suffix:
        message = (
            f"not lengths: '{shorten(path, 80)}'; expected e.g. lengths.csv or lognormal:2048:1.2:7"
        )
        raise InputError(message, HINT)
    if suffix in (".jsonl", ".ndjson"):
        return list(_json_rows(path))
    return read_table(path, HINT, columns=_spellings())


def _spellings() -> set[str]:
    """Return all accepted spellings of columns."""
    words = {word for table in (COLUMNS, CP_COLUMNS) for names in table.values() for word in names}
    return {form for word in words for form in (word, word.upper(), word.capitalize())}


def _json_rows(path: str) -> Iterable[dict[str, Any]]:
    """Yield the objects of a file of JSON lines."""
    source, number = f"'{name_of(path)}'", 0
    meter, lines = Meter(source), Lines(read_bytes(path), source)
    try:
        for line in lines:
            lines.length, number = 0, number + 1
            if line.strip():
                meter.take(ROW + len(line))
                yield decode_row(line)
    except UnicodeDecodeError:
        raise InputError(f"{source} is not a text file", HINT) from None
    except ValueError as error:
        raise InputError(f"{source}, line {number}: {shorten(str(error))}", HINT) from None


def draw_factors(
    text: str, shares: Shares, law: Law | None, replica: int, steps: int, *, padded: bool
) -> Floats:
    """Return drawn factors of a replica's microbatches in many steps, shape (M, steps).

    A factor is relative to the mean time of a microbatch of this distribution, estimated from
    :data:`MEAN_OF` microbatches, the same for all replicas.
    """
    mean = float(
        _microbatch_times(text, shares.sequences, MEAN_OF, law, MOST_REPLICAS, 1, padded).mean()
    )
    if not mean > 0:
        raise InputError("no sequence takes any time", "tokens above 0, and a --law above 0")
    M = shares.microbatches
    _refuse_many(steps * M * shares.sequences // STEPS)
    return _microbatch_times(text, shares.sequences, M, law, replica, steps, padded) / mean


MEAN_OF = 100_000
STEPS = 4  # many steps may together draw this many times the maximum of one step


def _microbatch_times(
    text: str, each: int, microbatches: int, law: Law | None, replica: int, steps: int, padded: bool
) -> Floats:
    """Return drawn times of microbatches in many steps, shape (microbatches, steps)."""
    tokens = draw_tokens(text, microbatches * each, replica, steps)
    times = (law or Law()).times_of_sequences(tokens).reshape(steps, microbatches, each)
    found: Floats = times.max(axis=2) * each if padded else times.sum(axis=2)
    return np.ascontiguousarray(found.T)
