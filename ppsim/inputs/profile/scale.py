"""Factors on the times of microbatches, and of the slices of a sequence.

Packed sequences, variable lengths and context parallelism make microbatches unequal. A text is
``1,1.3,0.8``, the name of a file of such numbers, or ``lognormal:0.2:7`` (mean 1, spread 0.2, seed
7); the prefix ``W=`` or ``FB=`` limits it to these kinds of op. Later slices of a sequence attend
to more tokens, so they take longer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ppsim.base.numbers import plain_float
from ppsim.base.source import name_of, read_text
from ppsim.base.unpack.limits import OBJECTS, Meter
from ppsim.core.ops import COMPUTE, LETTERS, Kind
from ppsim.errors import InputError

FACTOR = 100  # bytes of memory per factor while a file is read
SEPARATORS = ", \n\t\r"
DISTRIBUTIONS = ("uniform", "normal", "lognormal")
ATTENTION = "attention"
HINT = (
    "1,1.3,0.8,... (one per microbatch), a file of numbers, or lognormal:SPREAD:SEED; W=... for "
    "a kind alone"
)
SLICE_HINT = (
    "0.7,0.9,1.1,1.3 (one per slice), a file of them, or attention:SHARE, its share of a "
    "forward's time"
)


def parse_scale(
    texts: Sequence[str],
    n_microbatches: int,
    n_slices: int = 1,
    replica: int = 0,
    *,
    cycles: bool = False,
) -> NDArray[np.float64]:
    """Return the factor of each kind of compute op and microbatch, shape (kinds, microbatches).

    A later text overrides an earlier one. If sequences are cut into slices, ``n_microbatches``
    counts the slices; a text then has a factor for each microbatch, which all its slices get, or
    one for each slice. Every data-parallel ``replica`` draws different factors from a distribution;
    listed numbers are the same for all. With ``cycles`` a shorter list is repeated.

    Raises:
        InputError: a text is not valid, or has another number of factors than there are
            microbatches.
    """
    scale = np.ones((len(COMPUTE), n_microbatches))
    whole = n_microbatches // n_slices
    for text in texts:
        rows, rest = _rows_of(text)
        factors = _parse_row(rest, whole, HINT, replica)
        if cycles and len(factors) < whole:
            factors = np.resize(factors, whole)
        if len(factors) not in (whole, n_microbatches):
            sliced = f" of {n_slices} slices" if n_slices > 1 else ""
            each = (
                f": {whole}, or {n_microbatches} with one for every slice; --slice-scale for "
                f"the {n_slices} of each"
            )
            raise InputError(
                f"{len(factors)} factors for {whole} microbatches{sliced}",
                f"one for each{each if sliced else ''}",
            )
        scale[rows] = np.repeat(factors, n_microbatches // len(factors))
    return scale


def parse_slice_scale(
    texts: Sequence[str], n_slices: int, share: float | None = None
) -> NDArray[np.float64]:
    """Return the factor of each kind of compute op and slice of a sequence, shape (kinds, slices).

    A later text overrides an earlier one. ``attention:A`` states that attention is a share A of a
    forward's time over the whole sequence. Slice k of K attends to the slices before it and to half
    of itself, so its attention takes (2k + 1)/K times the mean. In a backward everything takes
    twice as long, and all attention is in I: its share of I is 2A/(1 + A), and of W zero.

    Args:
        texts: factors, one for each slice, a file of factors, or ``attention:A``; a prefix such as
            ``W=`` limits them to these kinds of op.
        n_slices: K.
        share: A for a text that is only ``attention``.

    Raises:
        InputError: a text is not valid, or has another number of factors than there are slices.
    """
    scale, length = np.ones((len(COMPUTE), n_slices)), (2 * np.arange(n_slices) + 1) / n_slices
    for text in texts:
        rows, rest = _rows_of(text)
        if not rest.startswith(ATTENTION):
            factors = _parse_row(rest, n_slices, SLICE_HINT)
            if len(factors) != n_slices:
                raise InputError(
                    f"{len(factors)} factors for {n_slices} slices of a sequence", SLICE_HINT
                )
            scale[rows] = factors
            continue
        match = re.fullmatch(r"attention(?::([0-9]*\.?[0-9]+)(%?))?", rest)
        part = (
            share
            if match and not match[1]
            else float(match[1]) / (100 if match[2] else 1)
            if match
            else -1.0
        )
        if part is None or not 0 <= part <= 1:
            message = (
                "the share of attention in a forward's time is not known"
                if part is None
                else f"not a share of attention: '{text[:40]}'"
            )
            raise InputError(message, SLICE_HINT)
        shares = {Kind.I: 2 * part / (1 + part), Kind.W: 0.0}
        for row in rows:
            scale[row] = 1 + shares.get(Kind(row), part) * (length - 1)
    return scale


def is_drawn(text: str) -> bool:
    """Return whether factors are drawn from a distribution."""
    return _rows_of(text)[1].partition(":")[0] in DISTRIBUTIONS


def names_file(text: str) -> bool:
    """Return whether a text is the name of a file of factors."""
    return _is_path(_rows_of(text)[1])


def _is_path(text: str) -> bool:
    known = (*DISTRIBUTIONS, ATTENTION)
    return text.partition(":")[0] not in known and not re.fullmatch(r"[0-9eE+.,\s-]+", text)


def _rows_of(text: str) -> tuple[list[int], str]:
    """Return the kinds of op in a text's prefix (all kinds without one), and the rest."""
    named = re.fullmatch(rf"([{LETTERS}]+)=(.*)", text, re.DOTALL)
    return (
        ([LETTERS.index(letter) for letter in named[1]], named[2])
        if named
        else (list(range(len(COMPUTE))), text)
    )


def _parse_row(text: str, n: int, hint: str, replica: int = 0) -> NDArray[np.float64]:
    """Return the factors in a text or file, or n factors drawn for a replica."""
    name, _, rest = text.partition(":")
    if name in DISTRIBUTIONS:
        return _draw(name, rest, n, text, replica)
    named = f"'{name_of(text)}'"
    if _is_path(text):
        text = read_text(text, hint)
        Meter(named, OBJECTS).take(FACTOR * sum(map(text.count, SEPARATORS)))
    try:
        factors = np.array([plain_float(part) for part in re.split(r"[,\s]+", text.strip())])
    except ValueError:
        # the message must not show the content of the file
        raise InputError(f"not a list of factors: {named}", hint) from None
    if not (np.isfinite(factors) & (factors >= 0)).all():
        raise InputError("a factor must be zero or more and finite", hint)
    return factors


def _draw(name: str, rest: str, n: int, text: str, replica: int) -> NDArray[np.float64]:
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)(?::([0-9]{1,9}))?", rest)
    spread = float(match[1]) if match else -1.0
    if match is None or not 0 <= spread < 1:
        raise InputError(
            f"not a distribution of factors: '{text[:40]}'",
            f"{name}:SPREAD:SEED with a spread below 1",
        )
    seed = int(match[2] or 0)
    rng = np.random.default_rng((seed, replica) if replica else seed)
    if name == "uniform":
        return rng.uniform(1 - spread, 1 + spread, n)
    if name == "normal":
        return np.maximum(rng.normal(1.0, spread, n), 0.01)
    sigma = np.sqrt(np.log1p(spread**2))
    return rng.lognormal(-(sigma**2) / 2, sigma, n)
