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

UNDECIDED = 4


class PpsimError(Exception):
    """An error that the user can understand and correct.

    Attributes:
        exit_code: of the command line.
        hint: a suggestion in one line, or empty.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


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
