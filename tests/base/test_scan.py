"""A file that a contributor adds to a scanned folder is named with what it lacks."""

from __future__ import annotations

import importlib
import re
import sys

import pytest

from ppsim.base.scan import load_file, load_files
from ppsim.errors import PpsimError
from tests.commands import answers_with

RUN = "run 1f1b --devices 2 --mb 4"
SWEEP = "sweep 1f1b --devices 2 --mb 4"
PART = """
from dataclasses import dataclass
from ppsim.prices.part import Part

@dataclass(frozen=True)
class Mine(Part):
    \"\"\"Mine.\"\"\"
"""
COLUMN = """
from ppsim.engine.simple.columns import Column

COLUMNS = Column("a", "a", "a", "a", "count", lambda metrics, _: 1.0)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A scanned folder of two files, of which one lacks ``WRITER``."""
    folder = tmp_path / "scanned_folder"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "full.py").write_text("READER, WRITER = 1, 2\n")
    (folder / "half.py").write_text("READER = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(folder.name)
    for name in [each for each in sys.modules if each.partition(".")[0] == folder.name]:
        del sys.modules[name]


def test_the_files_of_a_folder_are_loaded_and_one_that_lacks_a_name_is_refused(package, tmp_path):
    assert [module.READER for module in load_files(package, "READER")] == [1, 3]
    assert load_file(package, "full", "WRITER") == 2
    half = re.escape(str(tmp_path / "scanned_folder" / "half.py"))
    for load in (
        lambda: load_files(package, "READER", "WRITER"),
        lambda: load_file(package, "half", "WRITER"),
    ):
        with pytest.raises(PpsimError, match=f"(?m)^{half} has no WRITER$") as caught:
            load()
        assert caught.value.hint == f"see {package.__file__}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scanned", "content", "command", "lacks"),
    [
        ("ppsim.engine.simple.tables", "", SWEEP, "COLUMNS"),
        (
            "ppsim.engine.simple.tables",
            COLUMN,
            SWEEP,
            "COLUMNS that are a tuple of Column",
        ),
        ("ppsim.prices.parts", PART, RUN, "place in Mine"),
        ("ppsim.prices.parts", "", RUN, "class derived from Part"),
        ("ppsim.show.files.writers", "", f"{RUN} -o x.svg", "SUFFIXES"),
        ("ppsim.inputs.drafts.readers", "", "check x.csv", "SUFFIXES"),
        ("ppsim.real.traces.readers", "", "read x.csv", "READER"),
        (
            "ppsim.workload.plans.launch",
            "",
            "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --gbs 8 --pp 1 --flags mine",
            "LAUNCHER",
        ),
    ],
)
def test_a_file_of_a_scanned_folder_is_named_with_what_it_lacks(
    scanned, content, command, lacks, tmp_path
):
    (tmp_path / "mine.py").write_text(content)
    (tmp_path / "x.csv").write_text("0F0,0B0\n")
    [[code, out, errors]] = answers_with(scanned, tmp_path, [command.split()])
    assert (code, out) == (1, ""), errors
    assert f"Error: {tmp_path / 'mine.py'} has no {lacks}\n  try: see " in errors.replace(
        " \n       ", " "
    )
