"""Make text from files and command lines safe to show: short lines without control characters."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence

from ppsim.errors import InputError

STANDARD_INPUT = "-"  # instead of the name of a file
MOST = 200  # characters of a name in a message
MOST_OF_LINE = 4000
_BREAKS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
# Control characters, characters that change the direction of text, and characters that XML or UTF-8
# cannot encode.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def one_line(text: str) -> str:
    """Return a text with line breaks and tabs as blanks, and unprintable characters as U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", _BREAKS.sub(" ", text))


def mermaid_line(text: str) -> str:
    """Return a text as one line without Mermaid directives, which work anywhere in a line."""
    return one_line(text).replace("%%{", "%% {")


def printable(text: str) -> str:
    """Return a text with :func:`one_line` applied to each line."""
    return "\n".join(map(one_line, text.split("\n")))


def replace_surrogates(text: str) -> str:
    """Return a text with lone surrogates, which UTF-8 cannot encode, as U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shorten(text: str, most: int = MOST) -> str:
    """Return a text as one line of at most ``most`` characters."""
    return one_line(text if len(text) <= most else text[: most - 3] + "...")


def shorten_lines(text: str) -> str:
    """Return a message with each line shortened and printable."""
    return "\n".join(shorten(line, MOST_OF_LINE) for line in text.split("\n"))


def underline(line: str, most: int = 120) -> str:
    """Return a line of a file, indented and with carets below it, for an error message."""
    excerpt = shorten(line.strip(), most)
    return f"  {excerpt}\n  {'^' * len(excerpt)}"


def unreadable_line(source: str, number: int, line: str, why: str, hint: str) -> InputError:
    """Return the error of a line of a file (numbered from 1), with the line and the reason."""
    return InputError(f"{source}, line {number}: {why}\n{underline(line)}", hint)


def guess_of(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a question that suggests a known word for a mistyped one; empty if none is close.

    It is the shortest known word with this part (dgx-h100 for h100), or else the closest one.
    """
    import difflib

    known = list(known)
    within = sorted((each for each in known if word in each.split("-")), key=len)
    close = within or difflib.get_close_matches(word[:MOST], known, n=1, cutoff=cutoff)
    return f" Did you mean '{close[0]}'?" if close else ""


def quote(value: object, most: int = 80) -> str:
    """Return a value from a file in Python's notation, shortened, for messages."""
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a whole number of {value.bit_length()} bits"
    try:
        written = repr(value[:most] if isinstance(value, list | str) else value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return shorten(written, most)


def check_text(name: str, text: str) -> None:
    """Raise InputError for a text with a character that no path can have: NUL, or half a character,
    which no file system encodes. ``name`` is what the text is for.
    """
    if "\0" in text:
        raise InputError(f"{name}: {quote(text)} has a NUL character", "leave it out")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}, half a character"
        raise InputError(f"{name}: {quote(text)} has {half}", "leave it out") from None


def shell_line(words: Sequence[str]) -> str:
    """Return words as one quoted line for a shell, without control characters."""
    return " ".join(
        shlex.quote(word) if word.isprintable() else f"$'{_escape(word)}'" for word in words
    )


def _escape(word: str) -> str:
    signs = (
        sign if sign.isprintable() and sign not in "'\\" else f"\\U{ord(sign):08x}" for sign in word
    )
    return "".join(signs)
