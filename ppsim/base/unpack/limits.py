"""Limits on the size of files, packed, unpacked and in memory; all follow from one setting.

The size is 256 MiB, or ``PPSIM_MAX_SIZE`` of the environment: the bytes of a file, packed and
unpacked. The cells of a table take at most 2 times that size in memory, the objects of JSON 6
times; all files of one run together have at most 4 times that size.
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
    """Return the error for a file beyond a limit; its hint has the setting that would admit it.

    Args:
        name: the file, and its part that is too large.
        largest: the limit in bytes.
        size: of the file in bytes where it is known; else the setting is 4 times the present one.
        times: the limit over the size that the environment sets.
    """
    what = f"{name} is larger than {format_size(largest)}"
    if _most.get() is not None:
        return InputError(what, "ppsim run in a terminal takes more")
    wanted = max(-(-size // times), 4 * (largest // times) or LARGEST)
    more = 1 << (wanted - 1).bit_length()
    setting = f"{VARIABLE}={format_size(more).replace(' ', '')}"
    return InputError(what, f"{setting} in the environment raises the limit")


class Meter:
    """Counts the memory that is taken for one file, or for the files of one run.

    Attributes:
        name: of the file, for messages.
        times: the limit over the size that a file may have.
        most: the limit in bytes.
        taken: bytes so far.
    """

    def __init__(self, name: str, times: int = CELLS) -> None:
        self.name, self.times = name, times
        self.most, self.taken = times * size_limit(), 0

    def take(self, size: int) -> None:
        """Count bytes before they are taken (InputError: they are too many)."""
        self.taken += size
        if self.taken > self.most:
            raise too_large(f"{self.name}, in memory,", self.most, self.taken, self.times)
