"""What a format can do stands on its module: a file in the folder of writers is a format, whole."""

import sys

import pytest
from click.testing import CliRunner

from ppsim.cli import group
from ppsim.errors import PpsimError
from ppsim.show.files import writers
from ppsim.show.files.document import Abilities, formats, style_of

MARKDOWN = '''
"""Markdown: one line per device."""

from ppsim.core.ops import Kind
from ppsim.show.files.document import Abilities, Document, require_one

SUFFIXES = (".md", ".draft.md")
ABILITIES = Abilities({abilities})


def write(document, out, suffix):
    timeline = require_one(document, suffix)
    lines = [f"- device {{device}}" for device in range(timeline.schedule.n_devices)]
    lines += [
        f"style {{document.style}}, {{len(document.memory)}} curves, "
        f"{{timeline.schedule.n_stages}} stages"
    ]
    lines += [" ".join(sorted({{Kind(kind).name for kind in timeline.schedule.kind}}))]
    out.write("\\n".join(lines).encode())
'''


def run(*args):
    result = CliRunner().invoke(group, list(args), env={"COLUMNS": "100", "NO_COLOR": "1"})
    if isinstance(result.exception, PpsimError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def markdown(tmp_path, monkeypatch):
    """A function that puts a format of these abilities into the folder of writers."""

    def put(abilities):
        folder = tmp_path / "more"
        folder.mkdir()
        (folder / "markdown.py").write_text(MARKDOWN.format(abilities=abilities))
        monkeypatch.setattr(writers, "__path__", [*writers.__path__, str(folder)])
        formats.cache_clear()

    monkeypatch.chdir(tmp_path)
    yield put
    sys.modules.pop("ppsim.show.files.writers.markdown", None)
    monkeypatch.undo()
    formats.cache_clear()


SHAPE = ("--devices", "2", "--mb", "4")


def test_a_format_is_one_file(markdown, tmp_path):
    """By suffix, by --format, through convert, and refused where it cannot serve."""
    markdown("one_schedule=True, memory=True, paper=('.draft.md',)")
    run("run", "-s", "1f1b", *SHAPE, "-q", "-o", "x.md", "-o", "x.draft.md", "-o", "x.json")
    assert (tmp_path / "x.md").read_text().splitlines()[2] == "style screen, 1 curves, 2 stages"
    assert (tmp_path / "x.draft.md").read_text().splitlines()[
        2
    ] == "style paper, 0 curves, 2 stages"
    assert run("run", "-s", "1f1b", *SHAPE, "-q", "-o", "-", "-f", "md").output.startswith(
        "- device 0"
    )
    run("convert", "x.json", "-o", "y.md")
    assert (tmp_path / "y.md").read_text().splitlines()[2] == "style screen, 0 curves, 2 stages"
    with pytest.raises(
        PpsimError, match=r"\.md contains one schedule, and a comparison has several"
    ):
        run("compare", "1f1b", "gpipe", *SHAPE, "-o", "c.md")
    with pytest.raises(PpsimError, match=r"time against memory cannot be written as \.md"):
        run("sweep", "1f1b", *SHAPE, "-o", "c.md")


def test_a_format_without_its_abilities_says_what_it_lacks(markdown, tmp_path):
    """The file and the name, not an internal error."""
    markdown("")
    file = tmp_path / "more" / "markdown.py"
    file.write_text('SUFFIXES = (".md",)\n')
    with pytest.raises(PpsimError, match=r"markdown\.py has no ABILITIES"):
        run("run", "-s", "1f1b", *SHAPE, "-q", "-o", "x.md")


def test_a_format_that_shows_no_memory_gets_none(markdown, tmp_path):
    """Neither by default, nor beside a format that shows it; alone it is refused, and so is a
    figure's look.
    """
    markdown("")
    run(
        "run",
        "-s",
        "1f1b",
        *SHAPE,
        "-q",
        "-o",
        "x.md",
        "-o",
        "x.svg",
        "--memory",
        "--style",
        "paper",
    )
    assert "style paper, 0 curves" in (tmp_path / "x.md").read_text()
    for option in (
        ["--memory"],
        ["--style", "paper"],
        ["--lowered", "--p2p", "overlap", "--comm", "1"],
    ):
        with pytest.raises(PpsimError, match=r"and none is written|needs -o FILE"):
            run("run", "-s", "1f1b", *SHAPE, "-q", "-o", "x.md", *option)


def test_a_format_without_times_takes_queues_with_their_messages(markdown, tmp_path):
    """--lowered writes it, and convert gives it all ops of a file that has messages."""
    markdown("one_schedule=True, times=False, lowered=True")
    kinds = "B F RECV_B RECV_F REDUCE_GRAD SEND_B SEND_F"
    run(
        "run",
        "-s",
        "1f1b",
        *SHAPE,
        "-q",
        "--p2p",
        "overlap",
        "--comm",
        "1",
        "--lowered",
        "-o",
        "x.md",
        "-o",
        "x.csv",
    )
    assert (tmp_path / "x.md").read_text().splitlines()[-1] == kinds
    run("convert", "x.csv", "-o", "y.md")
    assert (tmp_path / "y.md").read_text().splitlines()[-1] == kinds


def test_every_format_says_what_it_can_do():
    for suffix, module in formats().items():
        assert isinstance(module.ABILITIES, Abilities)
        assert set(module.ABILITIES.paper) <= set(module.SUFFIXES)
        assert suffix in module.SUFFIXES


def test_pdf_is_for_papers_unless_the_user_says_otherwise():
    assert [style_of(suffix) for suffix in (".pdf", ".svg", ".png", ".html")] == [
        "paper",
        "screen",
        "screen",
        "screen",
    ]
    assert [style_of(".pdf", "screen"), style_of(".svg", "paper")] == ["screen", "paper"]
