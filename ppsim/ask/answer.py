"""The base of answers: numbers, tables, sentences and figures, each shown and written one way."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ppsim.ask.blocks import Block, Line
from ppsim.ask.given import TypedOptions
from ppsim.ask.groups import output_of
from ppsim.ask.options import Request, flatten
from ppsim.ask.terminal import text_of
from ppsim.ask.write import Writers, write_with
from ppsim.errors import PpsimError

if TYPE_CHECKING:
    from ppsim.core.timeline import Timeline
    from ppsim.show.drawing.card_bars import Bars
    from ppsim.show.drawing.card_queues import Queues

Asked = TypeVar("Asked", bound=Request, covariant=True)


@dataclass(frozen=True)
class Answer(ABC, Generic[Asked]):
    """The base of all answers."""

    request: Asked  # the question with its options

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep the short repr in dataclasses, which would print all arrays of an answer."""
        super().__init_subclass__(**options)
        cls.__repr__ = Answer.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Return the class and the verdict in one line, for Python's prompt."""
        return f"<{type(self).__name__}: {self.verdict}>"

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The answer in one sentence; it comes first in terminals, pages, cards and JSON."""

    @property
    def tone(self) -> str:
        """The tone of the verdict in a terminal, of ``ppsim.ask.terminal.TONES``."""
        return "name" if self.passed else "fault"

    @abstractmethod
    def json_object(self) -> dict[str, Any]:
        """Return the numbers that ``--json`` prints; lists of numbers may be arrays."""

    def whole_object(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints: the schema, the verdict, then the numbers."""
        from ppsim.base.json_output import with_verdict

        return with_verdict(self.json_object(), self.verdict)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints, as dicts, lists, numbers and texts."""
        from ppsim.base.json_output import dump_json

        found: dict[str, Any] = json.loads(dump_json(self.whole_object()))
        return found

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the blocks that a terminal shows below the verdict."""

    def line(self) -> Iterator[Block]:
        """Yield the result line of ``--quiet``: the verdict, unless there is a shorter one."""
        yield self.headline

    @property
    def headline(self) -> Line:
        """The verdict as a line of a terminal."""
        return Line([(self.verdict, self.tone)])

    def all_blocks(self) -> Iterator[Block]:
        """Yield all blocks of a terminal, the verdict first."""
        yield self.headline
        yield from self.blocks()

    def writers(self, output: Any) -> Writers:
        """Return the writer of each -o."""
        raise PpsimError(f"{self.request.question} writes no files")

    def notes(self) -> Iterator[str]:
        """Sentences printed after the answer, on standard error."""
        return iter(())

    def error_after_output(self) -> PpsimError | None:
        """Return the error that ends a command after its answer, e.g. a run that does not fit;
        None if there is none.
        """
        return None

    @property
    def is_irreplaceable(self) -> bool:
        """True if measurements of the answer cannot be repeated: it is printed even if a file
        cannot be written.
        """
        return False

    @property
    def passed(self) -> bool:
        """False makes the command exit with 1."""
        return True

    @property
    def exit_code(self) -> int:
        """The exit code of a command after its answer: 0, or 1 if it did not pass."""
        return int(not self.passed)

    @property
    def typed_options(self) -> TypedOptions:
        """The options that the user gave."""
        return TypedOptions.from_request(self.request)

    def save(self, *paths: str, **look: Any) -> Self:
        """Write files by their suffix; ``look`` are options of figures, e.g. ``palette="zb"``.

        Raises:
            InputError: a suffix or an option is unknown, or a path cannot be written.
        """
        with write_with(self.writers(self._look(look | {"output": paths}))):
            return self

    def _look(self, options: dict[str, Any]) -> Any:
        """Return the request's options of output with some replaced."""
        from ppsim.ask.request import ask_with

        values = flatten(output_of(self.request))
        given = {name: value for name, value in values.items() if name in self.request.given}
        asked = ask_with(type(self.request), given, options, check=False)
        return output_of(asked)

    def __str__(self) -> str:
        """Return the answer as a terminal shows it, without colours."""
        return text_of(self.all_blocks())

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """Return the timelines of a notebook's card, each with its title."""
        return ()

    def bars(self) -> Bars | None:
        """Return the bars of a notebook's card, for an answer without timeline; None for none."""
        return None

    def queues(self) -> Queues | None:
        """Return the queues of a notebook's card, for a file; None for none."""
        return None

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows."""
        from ppsim.ask.card import card_html

        return card_html(self.verdict, self.charts(), self.blocks(), self.bars(), self.queues())
