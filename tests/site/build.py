"""The site's sources, gathered in one folder, and built by Zensical."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tests.clock import HANG_S
from tests.gallery.figures import entry_section, read_figures
from tests.guides.replay import GUIDES, ROOT
from tests.site.commands import command_pages
from tests.site.fields import with_fields
from tests.site.lessons import lessons_page, write_lessons
from tests.site.python import python_pages
from tests.site.schedules import playground_page, schedule_pages, write_playground

GALLERY = ROOT / "gallery"
SOURCES = GALLERY / "site"
LIVE = ("page.html", "plan.html", "why.html", "front.html")
Nav = list[Any]


def build(out: Path) -> None:
    """Build the whole site into ``out``, in place of what was there.

    Raises:
        RuntimeError: Zensical found a fault; the message is what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder) / "docs"
        nav = gather(docs)
        config = tomllib.loads((SOURCES / "config.toml").read_text())
        config |= {"docs_dir": "docs", "site_dir": "out", "nav": nav}
        # JSON is YAML, which Zensical and mkdocs-material read alike.
        (Path(folder) / "mkdocs.yml").write_text(json.dumps(config))
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(Path(folder) / "out", out)


def gather(docs: Path) -> Nav:
    """Write every page and picture of the site into a folder; return its navigation."""
    docs.mkdir(parents=True)
    for path in GALLERY.iterdir():
        if path.suffix in (".svg", ".gif") or path.name in LIVE:
            shutil.copy(path, docs)
    for folder in ("readme", "guides/images"):
        shutil.copytree(GALLERY / folder, docs / folder)
    for name in ("iframe-worker.js", "keys.js", "style.css"):
        (docs / "assets").mkdir(exist_ok=True)
        shutil.copy(SOURCES / name, docs / "assets")
    pages = {
        path.relative_to(SOURCES).as_posix(): path.read_text() for path in SOURCES.rglob("*.md")
    }
    pages |= {f"guides/{path.name}": path.read_text() for path in GUIDES.glob("*.md")}
    pages["guides/index.md"] = pages.pop("guides/README.md")
    pages["measurements.md"] = (GALLERY / "measurements.md").read_text()
    pages["security.md"] = (ROOT / "SECURITY.md").read_text()
    pages["agents.md"] = (ROOT / "AGENTS.md").read_text().partition("## Change it")[0]
    pages["changelog.md"] = (ROOT / "CHANGELOG.md").read_text()
    pages["pictures.md"] = pictures_page()
    shown = schedule_pages()
    commands = command_pages()
    functions = python_pages()
    pages |= shown | commands | functions
    pages["playground/index.md"] = playground_page()
    pages["lessons/index.md"] = lessons_page()
    for name, text in pages.items():
        target = docs / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(as_site_page(with_fields(text)))
    write_playground(docs / "playground")
    write_lessons(docs / "lessons")
    return navigation(list(shown), list(commands), list(functions))


def navigation(shown: list[str], commands: list[str], functions: list[str]) -> Nav:
    """Return the navigation: guides in the order of their index, everything else by its list."""
    index = (GUIDES / "README.md").read_text()
    guides = [f"guides/{name}" for name in re.findall(r"\]\((\S+?\.md)\)", index)]
    formats = [f"formats/{name}.md" for name in FORMATS]
    return [
        {"Start": "index.md"},
        {"Guides": ["guides/index.md", *guides]},
        {"Schedules": shown},
        {"Playground": ["playground/index.md", "lessons/index.md", "live.md", "pictures.md"]},
        {
            "Reference": [
                {"Commands": commands},
                {"Python": functions},
                {"File formats": ["formats/index.md", *formats]},
                "agents.md",
            ]
        },
        {
            "Background": [
                "numbers.md",
                "glossary.md",
                "measurements.md",
                "security.md",
                "changelog.md",
            ]
        },
    ]


FORMATS = ("gpu", "cluster", "model", "profile", "ops", "schedule", "json")


def pictures_page() -> str:
    """Return the gallery's figures with their commands; each schedule's pictures are on its
    page.
    """
    figures = read_figures(str(GALLERY / "figures.toml"))
    head = "# Pictures\n\nEach picture is above the command that makes it.\n"
    return "\n".join([head, *(entry_section(entry) for entry in figures)])


def as_site_page(text: str) -> str:
    """Return a page as the site's Markdown: a fence that names a file shows it as the block's
    title.
    """
    return re.sub(r"^```(\w+) (\S+)$", r'``` { .\1 title="\2" }', text, flags=re.MULTILINE)
