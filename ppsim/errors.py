"""Errors that a user can cause, each with an exit code, a message, a place and a hint.

PpsimError (1: the answer is no)
├── InvalidSchedule (1)
│   └── Deadlock (1)
├── InputError (2: bad usage or unreadable input)
│   └── UnknownSchedule (2)
└── MissingDependency (3: this environment lacks something)

An answer that measurements do not decide is not an error: a command exits with 4 then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

UNDECIDED = 4


class PpsimError(Exception):
    """An error that the user can understand and correct.

    Attributes:
        exit_code: of the command line.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | Callable[[], str] = "") -> None:
        super().__init__(message)
        self._hint = hint

    @property
    def hint(self) -> str:
        """A suggestion in one line, or empty; one that takes long to find is found when it is
        asked for.
        """
        if not isinstance(self._hint, str):
            self._hint = self._hint()
        return self._hint

    @hint.setter
    def hint(self, text: str) -> None:
        self._hint = text

    @property
    def __notes__(self) -> list[str]:
        """The suggestion, which a traceback of Python shows below the message."""
        if not hasattr(self, "_notes"):
            self._notes = [f"  try: {self.hint}"] if self.hint else []
        return self._notes

    @__notes__.setter
    def __notes__(self, notes: list[str]) -> None:
        """Take the notes of the same error in another process."""
        self._notes = notes

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Find the suggestion before the error goes to another process."""
        self._hint = self.hint
        return super().__reduce__()


class InvalidSchedule(PpsimError):
    """A schedule that loses an op, runs one twice or places one where it cannot run."""


class Deadlock(InvalidSchedule):
    """A schedule that cannot finish; the message holds the cycle of waits."""


class InputError(PpsimError):
    """An argument, a shape or a file that cannot be used as given."""

    exit_code = 2


class UnknownSchedule(InputError):
    """A name that no schedule has."""


class UnknownFormat(InputError):
    """A file of no format that a schedule can have."""


class MissingDependency(PpsimError):
    """Torch, a GPU or another optional part is not there."""

    exit_code = 3
