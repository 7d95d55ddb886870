"""Building blocks of pages: templates, styles and scripts, and packed data."""

from __future__ import annotations

import base64
import gzip
import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import chain, count, product
from string import Template, ascii_letters
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.json_output import dump_json
from ppsim.show.drawing.palette import family_look

Packed = NDArray[Any] | dict[str, str]
Pack = Callable[[NDArray[Any]], Packed]
SHORT = 3  # names of at most as many letters are not shortened
PLAIN = 64  # columns of at most as many values stay lists
BITS = 13  # bits of a script that two signs encode
# all visible ASCII characters except ' \\ <, which end a text or a script
SIGNS = "".join(sign for sign in map(chr, range(33, 127)) if sign not in "'\\<")


def read_part(name: str) -> str:
    """Read a template, style or script of a page."""
    return (files("ppsim.show.files.writers") / name).read_text("utf-8")


def looks_of(families: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the colours and the shape of each family's marks on a page, by name."""
    looks = (family_look(number) for number in count())
    return {
        name: {"colour": colour, "shape": shape}
        for name, (colour, shape) in zip(families, looks, strict=False)
    }


def fill_page(
    title: str, part: str, data: Mapping[str, Any], script: str, style: str = "", **body: str
) -> bytes:
    """Make a page from the template and style named ``part``.

    ``style`` is appended to the part's, and ``body`` fills the template's places.
    """
    page = Template(strip_indents(read_part("page.html"))).substitute(
        title=html.escape(title),
        style=strip_spaces(join_parts(("theme.css", f"{part}.css")) + style),
        body=Template(strip_indents(read_part(f"{part}.html"))).substitute(
            title=html.escape(title), **body
        ),
        data=embed_json(data).decode(),
        script=script,
    )
    return page.encode()


def verdict_paragraph(verdict: str) -> str:
    """Return the paragraph of a page's verdict; it is hidden if there is none."""
    return f'<p id="verdict"{"" if verdict else " hidden"}>{html.escape(verdict)}</p>'


def join_parts(names: Iterable[str]) -> str:
    """Join the scripts, or the styles, of a page."""
    return "\n".join(map(read_part, names))


@lru_cache(maxsize=8)
def compress_script(script: str) -> str:
    """Return a script that unpacks and runs the given one, at about a quarter of its length."""
    short = shorten_names(squeeze_script(script))
    packed = gzip.compress(short.encode(), 9, mtime=0)
    text = signs_of(packed)
    return _UNPACK.replace("SIGNS", SIGNS).replace("LENGTH", str(len(packed))).replace("TEXT", text)


def signs_of(content: bytes) -> str:
    """Return bytes as text for a page's script: two signs for 13 bits."""
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    rows = np.pad(bits, (0, -len(bits) % BITS)).reshape(-1, BITS)
    values = rows @ (1 << np.arange(BITS)[::-1])
    signs = np.array(list(SIGNS))
    pairs = np.stack([signs[values // len(SIGNS)], signs[values % len(SIGNS)]], axis=1)
    return "".join(pairs.ravel().tolist())


def squeeze_script(script: str) -> str:
    """Return a script without comments and needless blanks.

    Strings, templates and regular expressions stay as they are.
    """
    return _NEEDLESS.sub(lambda found: found[1] or "", script)


def shorten_names(script: str) -> str:
    """Return a squeezed script in which the long names that it declares are shortened.

    A name that also occurs as a property, a key or a word in a string stays.
    """
    declared = set(re.findall(r"\b(?:function\*?|const|let) (\w+)", script))
    texts = " ".join(_static_text(found[1]) for found in _NEEDLESS.finditer(script) if found[1])
    kept = {*_WORD.findall(texts), *_PROPERTY.findall(script), *_keys_of(script)}
    counts = Counter(_WORD.findall(script))
    names = [name for name in declared - kept if len(name) > SHORT]
    names.sort(key=lambda name: (-len(name) * counts[name], name))
    letters = (product(ascii_letters, repeat=size) for size in count(2))
    free = (name for name in map("".join, chain.from_iterable(letters)) if name not in counts)
    short = dict(zip(names, free, strict=False))
    return _WORD.sub(lambda found: short.get(found[0], found[0]), script)


def _keys_of(script: str) -> set[str]:
    """Return the names in a squeezed script that are keys, shorthand fields or methods of objects.

    Such a name follows a brace or a comma directly inside braces.
    """
    found = set()
    brackets, before = [""], ""
    for token in _TOKEN.finditer(script):
        sign = token[0]
        if sign in ("{", "(", "["):
            brackets.append(sign)
        elif sign in ("}", ")", "]"):
            brackets.pop()
        elif (
            token[2]
            and brackets[-1] == "{"
            and before in ("{", ",")
            and _AS_KEY.match(script, token.end())
        ):
            found.add(sign)
        before = sign
    return found


def _static_text(literal: str) -> str:
    """Return a string, or a template without its placeholders, unless these contain strings."""
    return re.sub(r"\$\{[^{}`'\"]*\}", " ", literal)


def strip_indents(template: str) -> str:
    """Return a template without indentation."""
    return re.sub(r"^[ \t]+", "", template, flags=re.M)


def strip_spaces(style: str) -> str:
    """Return a style without comments, needless spaces and last semicolons of blocks.

    A space before a quote stays, as it may be inside a quoted text.
    """
    plain = re.sub(r"/\*.*?\*/", "", style, flags=re.S)
    packed = re.sub(r"\s*([{};])\s*", r"\1", plain).replace(";}", "}")
    return re.sub(r'([:,])\s+(?!")', r"\1", packed)


def pack_bytes(content: bytes) -> str:
    """Return bytes as gzip in base64, which the page's scripts unpack."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


_TEXT = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""


def _template(inner: str) -> str:
    """Return the pattern of a template literal whose placeholders may match ``inner``."""
    plain = rf"[^`{{}}'\"]|{_TEXT}|{inner}"
    return rf"`(?:[^`\\$]|\\.|\$(?!\{{)|\$\{{(?:{plain}|\{{(?:{plain})*\}})*\}})*`"


_KEPT = (
    _TEXT,
    _template(_template(_template("(?!)"))),
    # a regular expression, at a position where a value may begin
    r"(?:(?<=[(,=:[!&|?{;])|(?<=[(,=:[!&|?{;] ))"
    r"/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/",
)
_DROPPED = (
    r"//[^\n]*|/\*.*?\*/",
    # blanks next to a sign, except those that keep + + apart, or - -, or / /
    r"(?<![+-]) +(?=[^\w$ /])| +(?=[^\w$ /+-])|(?<=[^\w$ /]) +(?![+-])|(?<=[^\w$ /+-]) +",
    # lines that go on
    r"(?<=[{,;(\[:?&|=])\s+|\s+(?=[.?:&|)\]}])",
)
_NEEDLESS = re.compile(rf"({'|'.join(_KEPT)})|{'|'.join(_DROPPED)}", re.S)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_TOKEN = re.compile(rf"({'|'.join(_KEPT)})|({_WORD.pattern})|\S", re.S)
_PROPERTY = re.compile(r"(?<!\.)\.(\w+)")
_AS_KEY = re.compile(r"[,}:]|=[^=>]|\([^()]*\)\{")
_UNPACK = """// ppsim's own script as gzip, 13 bits as two of 91 signs
const signs = 'SIGNS';
const text = 'TEXT';
const bytes = new Uint8Array(LENGTH);
for (let i = 0, at = 0, bits = 0, held = 0; i < text.length; i += 2) {
  held = held << 13 | signs.indexOf(text[i]) * 91 + signs.indexOf(text[i + 1]);
  for (bits += 13; bits >= 8; at++) bytes[at] = held >> (bits -= 8);
}
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
const textContent = await new Response(stream).text();
document.body.append(
  Object.assign(document.createElement('script'), { type: 'module', textContent }));"""


def embed_json(data: Mapping[str, Any]) -> bytes:
    """Return data as JSON for a script element, which no text of the user can close."""
    return dump_json(dict(data)).replace(b"<", b"\\u003c")


def compress_columns() -> tuple[Pack, Callable[[], dict[str, Any]]]:
    """Return a function that packs columns, and one that makes the table of numbers they share.

    Integers are packed as int32 differences between neighbours. Floats are packed as indices into
    a table of all distinct numbers, as starts, ends, messages and curves share most of them. The
    table stores differences of their bits; nothing is rounded. Make the table last.
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
        table = np.unique(np.concatenate([np.empty(0), *(values for _, values in numbers)]))
        for packed, values in numbers:
            packed["gzip"] = _gzip_differences(np.searchsorted(table, values))
        bits = table.astype("<f8").view("<u8")
        return {
            "type": "float64",
            "gzip": pack_bytes(np.diff(bits, prepend=np.uint64(0)).tobytes()),
        }

    return pack, share


def encode_column(values: NDArray[Any]) -> Packed:
    """Return a column for a page on this machine, encoded fast rather than small."""
    if len(values) <= PLAIN:
        return values
    kept = values.astype("<f8" if values.dtype.kind == "f" else "<i4")
    return {"type": kept.dtype.name, "raw": base64.b64encode(kept.tobytes()).decode()}


def _gzip_differences(values: NDArray[Any]) -> str:
    """Return the differences between neighbours, zigzag encoded, in planes of bytes, as gzip."""
    steps = np.diff(values.astype("<i4"), prepend=np.int32(0))
    codes = (steps << 1) ^ (steps >> 31)
    return pack_bytes(codes.astype("<i4").view("u1").reshape(-1, 4).T.tobytes())
