"""What a built site points to: pages, anchors and files that must be there, and nothing that loads
from elsewhere.
"""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a page loads as it opens, by element; a link that a reader follows may lead anywhere.
LOADED = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "link": "href",
}
FOREIGN_STYLE = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"]?(?:https?:)?//")


class _Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loaded.append(given[LOADED[tag]])


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text("utf-8"))
    return page


def link_faults(site: Path) -> list[str]:
    """List what is wrong: a file or an anchor that is missing, and whatever loads from another
    host.
    """
    faults = []
    for path in sorted(site.rglob("*.html")):
        page, name = _read(path), path.relative_to(site)
        faults += [f"{name}: loads {each}" for each in page.loaded if _is_foreign(each)]
        near = [each for each in (*page.links, *page.loaded) if not _is_foreign(each)]
        faults += [f"{name}: {each} leads nowhere" for each in near if not _leads(path, each, site)]
    for path in sorted(site.rglob("*.css")):
        if FOREIGN_STYLE.search(path.read_text("utf-8")):
            faults.append(f"{path.relative_to(site)}: loads from another host")
    _read.cache_clear()
    _file_of.cache_clear()
    return faults


def _is_foreign(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https")


def _leads(page: Path, address: str, site: Path) -> bool:
    """Whether a link inside the site leads to a file of it and, where it names one, to an anchor
    there.
    """
    parts = urlsplit(address)
    if parts.scheme in ("data", "mailto", "javascript", "blob"):
        return True
    target = page
    if parts.path:
        folder = site if parts.path.startswith("/") else page.parent
        target = folder / unquote(parts.path).lstrip("/")
    found = _file_of(target, site)
    if found is None or not parts.fragment or found.suffix != ".html":
        return found is not None
    return unquote(parts.fragment) in _read(found).anchors


@cache  # all pages of a folder link to the same ones
def _file_of(target: Path, site: Path) -> Path | None:
    """The file of a site that a path leads to, the index of a folder; None where there is none."""
    file = target.resolve()
    if file.is_dir():
        file = file / "index.html"
    return file if file.is_file() and site.resolve() in file.resolve().parents else None
