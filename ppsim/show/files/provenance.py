"""Provenance of a file: the version, command and costs that ppsim embeds in its files."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ppsim.base.source import read_bytes
from ppsim.base.tables import MADE_BY
from ppsim.base.text import shell_line, shorten
from ppsim.base.unpack.json_objects import find_object
from ppsim.base.unpack.parquet import parquet_header
from ppsim.base.unpack.picture import picture_text
from ppsim.base.unpack.texts import Lines, csv_rows, decode_text

LONGEST_SUBJECT = 4 << 20  # bytes of a pdf
_SUBJECT = re.compile(rb"/Subject\s*+([(<])")
_LETTERS = re.compile(rb"((?:[^\\)]++|\\.)*+)\)", re.DOTALL)
_DIGITS = re.compile(rb"([0-9A-Fa-f\s]*+)>")


def read_inputs(path: str) -> dict[str, Any]:
    """Return the inputs in a file of ppsim: ``ppsim`` (version), ``command``, usually ``costs``.

    Empty if the file contains no command.

    Raises:
        InputError: the file cannot be read.
    """
    data = read_bytes(path)
    for matches, read in READERS:
        if matches(data):
            found = read(data)
            return (
                found if isinstance(found, dict) and isinstance(found.get("command"), str) else {}
            )
    return {}


@dataclass(frozen=True)
class Origin:
    """Provenance of a file of ppsim.

    Attributes:
        command: one line for a shell, quoted word by word, without control characters.
        version: of ppsim; empty if the file does not state it.
    """

    command: str
    version: str


def read_origin(path: str) -> Origin | None:
    """Return the provenance of a file; None if it names no command of ppsim.

    Raises:
        InputError: the file cannot be read.
    """
    inputs = read_inputs(path)
    try:
        program, *words = shlex.split(inputs.get("command", ""))
    except ValueError:  # no words, or an unclosed quote
        return None
    if program != "ppsim":
        return None
    return Origin(shell_line([program, *words]), shorten(str(inputs.get("ppsim", ""))))


def _image(data: bytes) -> Any:
    """Return the text ``ppsim`` of a png, or the comment of a gif."""
    return find_object(picture_text(data, ("ppsim", "comment")))


def _pdf(data: bytes) -> Any:
    """Return the Subject of a pdf by matplotlib: in parentheses, or UTF-16 in hexadecimal."""
    begin = _SUBJECT.search(data)
    if not begin:
        return None
    subject = data[begin.end() : begin.end() + LONGEST_SUBJECT]
    match = (_LETTERS if begin[1] == b"(" else _DIGITS).match(subject)
    if not match:
        return None
    if begin[1] == b"(":
        raw = re.sub(rb"\\([0-7]{3})|\\(.)", _unescape, match[1], flags=re.DOTALL)
    else:
        digits = re.sub(rb"\s", b"", match[1]).decode()
        raw = bytes.fromhex(digits) if len(digits) % 2 == 0 else b""
    utf16 = raw.startswith((b"\xfe\xff", b"\xff\xfe"))
    return find_object(raw.decode("utf-16" if utf16 else "latin-1", errors="replace"))


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, sign = match[1], match[2]
    if octal:
        return bytes([int(octal, 8) & 255])
    return {b"n": b"\n", b"r": b"\r", b"t": b"\t"}.get(sign, sign)


def _svg(data: bytes) -> Any:
    found = _bytes_between(data, b"<dc:description>", b"</dc:description>")
    return find_object(html.unescape(decode_text(found, "the file", "replace")))


def _html(data: bytes) -> Any:
    return _member(_bytes_between(data, b'id="ppsim-data">', b"</script>"))


def _bytes_between(data: bytes, begin: bytes, end: bytes) -> bytes:
    """Return the bytes between two marks, at their first occurrence; empty if one is missing."""
    first = data.find(begin)
    last = data.find(end, first) if first >= 0 else -1
    return data[first + len(begin) : last] if last >= 0 else b""


def _table(data: bytes) -> Any:
    """Return version and command from the last column of a table's first row."""
    try:
        names, cells = islice(csv_rows(Lines(data, "the table")), 2)
    except ValueError:
        return None
    cell = dict(zip(names, cells, strict=False)).get(MADE_BY, "")
    match = re.fullmatch(r"ppsim (\S+): (.*)", cell, re.DOTALL)
    return {"ppsim": match[1], "command": match[2]} if match else None


def _parquet(data: bytes) -> Any:
    return find_object(parquet_header(data))


def _mermaid(data: bytes) -> Any:
    match = re.search(rb"^%% ppsim (\S+): (.*)$", data, re.MULTILINE)
    return (
        {"ppsim": match[1].decode(errors="replace"), "command": match[2].decode(errors="replace")}
        if match
        else None
    )


def _member(data: bytes) -> Any:
    """Return the inputs in JSON of ppsim: the object, or its ``inputs`` or ``otherData``.

    If the file has several runs, the first one counts.
    """
    whole = find_object(decode_text(data, "the file", "replace"))
    runs = whole.get("runs") if isinstance(whole, dict) else whole
    if isinstance(runs, list) and runs:
        whole = runs[0]
    if not isinstance(whole, dict) or "command" in whole:
        return whole
    return whole.get("inputs") or whole.get("otherData")


# Readers by format; the first whose test of the bytes succeeds is used.
READERS: tuple[tuple[Callable[[bytes], object], Callable[[bytes], Any]], ...] = (
    (lambda data: data.startswith((b"\x89PNG", b"GIF8")), _image),
    (lambda data: data.startswith(b"%PDF"), _pdf),
    (lambda data: b"<svg" in data[:1000], _svg),
    (lambda data: data.lstrip()[:1] in (b"{", b"["), _member),
    (lambda data: data[:200].lstrip().lower().startswith((b"<!doctype html", b"<html")), _html),
    (lambda data: b"%% ppsim " in data, _mermaid),
    (lambda data: data.startswith(b"PAR1"), _parquet),
    (lambda data: MADE_BY.encode() in data.partition(b"\n")[0], _table),
)
