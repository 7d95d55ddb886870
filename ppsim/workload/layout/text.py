"""Layouts as text: strings, and lists of words from Python or configuration files.

A string consists of letters, ``|`` between stages, ``x*n`` to repeat a letter or ``|``, and
``(...)*n`` to repeat a group. Commas and white space are ignored. Megatron does not read white
space or nested brackets, and :func:`format_content` writes neither. A list has a list of words for
each stage: ``[["embedding"] + ["decoder"] * 3, ["decoder", "loss"]]``.
"""

from __future__ import annotations

import ast
import warnings
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from ppsim.base.text import shorten
from ppsim.errors import InputError

LETTERS = "EtmL"
WORDS = dict(zip(("embedding", "decoder", "mtp", "loss"), LETTERS, strict=True))
MOST_LETTERS = 1_000_000
SHOWN, LONGEST_PERIOD = 200, 8
LISTS = 'such as [["embedding"] + ["decoder"] * 3, ["decoder", "loss"]]'


def parse_content(text: str) -> tuple[str, ...]:
    """Parse a layout string, or lists of words, into the letters of each stage.

    Raises:
        InputError: the text has an unknown character or word, an open bracket, a missing number, or
            more than ``MOST_LETTERS`` letters.
    """
    if text.lstrip().startswith("["):
        return _parse_lists(text)
    letters, at = _parse_group(text, 0, 0)
    if at < len(text):
        raise _fault(text, at, "')' closes no bracket", "leave it out", "brackets")
    return tuple(letters.split("|"))


def _parse_group(text: str, at: int, depth: int) -> tuple[str, int]:
    """Return the letters from ``at`` to the closing bracket or the end, and where they end."""
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
                raise _fault(
                    text,
                    begin,
                    "a bracket needs *n after it",
                    "add *2, or leave out the bracket",
                    "brackets",
                )
            if not part:
                raise _fault(text, begin, "the bracket is empty", "leave it out", "brackets")
        elif sign in LETTERS or sign == "|":
            part = sign
        else:
            raise _bad_letter(text, begin)
        count, at = _parse_count(text, at)
        size += len(part) * count
        if size > MOST_LETTERS:
            raise _too_many(text, begin)
        parts.append(part * count)
    return "".join(parts), at


def _parse_count(text: str, at: int) -> tuple[int, int]:
    """Return n of ``*n`` at ``at``, or 1 if there is none, and where it ends."""
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


def _parse_lists(text: str) -> tuple[str, ...]:
    """Return the letters of each stage of a list of lists of words.

    Lists may be joined by + and repeated by ``* n``.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text.strip(), mode="eval").body
        stages = _evaluate(text, tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = (
            error.offset - 1
            if isinstance(error, SyntaxError) and error.lineno == 1 and error.offset
            else 0
        )
        raise _fault(
            text, min(_start(text) + at, len(text) - 1), "this is not a list", LISTS, "lists"
        ) from error
    has_lists = (
        isinstance(stages, list) and stages and not any(isinstance(stage, str) for stage in stages)
    )
    if has_lists and sum(map(len, stages)) > MOST_LETTERS:
        raise _too_many(text, _start(text))
    if not has_lists or any(isinstance(word, list) for stage in stages for word in stage):
        problem = (
            "each stage must be one list of words, in model order: all first chunks, then all "
            "second chunks"
        )
        raise _fault(text, _start(text), problem, LISTS, "lists")
    return tuple("".join(stage) for stage in stages)


def _evaluate(text: str, node: ast.expr) -> Any:
    """Return the letters of an expression of words and lists (InputError: anything else)."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_evaluate(text, part) for part in parts]
        # a shell removes the quotes around words
        case ast.Constant(value=str(word)) | ast.Name(id=word):
            if word not in WORDS:
                near = get_close_matches(word.lower(), WORDS, 1) or [
                    w for w, x in WORDS.items() if x == word
                ]
                hint = f'"{near[0]}" for that word' if near else ", ".join(WORDS)
                raise _fault(
                    text, _place(text, node), f"not a layer: '{shorten(word)}'", hint, "words"
                )
            return WORDS[word]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            joined = _evaluate(text, left), _evaluate(text, right)
            if isinstance(joined[0], list) and isinstance(joined[1], list):
                return joined[0] + joined[1]
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int(count))):
            repeated = _evaluate(text, left)
            if isinstance(repeated, list):
                if len(repeated) * count > MOST_LETTERS:
                    raise _too_many(text, _place(text, node))
                return repeated * count
    raise _fault(
        text, _place(text, node), "only words, lists, + and * n make a layout", LISTS, "lists"
    )


def _start(text: str) -> int:
    return len(text) - len(text.lstrip())


def _place(text: str, node: ast.expr) -> int:
    """Return the index of the character at which an expression begins."""
    lines = text.strip().split("\n")
    before = sum(len(line) + 1 for line in lines[: node.lineno - 1])
    return _start(text) + before + len(lines[node.lineno - 1].encode()[: node.col_offset].decode())


def _too_many(text: str, at: int) -> InputError:
    return _fault(
        text, at, f"this makes more than {MOST_LETTERS:,} letters", "a smaller number", "size"
    )


def _bad_letter(text: str, at: int) -> InputError:
    sign = text[at]
    if sign == "*":
        return _fault(
            text,
            at,
            "'*' needs a letter or a bracket before it",
            "e.g. t*3 or (tt|)*2",
            "repeats",
        )
    near = {letter.lower(): letter for letter in LETTERS}.get(sign.lower())
    hint = (
        f"{near} for that letter"
        if near
        else "E embedding, t layer, m MTP layer, L loss, | between stages"
    )
    return _fault(text, at, f"not a layer: '{shorten(sign)}'", hint, "letters")


def _fault(text: str, at: int, problem: str, hint: str, rule: str) -> InputError:
    """Return the error for a problem at a character, which it marks in the text."""
    where = f"character {at + 1} of the layout: {problem} (rule {rule})"
    if len(text) > SHOWN or not text.isprintable():
        return InputError(where, hint)
    return InputError(f"{where}\n  {text}\n  {' ' * at}^", hint)


def format_content(content: tuple[str, ...]) -> str:
    """Return stages as a compact string that Megatron reads."""
    *stages, last = map(_format_stage, content)
    return "".join([*_fold_repeats(stages), last])


def _format_stage(letters: str) -> str:
    """Return a stage's letters, with runs of three or more as ``t*3``."""
    runs = ((letter, len(list(run))) for letter, run in groupby(letters))
    return "".join(f"{letter}*{run}" if run > 2 else letter * run for letter, run in runs)


def _fold_repeats(stages: list[str]) -> list[str]:
    """Return stages, each with a ``|`` after it, and repetitions as ``(tt|)*29`` if shorter."""
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
