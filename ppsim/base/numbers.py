"""Numbers that texts state, and the format of numbers on terminals, in pictures and on pages;
``numbers.js`` follows the same rules.

Four significant digits (and all digits before the point), commas between thousands, a true minus,
percentages with one decimal: 3,261 ms, 90.68 GiB, 27.3%, −13.6%. Data (JSON, CSV) has all digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

DIGITS = 4
WIDEST_DIGITS = 6  # the most digits of a column with equal decimals
ROUNDING = 1e-9  # relative rounding error of arithmetic
MINUS = "\u2212"


def plain_float(text: str) -> float:
    """Return the number that a text states in ASCII digits.

    Raises:
        ValueError: it states none, or has a character that only Python reads: an underscore, or a
            digit of another script.
    """
    return float(_require_plain(text))


def plain_int(text: str) -> int:
    """Return the whole number that a text states in ASCII digits (ValueError: as
    :func:`plain_float`).
    """
    return int(_require_plain(text))


def _require_plain(text: str) -> str:
    """Return a text (ValueError: it has an underscore or is not ASCII)."""
    if "_" in text or not text.isascii():
        raise ValueError("a number has ASCII digits and no underscores")
    return text


def format_number(value: float) -> str:
    """Return a number with four digits, or all digits before the point if there are more."""
    size = abs(value)
    if 10**DIGITS <= size < 1e15:
        return _true_minus(f"{value:,.0f}")
    near = float(f"{value:.{DIGITS}g}")
    plain = 1e-4 <= abs(near) < 1e15 or near == 0
    return _true_minus(f"{near:,.15g}" if plain else f"{value:.{DIGITS}g}")


def format_part(value: float, whole: float) -> str:
    """Return a part of a whole as text, rounded to a hundred-thousandth of the whole."""
    if not (math.isfinite(whole) and whole > 0 and math.isfinite(value)):
        return format_number(value)
    return format_number(round(value, max(0, DIGITS - math.floor(math.log10(whole)))))


def format_range(low: float, high: float) -> str:
    """Return both ends of a range of positive numbers, with three digits of the higher one."""
    digits = max(0, 2 - math.floor(math.log10(high)))
    return f"{low:,.{digits}f}-{high:,.{digits}f}"


def round_down(value: float, digits: int) -> str:
    """Return a number of at least 0 as text with ``digits`` digits, rounded down."""
    if value <= 0:
        return "0"
    unit = _last_digit(value, digits)
    return format_number(math.floor(value / unit * (1 + ROUNDING)) * unit)


def round_up(value: float, digits: int) -> str:
    """Return a number above 0 as text with ``digits`` digits, rounded up."""
    unit = _last_digit(value, digits)
    return format_number(math.ceil(value / unit * (1 - ROUNDING)) * unit)


def _last_digit(value: float, digits: int) -> float:
    """Return the place value of the last of ``digits`` digits of a number above 0."""
    return float(10.0 ** (math.floor(math.log10(value)) + 1 - digits))


def format_share(share: float) -> str:
    """Return a share in percent with one decimal."""
    if not math.isfinite(share):
        return "infinite"
    return _true_minus(f"{100 * share:{',.1f' if abs(share) < 1e9 else '.3g'}}%")


def format_change(share: float) -> str:
    """Return a relative change in percent, with its sign."""
    return ("+" if share > 0 and format_share(share) != "0.0%" else "") + format_share(share)


def format_column(values: Sequence[float | None]) -> list[str]:
    """Return the numbers of a column with equal decimals; None is empty.

    The largest has at least four digits, and the smallest at least three. If that takes more than
    six digits, each number has four digits instead.
    """
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    if not sizes or all(float(size).is_integer() for size in sizes):
        return ["" if value is None else format_number(value) for value in values]
    whole = math.floor(math.log10(max(sizes))) + 1
    decimals = max(0, DIGITS - whole, 2 - math.floor(math.log10(min(sizes))))
    if max(whole, 1) + decimals > WIDEST_DIGITS:
        return ["" if value is None else format_number(value) for value in values]
    return [
        "" if value is None else _true_minus(f"{value:,.{decimals}f}") if value else "0"
        for value in values
    ]


def align_decimals(texts: Sequence[str]) -> list[str]:
    """Return the numbers of a column with as many decimals as the number with most decimals.

    No number gets more than four digits. Words may precede a number with a plus: ``bubble +0.12
    s``.
    """
    found = [_NUMBER.fullmatch(text) for text in texts]
    most = max((len(each["part"]) for each in found if each), default=0) - 1
    return [
        text if each is None else _rounded_text(each, most)
        for text, each in zip(texts, found, strict=True)
    ]


def align_right(texts: Sequence[str]) -> list[str]:
    """Return the numbers of a column with aligned decimals, all as wide as the widest."""
    aligned = align_decimals(texts)
    wide = max(map(len, aligned), default=0)
    return [text.rjust(wide) for text in aligned]


def align_rows(rows: Sequence[Sequence[str]]) -> Iterable[Sequence[str]]:
    """Return the rows of a table with aligned decimals in each column; the first column is
    unchanged.
    """
    wide = max(map(len, rows), default=0)
    whole = [row for row in rows if len(row) == wide > 0]  # shorter rows are remarks
    names, *columns = zip(*whole, strict=True) if whole else [()]
    aligned = zip(names, *map(align_decimals, columns), strict=True)
    return [next(aligned) if len(row) == wide > 0 else row for row in rows]


_NUMBER = re.compile(
    r"(?P<whole>(?:[a-z ]+ (?=\+))?[+\u2212]?\d[\d,]*)(?P<part>\.\d+|)(?P<unit>\*| [A-Za-z]*|)"
)


def _rounded_text(number: re.Match[str], most: int) -> str:
    whole, part, unit = number.groups()
    digits = len(re.sub(r"\D", "", whole))
    blank = min(most, DIGITS - digits + (whole.rpartition("+")[2] == "0")) - len(part[1:])
    return (
        number[0]
        if blank <= 0 or whole + part == "0"
        else f"{whole}{part or '.'}{'0' * blank}{unit}"
    )


def _true_minus(text: str) -> str:
    return MINUS + text[1:] if text.startswith("-") and text.strip("-0.%") else text.lstrip("-")


def with_unit(amount: str, unit: str) -> str:
    """Return an amount with its unit, such as ``1 activation``; sizes already have a unit."""
    if unit == "B":
        return amount
    ending = "es" if unit.endswith("ches") else "s"
    return f"{amount} {unit.removesuffix(ending) if amount == '1' else unit}"
