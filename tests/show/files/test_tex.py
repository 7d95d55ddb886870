"""TikZ: cells at their places, compiled where LaTeX is there; no text of a user's is a command."""

import io
import re
import shutil
import subprocess

import pytest

from ppsim.errors import InputError
from ppsim.show.drawing.look import Look, Note
from ppsim.show.files.document import Document
from ppsim.show.files.writers.tex import NAMES, POINT, ROW, escape, write
from tests.cases import timed

LATEX = shutil.which("pdflatex") or shutil.which("tectonic")
HOSTILE = (
    r"""\input{stolen} \write18{touch ran} ^^5cinput{stolen} }\end{tikzpicture}\input stolen %
100% & $x^2$ #1 {a_b} ~ -- < > | "a" `b` [x]; \\ \catcode`\%=12 × − µ é ą ĸ 中 \def\x{}"""
    + "\u202e"
)
CELL = re.compile(
    r"\\filldraw\[fill=ppsim(\d+)\S*,draw=black\] \(([\d.]+),([\d.]+)\) rectangle "
    r"\(([\d.]+),[\d.]+\);"
)


def tex(*timelines, titles=None, width=6.75, **look):
    out = io.BytesIO()
    names = titles or tuple(each.schedule.name for each in timelines)
    write(
        Document(timelines, names, {"command": HOSTILE}, width=width, look=Look(**look)),
        out,
        ".tex",
    )
    return out.getvalue().decode()


def test_each_op_is_a_cell_at_its_time():
    timeline = timed("1f1b", 4, 8)
    scale = (6.75 * POINT - NAMES) / timeline.makespan
    text = tex(timeline)
    rows = [
        (float(left), float(top))
        for _, left, top, _ in (found.groups() for found in CELL.finditer(text))
    ]
    assert len(rows) == len(timeline.schedule) == text.count("text=")
    expected = {
        (round(NAMES + start * scale, 2), device * ROW)
        for start, device in zip(timeline.start, timeline.schedule.device, strict=True)
    }
    assert {(round(left, 2), top) for left, top in rows} == expected


def test_a_devices_name_stands_in_the_middle_of_its_row():
    text = tex(timed("1f1b", 3, 4))
    names = re.findall(r"at \([\d.]+,([-\d.]+)\) \{\\footnotesize Device (\d)\}", text)
    assert [(float(up), int(device)) for up, device in names] == [
        ((device + 0.5) * ROW, device) for device in range(3)
    ]


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


def test_numbers_follow_the_rules_of_figures():
    """Every other number only, above all cells, some of which are narrower."""
    text = tex(timed("1f1b", 8, 16), labels="every:2")
    assert text.count("text=") == 8 * 16
    assert text.rindex("filldraw") < text.index("text=")


def test_no_text_is_a_command():
    """Outside comments, what TeX would run is written as signs; a comment is one line."""
    text = tex(timed("1f1b", 2, 2), timed("gpipe", 2, 2), titles=(HOSTILE, "b\nc"), title=HOSTILE)
    shown = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert not re.search(r"\\(input|write|catcode|def)\b", shown)
    assert shown.count("\\end{tikzpicture}") == 1
    assert all(line.startswith("%") for line in text.splitlines() if "\\input" in line)
    assert escape("\\{") == "\\textbackslash{}\\{"
    assert escape("a--b") == "a-{}-{}b"


def test_a_note_without_room_in_its_row_stands_above_all():
    text = tex(timed("1f1b", 4, 8), notes=(Note("inside", 7.0, 0), Note("above", 14.0, 2)))
    places = {
        name: float(y)
        for y, name in re.findall(r"at \([\d.]+,([\d.]+)\) \{\\footnotesize (inside|above)", text)
    }
    first = min(float(top) for _, _, top, _ in CELL.findall(text))
    assert places == {"inside": pytest.approx(first + ROW / 2), "above": pytest.approx(first / 2)}
    assert text.count("circle (0.8pt)") == 1


@pytest.mark.slow
@pytest.mark.skipif(LATEX is None, reason="no LaTeX on the path")
def test_latex_compiles_it(tmp_path):
    """In a column of 3.3 inches, to its last point; hostile titles read no file and run nothing."""
    notes = (Note("covers", 12.0, 0), Note(HOSTILE[:20], 12.5, 3))
    chart = tex(
        timed("zb-v", 4, 8),
        timed("1f1b", 4, 8),
        width=3.3,
        titles=(HOSTILE, "B"),
        title=HOSTILE,
        notes=notes,
    )
    (tmp_path / "chart.tex").write_text(chart)
    (tmp_path / "stolen.tex").write_text("stolen")
    measure = (
        "\\newsavebox\\chart\\sbox\\chart{\\input{chart.tex}}"
        "\\typeout{\\the\\wd\\chart}\\usebox\\chart"
    )
    document = (
        f"\\documentclass{{article}}\\usepackage{{tikz}}"
        f"\\begin{{document}}{measure}\\end{{document}}"
    )
    (tmp_path / "paper.tex").write_text(document)
    words = (
        [str(LATEX), "--print"]
        if "tectonic" in str(LATEX)
        else [str(LATEX), "-halt-on-error", "-recorder"]
    )
    done = subprocess.run(
        [*words, "paper.tex"], cwd=tmp_path, check=True, capture_output=True, timeout=120, text=True
    )
    [wide] = re.findall(r"^([\d.]+)pt", done.stdout, re.M)
    assert 3.3 * POINT - 1 < float(wide) < 3.3 * POINT + 1
    assert not (tmp_path / "ran").exists()
    for opened in tmp_path.glob("*.fls"):
        assert "stolen" not in opened.read_text()
