"""Limits on the size of files, packed, unpacked and in memory, all from one setting.

A file may have 256 MiB, or the environment's ``PPSIM_MAX_SIZE``, packed and unpacked. In memory,
the cells of a table may take 2 times that size, the objects of JSON 6 times; all files of one run
together may have 4 times that size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ppsim.base.units import format_size, parse_size
from ppsim.errors import InputError

LARGEST = 256 << 20
VARIABLE = "PPSIM_MAX_SIZE"
CELLS, OBJECTS, FILES, WIDE_TEXT = 2, 6, 4, 2  # times the size

_most: ContextVar[int | None] = ContextVar("most", default=None)


@contextmanager
def read_at_most(size: int) -> Iterator[None]:
    """Limit files to ``size`` bytes during the block, whatever the environment sets."""
    token = _most.set(size)
    try:
        yield
    finally:
        _most.reset(token)


def size_limit(largest: int = LARGEST) -> int:
    """Return the limit of a file's size in bytes: the environment's, or else ``largest``.

    Raises:
        InputError: the environment's value is not a size.
    """
    given, most = os.environ.get(VARIABLE, ""), _most.get()
    try:
        found = parse_size(given)[0] if given else largest
    except InputError as error:
        raise InputError(f"{VARIABLE}: {error}", error.hint) from None
    return found if most is None else min(found, most)


def too_large(name: str, largest: int, size: int = 0, times: int = 1) -> InputError:
    """Return the error for a file beyond a limit; its hint has a sufficient setting.

    Args:
        name: the file, and the part of it that is too large.
        largest: the limit in bytes.
        size: size in bytes; if it is not known, the hint is 4 times the present setting.
        times: the ratio of the limit to the setting.
    """
    message = f"{name} is larger than {format_size(largest)}"
    if _most.get() is not None:
        return InputError(message, "ppsim run in a terminal accepts more")
    wanted = max(-(-size // times), 4 * (largest // times) or LARGEST)
    more = 1 << (wanted - 1).bit_length()
    setting = f"{VARIABLE}={format_size(more).replace(' ', '')}"
    return InputError(message, f"{setting} in the environment raises the limit")


class Meter:
    """Counts the memory for one file, or for the files of one run.

    Attributes:
        name: of the file, for messages.
        times: the ratio of the limit to the largest size of a file.
        most: the limit in bytes.
        taken: bytes counted so far.
    """

    def __init__(self, name: str, times: int = CELLS) -> None:
        self.name, self.times = name, times
        self.most, self.taken = times * size_limit(), 0

    def take(self, size: int) -> None:
        """Count bytes before they are allocated (InputError: the limit is exceeded)."""
        self.taken += size
        if self.taken > self.most:
            raise too_large(f"{self.name}, in memory,", self.most, self.taken, self.times)
