"""How a file was made: the version, command and costs that ppsim puts into what it writes."""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Callable
from io import BytesIO, StringIO
from typing import Any

import msgspec

from ppsim.base.source import name_of, read_bytes
from ppsim.base.tables import MADE_BY, parquet_metadata
from ppsim.errors import InputError

HINT = "a png, gif, svg, pdf, html, json, parquet, mmd or trace.json file, or the table of a sweep, that ppsim wrote"
ACTIONS = re.compile(rb",*\(?\d+[A-Z_]+\d*\s*[,;\r\n]")  # how torch's CSV begins


def read_inputs(path: str) -> dict[str, Any]:
    """Read the inputs in a file of ppsim: ``ppsim`` (version), ``command``, mostly ``costs`` (InputError: none)."""
    data = read_bytes(path)
    if ACTIONS.match(data[:1000]):
        raise InputError(
            f"'{name_of(path)}' does not say how it was made: torch takes each line of a CSV for a device and each "
            "cell for an action, so there is no place for it",
            "write x.json beside x.csv in the same command (-o x.csv -o x.json), then ppsim rerun x.json -o x.csv",
        )
    for looks, take in READERS:
        if looks(data):
            found = take(data)
            if isinstance(found, dict) and isinstance(found.get("command"), str):
                return found
            break
    raise InputError(f"'{name_of(path)}' does not say how it was made", HINT)


def _image(data: bytes) -> Any:
    """The text ``ppsim`` of a png, the comment of a gif."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(BytesIO(data), formats=("PNG", "GIF")) as image:
            image.load()
            said = image.info.get("ppsim") or image.info.get("comment", "")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        return None
    return _decode(said.decode(errors="replace") if isinstance(said, bytes) else said)


def _pdf(data: bytes) -> Any:
    """The Subject of a pdf as matplotlib writes it: a string in parentheses, or UTF-16 in hexadecimal digits."""
    if match := re.search(rb"/Subject\s*\(((?:\\.|[^\\)])*)\)", data, re.DOTALL):
        raw = re.sub(rb"\\([0-7]{3})|\\(.)", _unescape, match[1], flags=re.DOTALL)
    elif match := re.search(rb"/Subject\s*<([0-9A-Fa-f\s]*)>", data):
        digits = re.sub(rb"\s", b"", match[1]).decode()
        raw = bytes.fromhex(digits) if len(digits) % 2 == 0 else b""
    else:
        return None
    utf16 = raw.startswith((b"\xfe\xff", b"\xff\xfe"))
    return _decode(raw.decode("utf-16" if utf16 else "latin-1", errors="replace"))


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, sign = match[1], match[2]
    if octal:
        return bytes([int(octal, 8) & 255])
    return {b"n": b"\n", b"r": b"\r", b"t": b"\t"}.get(sign, sign)


def _svg(data: bytes) -> Any:
    match = re.search(r"<dc:description>(.*?)</dc:description>", data.decode(errors="replace"), re.DOTALL)
    return _decode(html.unescape(match[1])) if match else None


def _html(data: bytes) -> Any:
    match = re.search(rb'id="ppsim-data">(.*?)</script>', data, re.DOTALL)
    return _member(match[1]) if match else None


def _table(data: bytes) -> Any:
    """The last column of a table's first row: version and command."""
    first = next(csv.DictReader(StringIO(data.decode(errors="replace"), newline="")), {})
    match = re.fullmatch(r"ppsim (\S+): (.*)", first.get(MADE_BY) or "", re.DOTALL)
    return {"ppsim": match[1], "command": match[2]} if match else None


def _parquet(data: bytes) -> Any:
    return _decode(parquet_metadata(data))


def _mermaid(data: bytes) -> Any:
    match = re.search(rb"^%% ppsim (\S+): (.*)$", data, re.MULTILINE)
    return {"ppsim": match[1].decode(errors="replace"), "command": match[2].decode(errors="replace")} if match else None


def _member(data: bytes) -> Any:
    """The inputs in JSON of ppsim: the object, its ``inputs`` or ``otherData``; of several runs, of the first."""
    whole = _decode(data.decode(errors="replace"))
    runs = whole.get("runs") if isinstance(whole, dict) else whole
    if isinstance(runs, list) and runs:
        whole = runs[0]
    if not isinstance(whole, dict) or "command" in whole:
        return whole
    return whole.get("inputs") or whole.get("otherData")


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


# Each format by how its bytes begin, the first that fits.
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
