"""Decompress gzip, up to a size and up to a ratio to the packed size."""

from __future__ import annotations

import gzip
import io
import zlib

from ppsim.base.unpack.limits import too_large
from ppsim.errors import InputError

MAGIC = b"\x1f\x8b"
MOST_RATIO = 100  # of unpacked to packed bytes; real traces and tables have 4 to 30
ANY_RATIO = 16 << 20  # unpacked bytes up to which the ratio is not limited
_CHUNK = 1 << 20


def unzip(data: bytes, name: str, largest: int) -> bytes:
    """Return gzip decompressed, up to ``largest`` bytes; other content is returned unchanged.

    Raises:
        InputError: the content is damaged, or too large when decompressed.
    """
    if not data.startswith(MAGIC):
        return data
    pieces, size = list[bytes](), 0
    by_ratio = max(ANY_RATIO, MOST_RATIO * len(data))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while size <= min(largest, by_ratio) and (piece := file.read(_CHUNK)):
                pieces.append(piece)
                size += len(piece)
    except (EOFError, OSError, zlib.error) as error:
        hint = "fetch or make it again"
        raise InputError(f"{name} is gzipped and incomplete: {error}", hint) from error
    if size > largest:
        raise too_large(f"{name}, decompressed,", largest)
    if size > by_ratio:
        what = f"{name}, decompressed, is more than {MOST_RATIO} times as large"
        raise InputError(what, "the file that gunzip makes of it, if you trust it")
    return b"".join(pieces)
