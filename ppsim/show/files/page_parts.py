"""What pages are put together from: the files beside the writers, and data that scripts read."""

from __future__ import annotations

import base64
import gzip
import html
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from itertools import count, pairwise
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.json_output import dump_json
from ppsim.show.drawing.palette import family_look

Packed = NDArray[Any] | dict[str, str]
Pack = Callable[[NDArray[Any]], Packed]
PLAIN = 64  # values up to which a column stays a list
MOST_STEPS, LEAST_USED = 255, 32  # steps that a table of numbers has, and how often one must occur


def read_part(name: str) -> str:
    """Read a template, style or script of a page."""
    return (files("ppsim.show.files.writers") / name).read_text("utf-8")


def looks_of(families: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the colours and the shape that a page gives each family, by name."""
    looks = (family_look(number) for number in count())
    return {name: {"colour": colour, "shape": shape} for name, (colour, shape) in zip(families, looks, strict=False)}


def read_style(*names: str) -> str:
    """Read styles without comments and spaces that say nothing."""
    style = re.sub(r"/\*.*?\*/", "", "".join(map(read_part, names)), flags=re.DOTALL)
    return re.sub(r"\s*([{},;])\s*|(?<=:)\s+", r"\1", style).replace("}", "}\n")


def fill_page(title: str, part: str, data: Mapping[str, Any], script: str, style: str = "", **body: str) -> bytes:
    """Make a page of its part, with the part's own style and further ``style``, and ``body`` in the part's places."""
    page = Template(read_part("page.html")).substitute(
        title=html.escape(title),
        style=read_style("theme.css", f"{part}.css") + style,
        body=Template(read_part(f"{part}.html")).substitute(title=html.escape(title), **body),
        data=embed_json(data).decode(),
        script=script,
    )
    return page.encode()


@cache
def read_script(name: str) -> str:
    """Read a script without what a page need not carry: comments, indentation, spaces beside signs."""
    text, parts, at = read_part(name), [], 0
    while found := _KEPT.search(text, at):
        parts.append(_squeeze(text[at : found.start()]))
        at = _end_of_template(text, found.end()) if found[0] == "`" else found.end()
        parts.append("" if found[0].startswith(("//", "/*")) else text[found.start() : at])
    lines = "".join((*parts, _squeeze(text[at:]))).split("\n")
    return "\n".join(filter(None, map(str.strip, lines)))


# What has spaces of its own: comments, strings, regular expressions (where no value is before them) and templates.
_KEPT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|(?<=[(,=:&|?!])\s*/(?![/*])(?:[^/\\\n[]|\\.|\[(?:[^\]\\]|\\.)*\])+/|`""",
    re.DOTALL,
)


def _squeeze(code: str) -> str:
    """Leave out spaces beside signs, and line ends after those that end no statement."""
    code = re.sub(r" *([{}()\[\];,<>=*%&|?:!]) *", r"\1", code)
    code = re.sub(r" ([-+/]) (?![-+/])", r"\1", code)
    return re.sub(r"([{(\[,;=&|?:])\s*\n\s*", r"\1", code)


def _end_of_template(text: str, at: int) -> int:
    """Find the end of a template whose inside begins at a place, with what it nests."""
    depth = 0
    while text[at] != "`" or depth:
        if text.startswith("${", at):
            depth, at = depth + 1, at + 1
        elif text[at] in "{}" and depth:
            depth += 1 if text[at] == "{" else -1
        elif text[at] == "`":
            at = _end_of_template(text, at + 1) - 1
        at += 1
    return at + 1


def compress_script(script: str) -> str:
    """Pack a module's script, a third as long, into one that unpacks and runs it."""
    return _UNPACK.replace("PACKED", pack_bytes(script.encode()))


