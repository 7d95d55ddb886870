"""The interface of a reader of real runs, and the files that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ppsim.base.source import name_of
from ppsim.base.unpack.texts import decode_text

if TYPE_CHECKING:
    from ppsim.real.traces.run import RealRun


@dataclass(frozen=True)
class TraceFile:
    """One file, unpacked where it was gzipped."""

    path: str
    data: bytes

    @cached_property
    def is_text(self) -> bool:
        """Whether the file is UTF-8 text."""
        try:
            self.text  # noqa: B018
        except UnicodeDecodeError:
            return False
        return True

    @cached_property
    def text(self) -> str:
        """The content as text (UnicodeDecodeError: it is not UTF-8)."""
        return decode_text(self.data, f"'{name_of(self.path)}'")

    def shows(self, *words: str) -> bool:
        """Return whether the file is text that contains all of these words."""
        return self.is_text and all(word in self.text for word in words)


@dataclass(frozen=True)
class RunFiles:
    """The files of one run, and the user's options for them.

    Attributes:
        source: the name of the files in messages.
        files: the files of the reader's format, by path; a folder's in the order of their numbers.
        others: all other files that were named or lie in the folder, by path.
        schedule: which run of several is wanted; empty where the user names none.
        unit: the unit of times; empty where the user states none.
    """

    source: str
    files: Mapping[str, TraceFile]
    others: Mapping[str, TraceFile]
    schedule: str = ""
    unit: str = ""

    @property
    def texts(self) -> dict[str, str]:
        """The text of each file of the format, by path."""
        return {path: file.text for path, file in self.files.items()}


@dataclass(frozen=True)
class Reader:
    """One format of real runs.

    Attributes:
        name: the format in JSON.
        title: its files in the summary of ``ppsim read``.
        expects: its files in the hint of a message.
        place: readers are asked in this order, and hints name them in it.
        matches: tells whether a file is of this format.
        read: reads the run, or raises InputError.
        suffixes: the ends of file names that a folder is searched for, without ``.gz``.
        takes_unit: whether its files may leave out the unit of times.
        resembles: tells whether a file that does not match was written by the same tool, so that
            ``read`` says why it shows no run.
    """

    name: str
    title: str
    expects: str
    place: int
    matches: Callable[[TraceFile], bool]
    read: Callable[[RunFiles], RealRun]
    suffixes: tuple[str, ...] = (".json",)
    takes_unit: bool = False
    resembles: Callable[[TraceFile], bool] = lambda file: False
