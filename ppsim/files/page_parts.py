"""What pages are put together from: the files beside the writers, and data that scripts read."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.json_output import dump_json

Packed = NDArray[Any] | dict[str, str]
Pack = Callable[[NDArray[Any], int], Packed]  # a column, and up to which length it stays as it is


def read_part(name: str) -> str:
    """Read a template, style or script of a page."""
    return (files("ppsim.files.writers") / name).read_text("utf-8")


def read_style(name: str) -> str:
    """Read a style with the colours of all pages before it."""
    return read_part("theme.css") + read_part(name)


def read_script(name: str) -> str:
    """Read a script without comments and indentation, which a page need not carry."""
    text = re.sub(r"/\*\*.*?\*/", "", read_part(name), flags=re.DOTALL)
    lines = (re.sub(r"(^| )// .*", "", line).strip() for line in text.splitlines())
    return "\n".join(filter(None, lines))


def embed_json(data: dict[str, Any]) -> bytes:
    """Write data for a script element, which no text of the user's can close."""
    return dump_json(data).replace(b"<", b"\\u003c")


def compress_column(values: NDArray[Any], plain: int) -> Packed:
    """Pack a column for a file: floats as they are, integers as int32 differences, little-endian; leave a short one."""
    if len(values) <= plain:
        return values
    if values.dtype.kind != "f":
        return {"type": "int32", "gzip": _gzip(np.diff(values.astype("<i4"), prepend=np.int32(0)))}
    return {"type": values.dtype.name, "gzip": _gzip(values)}


def encode_column(values: NDArray[Any], plain: int) -> Packed:
    """Pack a column for a page on this machine, where time counts and size does not."""
    if len(values) <= plain:
        return values
    kept = values if values.dtype.kind == "f" else values.astype("<i4")
    return {"type": kept.dtype.name, "raw": base64.b64encode(kept.tobytes()).decode()}


def _gzip(values: NDArray[Any]) -> str:
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()
