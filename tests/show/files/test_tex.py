"""TikZ: cells at their places, compiled where LaTeX is there; no text of a user's is a command."""

import io
import re
import shutil
import subprocess

import pytest

from ppsim.errors import InputError
from ppsim.show.drawing.look import Look
from ppsim.show.files.document import Document
from ppsim.show.files.writers.tex import NAMES, POINT, ROW, escape, write
from tests.cases import timed

LATEX = shutil.which("pdflatex") or shutil.which("tectonic")
HOSTILE = r"\input{/etc/passwd} \write18{id} 100% & $x^2$ #1 {a_b} ~"
CELL = re.compile(
    r"\\filldraw\[fill=ppsim(\d+)\S*,draw=black\] \(([\d.]+),([\d.]+)\) rectangle \(([\d.]+),[\d.]+\)(.*);"
)


def tex(*timelines, titles=None, **look):
    out = io.BytesIO()
    names = titles or tuple(each.schedule.name for each in timelines)
    write(Document(timelines, names, {"command": HOSTILE}, look=Look(**look)), out, ".tex")
    return out.getvalue().decode()


def test_each_op_is_a_cell_at_its_time():
    timeline = timed("1f1b", 4, 8)
    scale = (6.75 * POINT - NAMES) / timeline.makespan
    cells = [found.groups() for found in CELL.finditer(tex(timeline)) if "rectangle" in found[0]]
    rows = [(float(left), float(top)) for _, left, top, _, text in cells if text]
    assert len(rows) == len(timeline.schedule)
    expected = {
        (round(NAMES + start * scale, 2), device * ROW)
        for start, device in zip(timeline.start, timeline.schedule.device, strict=True)
    }
    assert {(round(left, 2), top) for left, top in rows} == expected


def test_the_look_of_figures_holds():
    """Base, title, palette and window."""
    text = tex(timed("1f1b", 2, 4), base=1, title="Own", palette="mono", window=(0, 5), labels="op")
    assert "Device 1" in text
    assert "Device 0" not in text
    assert "Own" in text
    assert "{303030}" in text
    assert len(text) < len(tex(timed("1f1b", 2, 4)))


def test_what_tex_would_take_minutes_for_is_refused():
    with pytest.raises(InputError, match="TikZ would draw"):
        tex(timed("1f1b", 32, 128))


def test_no_text_is_a_command():
    text = tex(timed("1f1b", 2, 2), timed("gpipe", 2, 2), titles=(HOSTILE, "b\nc"))
    assert "\\input" not in text.replace(f"% {HOSTILE}", "")
    assert "\\write" not in text.replace(f"% {HOSTILE}", "")
    assert escape("\\{") == "\\textbackslash{}\\{"
    assert all(line.startswith("%") for line in text.splitlines() if HOSTILE in line)


@pytest.mark.slow
@pytest.mark.skipif(LATEX is None, reason="no LaTeX on the path")
def test_latex_compiles_it(tmp_path):
    """Two timelines, one with a hostile title, in an article: a document of one page comes out."""
    (tmp_path / "chart.tex").write_text(tex(timed("zb-v", 4, 8), timed("1f1b", 4, 8), titles=(HOSTILE, "B")))
    body = "\\input{chart.tex}"
    document = f"\\documentclass{{article}}\\usepackage{{tikz}}\\begin{{document}}{body}\\end{{document}}"
    (tmp_path / "paper.tex").write_text(document)
    words = [str(LATEX), "paper.tex"] if "tectonic" in str(LATEX) else [str(LATEX), "-halt-on-error", "paper.tex"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert (tmp_path / "paper.pdf").stat().st_size > 5_000
