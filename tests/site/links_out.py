"""Links from a page that ppsim wrote to pages of the site."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

END = "</header>"


def add_links(page: Path, links: Mapping[str, str]) -> None:
    """Add links to the end of a page's header; ``links`` are addresses by their text."""
    shown = " · ".join(
        f'<a href="{escape(address)}" style="color: inherit">{escape(text)}</a>'
        for text, address in links.items()
    )
    before, end, after = page.read_text("utf-8").partition(END)
    if not end:
        raise ValueError(f"{page} has no header")
    page.write_text(f"{before}  <p>{shown}</p>\n{end}{after}", "utf-8")
