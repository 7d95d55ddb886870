"""Factors of microbatches: how many times as long each takes, from numbers, a file, or a distribution.

Packed sequences, variable lengths and context parallelism make microbatches unequal. One text is ``1,1.3,0.8``, the
name of a file of such numbers, or ``lognormal:0.2:7`` (mean 1, spread 0.2, seed 7); with ``W=`` or ``FB=`` before it,
for those kinds of op alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ppsim.base.source import read_text
from ppsim.core.ops import COMPUTE
from ppsim.errors import InputError

DISTRIBUTIONS = ("uniform", "normal", "lognormal")
HINT = "1,1.3,0.8,... (one per microbatch), a file of numbers, or lognormal:SPREAD:SEED; W=... for a kind alone"
LETTERS = "".join(kind.name for kind in COMPUTE)


def parse_scale(texts: Sequence[str], n_microbatches: int, n_slices: int = 1) -> NDArray[np.float64]:
    """Shape (5, microbatches): the factor of every kind of op and microbatch; a later text overrides an earlier one.

    Where sequences are cut into slices, which count as microbatches, a factor for each slice is taken too.

    Raises:
        InputError: a text is none of these, or has another number of factors than there are microbatches.
    """
    scale = np.ones((len(COMPUTE), n_microbatches))
    for text in texts:
        named = re.fullmatch(rf"([{LETTERS}]+)=(.*)", text, re.DOTALL)
        rows = [LETTERS.index(letter) for letter in named[1]] if named else list(range(len(COMPUTE)))
        scale[rows] = _parse_row(named[2] if named else text, n_microbatches, n_slices)
    return scale


def _parse_row(text: str, n: int, n_slices: int) -> NDArray[np.float64]:
    name, _, rest = text.partition(":")
    if name in DISTRIBUTIONS:
        return _draw(name, rest, n, text)
    if not re.fullmatch(r"[0-9eE+.,\s-]+", text):
        text = read_text(text, HINT)
    try:
        factors = np.array([float(part) for part in re.split(r"[,\s]+", text.strip())])
    except ValueError:
        raise InputError(f"'{text[:40]}' is no list of factors of microbatches", HINT) from None
    if 1 < n_slices == len(factors):
        factors = np.tile(factors, n // n_slices)
    if len(factors) != n:
        sliced = f" of {n_slices} slices" if n_slices > 1 else ""
        raise InputError(
            f"{len(factors)} factors for {n // n_slices} microbatches{sliced}",
            f"one for each: {n}, or {n_slices}, one for each slice" if sliced else "one for each",
        )
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise InputError("a factor of a microbatch must be more than zero and finite", HINT)
    return factors


def _draw(name: str, rest: str, n: int, text: str) -> NDArray[np.float64]:
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)(?::([0-9]{1,9}))?", rest)
    spread = float(match[1]) if match else -1.0
    if match is None or not 0 <= spread < 1:
        raise InputError(f"'{text[:40]}' is no distribution of factors", f"{name}:SPREAD:SEED with a spread below 1")
    rng = np.random.default_rng(int(match[2] or 0))
    if name == "uniform":
        return rng.uniform(1 - spread, 1 + spread, n)
    if name == "normal":
        return np.maximum(rng.normal(1.0, spread, n), 0.01)
    sigma = np.sqrt(np.log1p(spread**2))
    return rng.lognormal(-(sigma**2) / 2, sigma, n)
