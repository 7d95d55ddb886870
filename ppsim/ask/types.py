"""Parameter types: numbers, counts, shares and names of schedules as users type them."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ppsim.base.numbers import plain_float, plain_int
from ppsim.base.text import quote, shorten
from ppsim.errors import InputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Texts that Python may also give as a number or as a list; signatures show the types.
NumberText: TypeAlias = str
NumberTexts: TypeAlias = str
Names: TypeAlias = str
Offload: TypeAlias = str

MOST_COUNTS = 10_000
LARGE = 1e15  # a bound from here on only keeps numbers exact
RANGE = re.compile(r"(N)(?::(N)(?::(x?)(N))?)?".replace("N", "0*[1-9][0-9]{0,8}"))
TIMED = re.compile(r"([0-9][0-9.,*e]{0,40}) ?(s|ms|us|ns)")  # a time with its unit
REPEATED = re.compile(r"0*[1-9][0-9]{0,3}")


@dataclass(frozen=True)
class Bounds:
    """The bounds of a range of numbers.

    Attributes:
        low: the smallest number, or None.
        high: the largest number, or None.
        low_open: whether ``low`` is outside the range.
        high_open: whether ``high`` is outside the range.
    """

    low: float | None
    high: float | None
    low_open: bool
    high_open: bool

    @property
    def without_large(self) -> Bounds:
        """The bounds without a largest number that no user comes near."""
        return replace(self, high=None) if self.high and self.high >= LARGE else self

    def contains(self, number: float) -> bool:
        """Return True unless a number is outside the range."""
        is_low = self.low is not None and (
            number < self.low or (self.low_open and number == self.low)
        )
        is_high = self.high is not None and (
            number > self.high or (self.high_open and number == self.high)
        )
        return not is_low and not is_high

    @property
    def formula(self) -> str:
        """The range as the help shows it, such as 1<=x<=4; empty without bounds."""
        low, high = ("<" if is_open else "<=" for is_open in (self.low_open, self.high_open))
        if self.low is None:
            return "" if self.high is None else f"x{high}{self.high}"
        if self.high is None:
            return f"x{low.replace('<', '>')}{self.low}"
        return f"{self.low}{low}x{high}{self.high}"

    @property
    def words(self) -> str:
        """The range in words that follow a noun, such as 'from 1 to 4' or 'above 0'."""
        if self.low is not None and self.high is not None and not self.low_open | self.high_open:
            return f"from {self.low:.16g} to {self.high:.16g}"
        said = []
        if self.low is not None:
            said.append(f"{'above' if self.low_open else 'of at least'} {self.low:.16g}")
        if self.high is not None:
            said.append(f"{'below' if self.high_open else 'of at most'} {self.high:.16g}")
        return " and ".join(said)

    def example(self, usual: float) -> str:
        """Return a number of the range: the usual one, if it is in the range."""
        low, high = self.low or 0, self.high or 0
        middle = type(usual)((low + high) / 2)
        found = next((each for each in (usual, middle, low, high) if self.contains(each)), usual)
        return f"{found:.16g}"

    def refusal(self, noun: str, value: object, number: float, usual: float) -> str:
        """Return the sentence that refuses a number outside the range; empty for one in it."""
        if self.contains(number):
            return ""
        near = self.without_large
        shown = self if near.contains(number) else near
        return f"not a {noun} {shown.words}: '{_shown(value)}'; expected e.g. {near.example(usual)}"


def _bounds_of(kind: click.IntRange | click.FloatRange) -> Bounds:
    """Return the bounds of a type of click."""
    return Bounds(kind.min, kind.max, kind.min_open, kind.max_open)


def _usual(param: click.Parameter | None, otherwise: float) -> float:
    """Return a usual number of an option: its default, or ``otherwise`` if it has none."""
    default = param.default if param else None
    if isinstance(default, int | float) and not isinstance(default, bool):
        return default
    return otherwise


class Whole(click.types.IntParamType):
    """A whole number, in ASCII digits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return plain_int(value) if isinstance(value, str) else int(value)
        except (TypeError, ValueError, OverflowError):
            example = f"{_usual(param, 4):.16g}"
            self.fail(f"not a whole number: '{_shown(value)}'; expected e.g. {example}", param, ctx)


