"""Read text in the metadata of a picture, without decoding a large one."""

from __future__ import annotations

from io import BytesIO

MOST_PIXELS = 1 << 26


def picture_text(data: bytes, keys: tuple[str, ...]) -> str:
    """Return the first text of a png or gif under one of these keys; empty if it has none."""
    from PIL import Image

    try:
        with Image.open(BytesIO(data), formats=("PNG", "GIF")) as image:
            if (
                not any(key in image.info for key in keys)
                and image.width * image.height <= MOST_PIXELS
            ):
                image.load()  # a png may have texts after its pixels
            found = next((image.info[key] for key in keys if image.info.get(key)), "")
    except Exception:  # Pillow raises errors of its decoders, and of its limits
        return ""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)
