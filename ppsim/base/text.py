"""Text from outside made safe to write: one line, without control characters."""

from __future__ import annotations

import re

_BREAKS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
# Besides control characters what XML and UTF-8 cannot carry.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def one_line(text: str) -> str:
    """The text on one line: line breaks and tabs as blanks, what no file can carry as U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", _BREAKS.sub(" ", text))