class OneNumber(click.types.FloatParamType):
    """A number, in ASCII digits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return plain_float(value) if isinstance(value, str) else float(value)
        except (TypeError, ValueError, OverflowError):
            example = _example(value, f"{_usual(param, 1.5):.16g}")
            self.fail(f"not a number: '{_shown(value)}'; expected e.g. {example}", param, ctx)


class WholeRange(click.IntRange, Whole):
    """A whole number of a range, in ASCII digits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = Whole.convert(self, value, param, ctx)
        if refusal := _bounds_of(self).refusal("whole number", value, number, _usual(param, 4)):
            self.fail(refusal, param, ctx)
        return number

    def _describe_range(self) -> str:
        """Return the range for click's help."""
        return _bounds_of(self).without_large.formula


class NumberRange(click.FloatRange, OneNumber):
    """A number of a range, in ASCII digits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = OneNumber.convert(self, value, param, ctx)
        if refusal := _bounds_of(self).refusal("number", value, number, _usual(param, 1.5)):
            self.fail(refusal, param, ctx)
        return number

    def _describe_range(self) -> str:
        """Return the range for click's help."""
        return _bounds_of(self).without_large.formula


class Words(click.Choice[str]):
    """A word of a choice."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            words = [str(word) for word in self.choices]
            expected = " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
            self.fail(f"not a choice: '{_shown(value)}'; expected {expected}", param, ctx)


COUNT = WholeRange(min=1)


def _example(value: object, plain: str) -> str:
    """Return an example instead of a refused number: its digits, if it is a time with a unit."""
    found = TIMED.fullmatch(value) if isinstance(value, str) else None
    return f"{found[1]} with --unit {found[2]}" if found else plain


def own_type(kind: Any) -> Any:
    """Return the type that refuses values as ppsim does, in place of click's; others as they are.

    Numbers are in ASCII digits: what only Python reads as one, such as 1_0, is refused.
    """
    if kind is int:
        return Whole()
    if kind is float:
        return OneNumber()
    if type(kind) is click.Choice:
        return Words(kind.choices, kind.case_sensitive)
    if type(kind) not in OWN_RANGES:
        return kind
    return OWN_RANGES[type(kind)](kind.min, kind.max, kind.min_open, kind.max_open)


OWN_RANGES = {click.IntRange: WholeRange, click.FloatRange: NumberRange}


def _shown(value: object) -> str:
    """Return a refused value for a message, shortened."""
    return shorten(value) if isinstance(value, str) else quote(value)


class Numbers(click.ParamType[Any]):
    """One number, or one per stage separated by commas; 2*3 is 2,2,2."""

    name = "number[,number...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | list[float]:
        """Return the number, or the list of numbers."""
        numbers = list[float]()
        try:
            if isinstance(value, list | tuple) and value:
                return [_number(each) for each in value]
            if not isinstance(value, str):
                return _number(value)
            for part in value.split(","):
                number, star, times = part.partition("*")
                if star and (
                    not REPEATED.fullmatch(times) or len(numbers) + int(times) > MOST_COUNTS
                ):
                    raise ValueError
                numbers += [plain_float(number)] * int(times or 1)
        except ValueError:
            self.fail(
                f"not a number or a list of numbers: '{_shown(value)}'; "
                f"expected e.g. {_example(value, '1.5 or 1,1,2*3')}",
                param,
                ctx,
            )
        return numbers if len(numbers) > 1 else numbers[0]


def _number(value: object) -> float:
    """Return a number, or the number that a text says.

    Raises:
        ValueError: it is neither, or is larger than a fraction can be.
    """
    if isinstance(value, str):
        return plain_float(value)
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise ValueError
    try:
        found = float(value)
    except OverflowError:
        raise ValueError from None
    return value if isinstance(value, int) else found


def _text_of(value: Any) -> str:
    """Return the text of a list: its parts with commas between."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class Amount(NumberRange):
    """A finite number of a range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; nan and infinity are refused, which float() and ranges accept."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"not a finite number: '{_shown(value)}'; expected e.g. 1.5", param, ctx)
        return number


class Amounts(Numbers):
    """One number above 0, or several separated by commas."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | list[float]:
        """Return the number, or the list of numbers, each converted by :class:`Amount`."""
        numbers = super().convert(value, param, ctx)
        positive = Amount(min=0, min_open=True)
        if isinstance(numbers, list | tuple):
            return [positive.convert(each, param, ctx) for each in numbers]
        return positive.convert(numbers, param, ctx)


