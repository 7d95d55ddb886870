"""The law of time by tokens, of sequences and of chunks of a prompt.

x tokens behind a prefix of L tokens take t(x, L) = C + G L + B x + A (2 L x + x^2): every token
attends to the prefix and to its sequence. A sequence has no prefix.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import shorten
from ppsim.errors import InputError

Floats = NDArray[np.float64]
LARGEST = 1e12
_NUMBER = re.compile(r"\s*(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\s*")


@dataclass(frozen=True)
class Law:
    """The time of tokens by their number, in the unit of the law."""

    chunk: float = 0.0  # C, of each sequence or chunk
    prefix: float = 0.0  # G, of each token before a chunk
    token: float = 1.0  # B, of each token
    pair: float = 0.0  # A, of each pair of tokens that attend

    def times(self, sizes: Sequence[int]) -> Floats:
        """Return the time of each chunk of a prompt, of ``sizes`` in tokens, shape (chunks,)."""
        size = np.asarray(sizes, np.float64)
        before = np.cumsum(size) - size
        pairs = 2 * before * size + size * size
        return np.asarray(
            self.chunk + self.prefix * before + self.token * size + self.pair * pairs, np.float64
        )

    def times_of_sequences(self, tokens: Floats) -> Floats:
        """Return the time of each sequence, of the shape of ``tokens``; 0 of one without tokens."""
        found = self.chunk + self.token * tokens + self.pair * tokens * tokens
        return np.where(tokens > 0, found, 0.0)

    def largest(self, before: int, time: float) -> float:
        """Return how many tokens behind a prefix take at most a time; infinite where tokens take
        none.
        """
        left = time - self.chunk - self.prefix * before
        linear = self.token + 2 * self.pair * before
        if left <= 0:
            return 0.0
        root = linear + math.sqrt(linear * linear + 4 * self.pair * left)
        return 2 * left / root if root > 0 else math.inf


def parse_law(text: str) -> Law:
    """Parse ``C,B,A`` or ``C,G,B,A``.

    Raises:
        InputError: not three or four numbers from 0, or tokens take no time by them.
    """
    parts = text.split(",")
    hint = (
        "C,B,A or C,G,B,A, numbers from 0: of each sequence or chunk, token of its prefix, token, "
        "pair of tokens"
    )
    if len(parts) not in (3, 4) or not all(map(_NUMBER.fullmatch, parts)):
        what = f"not a law: '{shorten(text, 40)}'; expected e.g. 0,1,0.0001 or 12,0.0002,0.07,4e-7"
        raise InputError(what, hint)
    numbers = [float(part) for part in parts]
    if max(numbers) > LARGEST:
        raise InputError(f"not a law: '{shorten(text, 40)}'; its numbers are too large", hint)
    chunk, *prefix, token, pair = numbers
    if not any((chunk, token, pair)):
        raise InputError(f"not a law: '{shorten(text, 40)}'; tokens take no time by it", hint)
    return Law(chunk, prefix[0] if prefix else 0.0, token, pair)
