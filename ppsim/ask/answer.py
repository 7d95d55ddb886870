"""Answers of questions: numbers, tables, sentences and figures, shown and written in one way each."""

from __future__ import annotations

import contextlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from ppsim.ask.blocks import Block
from ppsim.ask.given import Given
from ppsim.ask.groups import output_of
from ppsim.ask.options import Request, flatten
from ppsim.ask.request import ask
from ppsim.ask.terminal import show
from ppsim.ask.write import Writers, write_with
from ppsim.errors import PpsimError

Asked = TypeVar("Asked", bound=Request, covariant=True)


@dataclass(frozen=True)
class Answer(ABC, Generic[Asked]):
    """The base of all answers."""

    request: Asked  # what was asked

    @abstractmethod
    def json_object(self) -> dict[str, Any]:
        """The object that ``--json`` prints; its columns may be arrays."""

    def to_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints, as dicts, lists, numbers and texts."""
        from ppsim.base.json_output import dump_json

        found: dict[str, Any] = json.loads(dump_json(self.json_object()))
        return found

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """What a terminal shows."""

    def line(self) -> Iterator[Block]:
        """The result alone, which ``--quiet`` prints."""
        return self.blocks()

    def writers(self, output: Any) -> Writers:
        """Each file asked for, with the function that writes it."""
        raise PpsimError(f"{self.request.question} writes no files")

    def notes(self) -> Iterator[str]:
        """Sentences printed after the answer, on standard error."""
        return iter(())

    def failure(self) -> PpsimError | None:
        """The error that ends a command after its answer, such as what does not fit."""
        return None

    @property
    def measured(self) -> bool:
        """Whether it took measurements that cannot be had again."""
        return False

    @property
    def passed(self) -> bool:
        """Whether the answer is no refusal."""
        return True

    @property
    def exit_code(self) -> int:
        """What a command exits with after its answer: 0, or 1 where the answer is no."""
        return int(not self.passed)

    @property
    def given(self) -> Given:
        """The options that the user gave."""
        return Given.of(self.request)

    def save(self, *paths: str, **look: Any) -> Self:
        """Write files by their suffix; ``look`` is as the options of figures, such as ``palette="zb"``.

        Raises:
            InputError: an unknown suffix or option, or a path that cannot be written.
        """
        with write_with(self.writers(self._look(look | {"output": paths}))):
            return self

    def _look(self, options: dict[str, Any]) -> Any:
        """Take the request's options of figures, and change some."""
        own = flatten(output_of(self.request))
        given = {name: value for name, value in own.items() if name in self.request.given}
        return ask(type(self.request), given | options, check=False).output  # type: ignore[attr-defined]

    def __str__(self) -> str:
        """What a terminal shows, without colours."""
        with contextlib.redirect_stdout(io.StringIO()) as text:
            show(self.blocks())
        return text.getvalue()