class Activations(Amounts):
    """Numbers of activations above 0; sizes in bytes are refused with their own message."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | list[float]:
        """Return the number, or the list of numbers."""
        if isinstance(value, str) and re.search(r"\d\s*[KMGTP]i?B", value, re.IGNORECASE):
            self.fail(
                f"'{value}' is in bytes, and the bytes of an activation are not known; give a "
                "number of activations, such as 6",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class Counts(click.ParamType[Any]):
    """Counts separated by commas: single ones, 8:64:8 in steps, 8:128:x2 by a factor."""

    name = "counts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """Return all counts, in the given order."""
        counts: list[int] = []
        value = _text_of(value)
        for part in value.split(","):
            match = RANGE.fullmatch(part)
            if not match:
                self.fail(
                    f"not a count: '{part}'; expected 8, 8:64:8 (steps) or 8:128:x2 (a factor)",
                    param,
                    ctx,
                )
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[4] or 1)
            by_factor = match[3] == "x"
            if by_factor and step < 2:
                self.fail(f"'{part}' never ends: a factor must be 2 or more", param, ctx)
            while first <= last:
                if len(counts) == MOST_COUNTS:
                    self.fail(f"'{value}' is more than {MOST_COUNTS:,} counts", param, ctx)
                counts.append(first)
                first = first * step if by_factor else first + step
        if not counts:
            self.fail(f"'{value}' is empty: the last count is below the first", param, ctx)
        return counts


class CountList(click.ParamType[Any]):
    """Whole numbers separated by commas; zero is allowed."""

    name = "number[,number...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """Return the list of numbers."""
        value = _text_of(value)
        parts = [part.strip() for part in value.split(",")]
        if len(parts) > MOST_COUNTS or not all(
            part.isascii() and part.isdigit() and len(part) < 10 for part in parts
        ):
            self.fail(f"not a list of whole numbers: '{value}'; expected e.g. 3,4,4,3", param, ctx)
        return list(map(int, parts))


class Share(click.ParamType[Any]):
    """A share, such as 0.05 or 5%; without % at most 1, because 5 may mean 500 % or 5 %."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share as a fraction."""
        text = str(value)
        percent = text.endswith("%")
        try:
            share = plain_float(text.removesuffix("%")) / (100 if percent else 1)
        except ValueError:
            share = math.nan
        if not 0 <= share < math.inf:
            self.fail(f"not a share: '{shorten(text)}'; expected e.g. 5% or 0.05", param, ctx)
        if share > 1 and not percent:
            self.fail(
                f"'{value}' is {share:.0%} of the measured time; write {value}% if you mean "
                f"percent",
                param,
                ctx,
            )
        return share


class OptionalValue(click.ParamType[Any], ABC):
    """The value of an option that may stand alone."""

    # the value of an option that stands alone: :meth:`begins` is False for the next word
    bare_value: str

    @abstractmethod
    def begins(self, word: str) -> bool:
        """Return True if the word after the option is meant as its value, right or wrong."""


class OffloadRules(OptionalValue):
    """Activations to copy to the host: a text for
    :func:`ppsim.prices.parts.copies.parse_offload`; true is all, false none.
    """

    name = "offload"
    bare_value = "all"

    def begins(self, word: str) -> bool:
        """Return True if the word is a number, a share, or all."""
        return re.fullmatch(r"-?[\d.]+%?|all", word) is not None

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | None:
        """Return the text; the schedule decides later which values are possible."""
        if isinstance(value, bool):
            return self.bare_value if value else None
        return str(value)