def pack_bytes(content: bytes) -> str:
    """Pack bytes for a page, whose scripts unpack them: gzip in base64."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


_UNPACK = """// ppsim's own script as gzip in base64
const bytes = Uint8Array.from(atob('PACKED'), sign => sign.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
const textContent = await new Response(stream).text();
document.body.append(Object.assign(document.createElement('script'), { type: 'module', textContent }));"""


def embed_json(data: Mapping[str, Any]) -> bytes:
    """Write data for a script element, which no text of the user's can close."""
    return dump_json(dict(data)).replace(b"<", b"\\u003c")


def compress_columns(sums: bool) -> tuple[Pack, Callable[[], dict[str, Any]]]:
    """Return how a file's columns are packed, and what at last makes the table of numbers that they share.

    Integers are packed as int32 differences between neighbours, numbers as such places in a table of all distinct ones
    (starts, ends, messages and curves share most). The table has ``sums`` as codes if the page's scripts can read them,
    and the rest as differences of their bits; nothing is rounded.
    """
    numbers: list[tuple[dict[str, str], NDArray[np.float64]]] = []

    def pack(values: NDArray[Any]) -> Packed:
        if len(values) <= PLAIN:
            return values
        if values.dtype.kind != "f":
            return {"type": "int32", "gzip": _gzip_differences(values)}
        numbers.append(({"type": "place"}, values.astype(np.float64)))
        return numbers[-1][0]

    def share() -> dict[str, Any]:
        columns = [values for _, values in numbers]
        table = np.unique(np.concatenate([np.empty(0), *columns]))
        for packed, values in numbers:
            packed["gzip"] = _gzip_differences(np.searchsorted(table, values))
        codes, steps = _sums(table, columns if sums else [])
        bits = table[codes == 0].astype("<f8").view("<u8")
        rest = {"type": "float64", "gzip": pack_bytes(np.diff(bits, prepend=np.uint64(0)).tobytes())}
        return rest | ({"codes": {"type": "code", "gzip": _gzip_planes(codes)}, "steps": steps} if len(steps) else {})

    return pack, share


def _sums(table: NDArray[Any], columns: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Say which numbers of a sorted table are exactly an earlier one and a step: ends are, of starts and costs.

    Returns:
        Of each number 0, or how far back the earlier one is times 256, and the place of the step from 1 on; the steps.
    """
    pairs = [np.stack(pair, axis=1) for pair in pairwise(columns) if len(pair[0]) == len(pair[1])]
    both = np.concatenate([np.empty((0, 2)), *pairs])
    both = both[both[:, 0] < both[:, 1]]
    start, end = both[np.argsort(both[:, 1], kind="stable")].T  # differences of small numbers are the more exact
    rough = (end - start).astype(np.float32)
    _, first, which, count = np.unique(rough, return_index=True, return_inverse=True, return_counts=True)
    common = np.argsort(-count, kind="stable")[: min(MOST_STEPS, np.count_nonzero(count >= LEAST_USED))]
    steps, step = (end - start)[first[common]], np.full(len(count), -1)
    step[common] = np.arange(len(common))
    to, back = np.searchsorted(table, end), np.searchsorted(table, end) - np.searchsorted(table, start)
    exact = (step[which] >= 0) & (back < 1 << 22)
    exact[exact] &= (start + steps[step[which]])[exact] == end[exact]
    to, code = to[exact], (back * 256 + step[which] + 1)[exact]
    order = np.lexsort((code, code % 256, to))  # of several, the commonest step
    place, of = np.unique(to[order], return_index=True)
    codes = np.zeros(len(table), np.int32)
    codes[place] = code[order][of]
    return codes, steps


def encode_column(values: NDArray[Any]) -> Packed:
    """Pack a column for a page on this machine, where time counts and size does not."""
    if len(values) <= PLAIN:
        return values
    kept = values.astype("<f8" if values.dtype.kind == "f" else "<i4")
    return {"type": kept.dtype.name, "raw": base64.b64encode(kept.tobytes()).decode()}


def _gzip_differences(values: NDArray[Any]) -> str:
    """Pack the differences between neighbours, small ones of either sign as small numbers."""
    steps = np.diff(values.astype("<i4"), prepend=np.int32(0))
    return _gzip_planes((steps << 1) ^ (steps >> 31))


def _gzip_planes(codes: NDArray[Any]) -> str:
    """Pack int32 with the lowest bytes of all first."""
    return pack_bytes(codes.astype("<i4").view("u1").reshape(-1, 4).T.tobytes())
