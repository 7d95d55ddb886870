"""Fit the time of a prompt's chunk to measurements: t(L, x) = c + gL + bx + a(2Lx + x^2).

x are the tokens of the chunk, L those of its prefix. A table (csv, parquet) has a row for each
chunk: its tokens, its time in ms, and the tokens of its prefix. Without a column for the prefix,
the rows are the chunks of one prompt in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ppsim.base.source import name_of
from ppsim.base.tables import read_table
from ppsim.base.text import quote, shorten
from ppsim.core.law import Law, parse_law
from ppsim.errors import InputError

Floats = NDArray[np.float64]
COLUMNS = {
    "tokens": ("tokens", "chunk", "chunk_size", "size", "num_tokens"),
    "prefix": ("prefix", "context", "history", "prefix_tokens"),
    "time": ("time", "time_ms", "ms", "latency_ms", "latency"),
}
HINT = "csv or parquet with columns tokens, time (ms) and perhaps prefix"
MOST_ROWS = 100_000
LARGEST = 1e12
TERMS = 4  # c, g, b, a
SIMPLER = 1e-9  # relative gain below which one more term is left out
SAME = 1e-12
RANK = 1e-7  # tolerance of the rank of columns whose largest number is 1


@dataclass(frozen=True)
class FittedLaw:
    """A law fitted to measured chunks."""

    numbers: tuple[float, float, float, float]  # c, g, b, a
    chunks: int  # number of measured chunks
    median_error: float  # relative error of a chunk's time
    worst_error: float


def is_law_file(text: str) -> bool:
    """Return whether the text of a law is the name of a file, not a list of numbers."""
    return text.lower().endswith((".csv", ".parquet"))


def read_law(text: str) -> tuple[Law, FittedLaw | None]:
    """Return the law with the numbers in a text, or the law fitted to the table it names.

    The second value describes the fit, None for numbers.

    Raises:
        InputError: the text is neither numbers nor a table that determines the law.
    """
    if not is_law_file(text):
        return parse_law(text), None
    fitted = fit_law(text)
    return Law(*fitted.numbers), fitted


def fit_law(path: str) -> FittedLaw:
    """Return the law without negative terms that has the least squared relative error over a
    table's chunks.

    Raises:
        InputError: the table cannot be read, has no times, or has too few sizes of chunks to
            separate the terms.
    """
    tokens, prefix, time = _read_chunks(path)
    terms = (
        np.stack([np.ones_like(tokens), prefix, tokens, 2 * prefix * tokens + tokens**2], axis=1)
        / time[:, None]
    )
    known = terms.max(axis=0) > 0
    scale = np.where(known, terms.max(axis=0), 1.0)
    if np.linalg.matrix_rank((terms / scale)[:, known], tol=RANK) < known.sum():
        raise InputError(
            f"'{name_of(path)}' has too few sizes of chunks or prefixes to fit the law",
            "chunks of three sizes or more, each after prefixes of several lengths",
        )
    numbers = _least_squares(terms / scale) / scale
    error = np.abs(terms @ numbers - 1)
    c, g, b, a = numbers.tolist()
    return FittedLaw((c, g, b, a), len(tokens), float(np.median(error)), float(error.max()))


def _least_squares(terms: Floats) -> Floats:
    """Return the numbers from 0 with which the rows of ``terms`` are closest to 1.

    Of equally good numbers, those with the fewest terms are returned.
    """
    best, least = np.zeros(TERMS), float(len(terms))
    for count in range(1, TERMS + 1):
        for chosen in map(list, combinations(range(TERMS), count)):
            found, *_ = np.linalg.lstsq(terms[:, chosen], np.ones(len(terms)), rcond=None)
            if (found < 0).any():
                continue
            off = float(((terms[:, chosen] @ found - 1) ** 2).sum())
            if off < least * (1 - SIMPLER) - SAME:
                best, least = np.zeros(TERMS), off
                best[chosen] = found
    return best


def _read_chunks(path: str) -> tuple[Floats, Floats, Floats]:
    """Return the tokens, the prefix and the time in ms of each chunk.

    Raises:
        InputError: a column is missing, or a cell is not a number.
    """
    source = f"'{name_of(path)}'"
    spelled = {
        form
        for words in COLUMNS.values()
        for word in words
        for form in (word, word.upper(), word.capitalize())
    }
    rows = read_table(path, HINT, columns=spelled)
    if not rows:
        raise InputError(f"{source} has no rows", HINT)
    if len(rows) > MOST_ROWS:
        raise InputError(
            f"{source} has {len(rows):,} rows, more than the maximum of {MOST_ROWS:,}", "fewer"
        )
    plain = {str(name).strip().lower(): name for name in rows[0]}
    found = {
        ours: plain[next(word for word in words if word in plain)]
        for ours, words in COLUMNS.items()
        if any(word in plain for word in words)
    }
    for needed in ("tokens", "time"):
        if needed not in found:
            raise InputError(f"{source} has no column of {needed}", HINT)

    def numbers(name: str, least: float) -> Floats:
        values = np.empty(len(rows))
        for at, row in enumerate(rows):
            cell = row.get(found[name])
            try:
                values[at] = float(cell) if isinstance(cell, str | int | float) else np.nan
            except ValueError:
                values[at] = np.nan
            if not least <= values[at] <= LARGEST:
                message = f"{source}, row {at + 1}: {shorten(found[name], 40)} is {quote(cell)}"
                raise InputError(message, f"a number from {least:g} to {LARGEST:g}")
        return values

    tokens, time = numbers("tokens", 1.0), numbers("time", 1e-9)
    return tokens, numbers("prefix", 0.0) if "prefix" in found else np.cumsum(tokens) - tokens, time
