"""A file that a contributor adds to a scanned folder is named with what it lacks."""

from __future__ import annotations

import pytest

from tests.commands import answers_with

pytestmark = pytest.mark.slow
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


@pytest.mark.parametrize(
    ("package", "content", "command", "lacks"),
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
    package, content, command, lacks, tmp_path
):
    (tmp_path / "mine.py").write_text(content)
    (tmp_path / "x.csv").write_text("0F0,0B0\n")
    [[code, out, errors]] = answers_with(package, tmp_path, [command.split()])
    assert (code, out) == (1, ""), errors
    assert f"Error: {tmp_path / 'mine.py'} has no {lacks}\n  try: see " in errors.replace(
        " \n       ", " "
    )