class RecomputeRules(OptionalValue):
    """Recompute: true or full, false or none, or rules of
    :func:`ppsim.core.recompute.parse_rules`.
    """

    name = "recompute"
    bare_value = "full"
    words = MappingProxyType(
        # booleans, because the option was a switch once
        {"full": True, "true": True, "yes": True, "none": False, "false": False, "no": False}
    )

    def begins(self, word: str) -> bool:
        """Return True if the word after the option is meant as its value, right or wrong."""
        return re.match(r"(full|none|first|window|layers|modules)([:,*]|$)", word) is not None

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> bool | str:
        """Return the rules as text, or true or false."""
        if isinstance(value, bool):
            return value
        text = str(value)
        if text in self.words:
            return self.words[text]
        from ppsim.core.recompute import parse_rules

        try:
            parse_rules(text)
        except InputError as error:
            self.fail(f"{error}; {error.hint}", param, ctx)
        return text


class ScheduleName(click.ParamType[Any]):
    """The spelling of a schedule: a name or alias, NAME:V, or a file; the registry finds it."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the spelling as given."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names of schedules that begin with a text, and a mark for files."""
        from click.shell_completion import CompletionItem

        from ppsim.schedules import families

        return [
            CompletionItem(incomplete, type="file"),
            *(
                CompletionItem(f.name, help=f.title)
                for f in families()
                if f.name.startswith(incomplete.lower())
            ),
        ]


class Window(click.ParamType[Any]):
    """A stretch of time, such as 10:25."""

    name = "A:B"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Return both times."""
        if isinstance(value, Stretch):
            return value
        if isinstance(value, list | tuple):
            value = ":".join(map(str, value))
        try:
            first, last = map(plain_float, str(value).split(":"))
        except ValueError:
            self.fail(f"not a window: '{value}'; expected e.g. 10:25", param, ctx)
        if not 0 <= first < last < float("inf"):
            self.fail(f"not a window: '{value}'; expected A:B with 0 <= A < B", param, ctx)
        return Stretch((first, last))


class Stretch(tuple[float, float]):
    """The two ends of a stretch of time; its text is A:B."""

    def __str__(self) -> str:
        return ":".join(repr(time).removesuffix(".0") for time in self)


class Labels(Words):
    """A word of a choice, or every:N."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        if str(value) in self.choices:
            return str(value)
        from ppsim.show.drawing.look import EVERY

        return str(value) if EVERY.fullmatch(str(value)) else super().convert(value, param, ctx)


class ChartNote(click.ParamType[Any]):
    """A text with its place on a chart: TEXT@TIME:devN."""

    name = "text@time:devn"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the note; its text may have any letters."""
        from ppsim.show.drawing.look import Note

        if isinstance(value, Note):
            return value
        found = re.fullmatch(
            r"(.{1,200})@([0-9]{1,12}(?:\.[0-9]{1,12})?):dev([0-9]{1,7})", str(value)
        )
        if not found:
            self.fail(f"not a note: '{value}'; expected e.g. 'W fills here@12:dev2'", param, ctx)
        return Note(found[1], float(found[2]), int(found[3]))


class Highlighted(click.ParamType[Any]):
    """The ops to highlight: mb=3, device=1, stage=2 or critical."""

    name = "mb=N|critical"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the highlight."""
        from ppsim.show.drawing.look import CRITICAL, PICKED, Highlight

        if isinstance(value, Highlight):
            return value
        by, _, number = str(value).partition("=")
        if by == CRITICAL and not number:
            return Highlight(CRITICAL)
        if by not in PICKED or not (number.isascii() and number.isdigit() and len(number) < 10):
            self.fail(
                f"not a highlight: '{value}'; expected e.g. mb=3, device=1, stage=2 or critical",
                param,
                ctx,
            )
        return Highlight(by, int(number))
