"""Figures have the same bytes on every machine, whatever fonts and matplotlib's cache of them it
has.
"""

import hashlib
import json
import os
import subprocess
import sys
from itertools import product

import matplotlib
import numpy as np
import pytest
from matplotlib.font_manager import FontEntry, FontProperties, fontManager
from matplotlib.textpath import TextPath, text_to_path

from ppsim.show.drawing.canvas import figure_settings
from ppsim.show.drawing.gantt import layout
from ppsim.show.drawing.letters import text_width
from tests.clock import HANG_S
from tests.commands import SOURCE, process

FONTS = os.path.join(matplotlib.get_data_path(), "fonts", "ttf")
OTHER = os.path.join(FONTS, "DejaVuSerif-Bold.ttf")
NAMES = ("Helvetica", "Arial", "Liberation Sans", "DejaVu Sans")
SUFFIXES = ("svg", "png", "pdf", "gif", "tex")
DIGITS = "0123456789"
COMMAND = ("run", "1f1b", "--stages", "2", "--mb", "2", "-o")


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf", ".tex"])
@pytest.mark.parametrize(
    ("weight", "file"), [("normal", "DejaVuSans.ttf"), ("bold", "DejaVuSans-Bold.ttf")]
)
def test_a_text_is_as_wide_as_in_matplotlibs_own_font_whatever_is_installed(
    monkeypatch, suffix, weight, file
):
    """Another font under each usual name, and a text that no figure has, which nothing
    remembers.
    """
    found = [
        FontEntry(OTHER, name=name, style="normal", weight=400, size="scalable") for name in NAMES
    ]
    monkeypatch.setattr(fontManager, "ttflist", found)
    text, size = f"Wide {suffix} {weight}", 9.5
    with figure_settings(suffix):
        wide = text_width(text, size, weight)
    own = FontProperties(fname=os.path.join(FONTS, file), size=size)
    assert wide == text_to_path.get_text_width_height_descent(text, own, ismath=False)[0]


@pytest.mark.slow
def test_a_cache_that_names_other_fonts_changes_no_byte(tmp_path):
    """Titles, numbers, notes and the unit as a formula, in each format that is laid out with a
    font.
    """
    code = "import matplotlib.font_manager"
    environment = SOURCE | {"MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=HANG_S, check=True)
    (cache,) = tmp_path.glob("fontlist-*.json")
    own = written(tmp_path / "own", environment)
    told = json.loads(cache.read_text())
    sans = next(entry for entry in told["ttflist"] if entry["name"] == "DejaVu Sans")
    told["ttflist"] = [sans | {"name": name, "fname": OTHER} for name in NAMES] + told["ttflist"]
    for entry in told["ttflist"]:
        if entry["name"] in NAMES:
            entry["fname"] = OTHER
    cache.write_text(json.dumps(told))
    assert written(tmp_path / "other", environment) == own


def written(folder, environment) -> dict[str, str]:
    """A digest of each file that a command writes."""
    folder.mkdir()
    files = [word for suffix in SUFFIXES for word in ("-o", f"a.{suffix}")]
    note = ("--note", "why, so@9.5:dev2", "--title", "Four devices")
    done = process(
        "run", "zb-1p", "--devices", "4", "--mb", "12", *note, *files, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return {
        suffix: hashlib.sha256((folder / f"a.{suffix}").read_bytes()).hexdigest()
        for suffix in SUFFIXES
    }


@pytest.mark.parametrize("digits", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_no_number_is_wider_than_the_cells_are_chosen_for(digits):
    """Its ink on either side of the middle of its advance, as a text is centred in its cell; the
    first digit and the last one reach out, all are as wide.
    """
    font = FontProperties(fname=os.path.join(FONTS, "DejaVuSans.ttf"), size=100)
    middle = digits * 100 * 1303 / 2048 / 2  # the font's advance of a digit, in its own units
    reach = []
    ends = [f"{first}{'0' * (digits - 2)}{last}" for first, last in product(DIGITS, repeat=2)]
    for text in ends if digits > 1 else DIGITS:
        box = TextPath((0, 0), text, prop=font).get_extents()
        reach.append(max(middle - box.x0, box.x1 - middle))
    widest = 2 * np.max(reach) / 100
    assert 0.9 * layout.label_width(digits) < widest <= layout.label_width(digits)


@pytest.fixture(scope="module")
def plain_picture(tmp_path_factory):
    """A picture that is drawn without a backend in the environment."""
    file = tmp_path_factory.mktemp("plain") / "plain.png"
    assert process(*COMMAND, str(file)).returncode == 0
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    ["module://matplotlib_inline.backend_inline", "module://none", "nonsense", "template", ""],
)
def test_a_backend_of_the_environment_changes_no_file(plain_picture, tmp_path, backend):
    """Jupyter names its own to every command that a cell starts, and it may not be installed
    here.
    """
    named = tmp_path / "named.png"
    done = process(*COMMAND, str(named), env={"MPLBACKEND": backend})
    assert done.returncode == 0, done.stderr
    assert named.stat().st_size == plain_picture.stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["svg", "nonsense"])
def test_python_draws_and_keeps_the_backend_that_is_installed(backend):
    code = (
        "import os, io, ppsim; figure = ppsim.run('1f1b', stages=2, microbatches=2).plot();"
        "figure.savefig(io.BytesIO(), format='png'); import matplotlib;"
        "named = os.environ['MPLBACKEND']; print(named, named != 'svg' or matplotlib.get_backend())"
    )
    environment = SOURCE | {"MPLBACKEND": backend}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (done.stdout.split(), done.returncode) == (
        [backend, "svg" if backend == "svg" else "True"],
        0,
    ), done.stderr
