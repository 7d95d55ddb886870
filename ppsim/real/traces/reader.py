"""The interface of a reader of real runs."""

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
    """One file, unpacked if it was gzipped."""

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
        files: the files of the reader's format by path, in the order of the numbers in their names.
        others: all other files that the user named or that are in the folder, by path.
        schedule: the name of the wanted run, or the number of the wanted replica, or ''.
        unit: the unit of times as the user states it, or ''.
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
        name: the format's name in JSON.
        title: the format's name in the summary of ``ppsim read``.
        expects: the format's files, for the hint of a message.
        place: rank of the reader; readers are tried, and named in hints, in this order.
        matches: returns whether a file is of this format.
        read: returns the run (InputError: the files are not a run).
        suffixes: suffixes of file names to look for in a folder, without ``.gz``.
        takes_unit: whether files may leave out the unit of times.
        resembles: returns whether a file that does not match is by the same tool; ``read`` then
            explains why it is not a run.
        uses: returns whether the run needs a file of another format, such as its settings.
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
    uses: Callable[[TraceFile], bool] = lambda file: False
