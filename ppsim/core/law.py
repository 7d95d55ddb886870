"""The law of the time of a sequence, or of a chunk of a prompt, by its tokens.

x tokens after a prefix of L tokens take t(x, L) = C + G L + B x + A (2 L x + x^2), as every token
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
    """The four coefficients of the law, in its unit of time."""

    chunk: float = 0.0  # C, per sequence or chunk
    prefix: float = 0.0  # G, per token before a chunk
    token: float = 1.0  # B, per token
    pair: float = 0.0  # A, per pair of tokens of which one attends to the other

    def times(self, sizes: Sequence[int]) -> Floats:
        """Return the times of a prompt's chunks of ``sizes`` tokens, shape (chunks,)."""
        size = np.asarray(sizes, np.float64)
        before = np.cumsum(size) - size
        pairs = 2 * before * size + size * size
        return np.asarray(
            self.chunk + self.prefix * before + self.token * size + self.pair * pairs, np.float64
        )

    def times_of_sequences(self, tokens: Floats) -> Floats:
        """Return the times of sequences, in the shape of ``tokens``; 0 for no tokens."""
        found = self.chunk + self.token * tokens + self.pair * tokens * tokens
        return np.where(tokens > 0, found, 0.0)

    def largest(self, before: int, time: float) -> float:
        """Return the largest number of tokens after a prefix that take at most ``time``.

        It is infinite if tokens take no time.
        """
        left = time - self.chunk - self.prefix * before
        linear = self.token + 2 * self.pair * before
        if left <= 0:
            return 0.0
        root = linear + math.sqrt(linear * linear + 4 * self.pair * left)
        return 2 * left / root if root > 0 else math.inf


def parse_law(text: str) -> Law:
    """Return the law in ``C,B,A`` or ``C,G,B,A``.

    Raises:
        InputError: the text is not three or four numbers from 0, or tokens would take no time.
    """
    parts = text.split(",")
    hint = (
        "C,B,A or C,G,B,A, numbers from 0: of each sequence or chunk, token of its prefix, token, "
        "pair of tokens"
    )
    if len(parts) not in (3, 4) or not all(map(_NUMBER.fullmatch, parts)):
        raise InputError(
            f"not a law: '{shorten(text, 40)}'; expected e.g. 0,1,0.0001 or 12,0.0002,0.07,4e-7",
            hint,
        )
    numbers = [float(part) for part in parts]
    if max(numbers) > LARGEST:
        raise InputError(f"not a law: '{shorten(text, 40)}'; its numbers are too large", hint)
    chunk, *prefix, token, pair = numbers
    if not any((chunk, token, pair)):
        raise InputError(f"not a law: '{shorten(text, 40)}'; tokens would take no time", hint)
    return Law(chunk, prefix[0] if prefix else 0.0, token, pair)
