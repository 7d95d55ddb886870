"""Layout strings: letters, ``|`` between stages, ``x*n`` for n times a letter or ``|``, ``(...)*n`` for a group.

Commas and white space mean nothing. Megatron reads no white space and no brackets inside brackets; what
:func:`format_content` writes has neither.
"""

from __future__ import annotations

from itertools import groupby

from ppsim.base.text import shorten
from ppsim.errors import InputError

LETTERS = "EtmL"
MOST_LETTERS = 1_000_000
SHOWN, LONGEST_PERIOD = 200, 8


def parse_content(text: str) -> tuple[str, ...]:
    """Parse a layout string into the letters of each stage.

    Raises:
        InputError: a character that is none of the layout's, an open bracket, a number that is missing, or more
            letters than any model has.
    """
    letters, at = _parse_group(text, 0, 0)
    if at < len(text):
        raise _fault(text, at, "')' closes no bracket", "leave it out", "brackets")
    return tuple(letters.split("|"))


def _parse_group(text: str, at: int, depth: int) -> tuple[str, int]:
    """Expand from ``at`` to the end or to the bracket that closes; gives the letters and where it ended."""
    parts: list[str] = []
    size = 0
    while at < len(text) and text[at] != ")":
        begin, sign = at, text[at]
        at += 1
        if sign == "," or sign.isspace():
            continue
        if sign == "(":
            if depth == 50:
                raise _fault(text, begin, "brackets are 50 deep", "fewer brackets", "brackets")
            part, at = _parse_group(text, at, depth + 1)
            if at == len(text):
                raise _fault(text, begin, "the bracket is not closed", "add )*n", "brackets")
            at += 1
            if text[at : at + 1] != "*":
                raise _fault(text, begin, "a bracket needs *n after it", "add *2, or leave out the bracket", "brackets")
            if not part:
                raise _fault(text, begin, "the bracket holds nothing", "leave it out", "brackets")
        elif sign in LETTERS or sign == "|":
            part = sign
        else:
            raise _bad_letter(text, begin)
        count, at = _parse_count(text, at)
        size += len(part) * count
        if size > MOST_LETTERS:
            raise _fault(text, begin, f"this makes more than {MOST_LETTERS:,} letters", "a smaller number", "size")
        parts.append(part * count)
    return "".join(parts), at


def _parse_count(text: str, at: int) -> tuple[int, int]:
    """Parse ``*n`` at ``at``, if it is there: n, or 1, and where it ended."""
    if text[at : at + 1] != "*":
        return 1, at
    end = at + 1
    while end < len(text) and text[end] in "0123456789":
        end += 1
    if end == at + 1:
        raise _fault(text, at, "'*' needs a number after it", "such as *2", "repeats")
    if text[end : end + 1] == "*":
        raise _fault(text, end, "a number cannot be repeated", "brackets: (t*2)*3", "repeats")
    return int(text[at + 1 : end][:8]) if end - at <= 9 else MOST_LETTERS + 1, end


def _bad_letter(text: str, at: int) -> InputError:
    sign = text[at]
    if sign == "*":
        return _fault(text, at, "'*' repeats what is before it, and nothing is", "such as t*3 or (tt|)*2", "repeats")
    near = {letter.lower(): letter for letter in LETTERS}.get(sign.lower())
    hint = f"{near} for that letter" if near else "E embedding, t layer, m MTP layer, L loss, | between stages"
    return _fault(text, at, f"'{shorten(sign)}' is no layer", hint, "letters")


def _fault(text: str, at: int, what: str, hint: str, rule: str) -> InputError:
    where = f"character {at + 1} of the layout: {what} (rule {rule})"
    if len(text) > SHOWN or not text.isprintable():
        return InputError(where, hint)
    return InputError(f"{where}\n  {text}\n  {' ' * at}^", hint)


def format_content(content: tuple[str, ...]) -> str:
    """Write stages as the compact string that Megatron reads, too."""
    *stages, last = map(_format_stage, content)
    return "".join([*_fold(stages), last])


def _format_stage(letters: str) -> str:
    """Write runs of a letter as ``t*3``, from three on."""
    runs = ((letter, len(list(run))) for letter, run in groupby(letters))
    return "".join(f"{letter}*{run}" if run > 2 else letter * run for letter, run in runs)


def _fold(stages: list[str]) -> list[str]:
    """Write stages with their ``|``, and what repeats as ``(tt|)*29`` where that is shorter."""
    parts: list[str] = []
    at = 0
    while at < len(stages):
        best, text, taken = 0, f"{stages[at]}|", 1
        for period in range(1, min(LONGEST_PERIOD, (len(stages) - at) // 2) + 1):
            unit, count = stages[at : at + period], 1
            while stages[at + count * period : at + (count + 1) * period] == unit:
                count += 1
            plain = "".join(f"{stage}|" for stage in unit)
            folded = f"|*{count}" if plain == "|" else f"({plain})*{count}"
            saved = len(plain) * count - len(folded)
            if saved > best:
                best, text, taken = saved, folded, count * period
        parts.append(text)
        at += taken
    return parts
