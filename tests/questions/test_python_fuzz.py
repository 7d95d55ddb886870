"""Values of other types in the questions of Python: each call ends with an answer or a refusal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.commands import ROOT, SOURCE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process"),
]


def test_no_value_of_another_type_ends_in_an_error_from_deep_inside():
    """More of them: ``python -m tests.questions.python_fuzz SEED COUNT``."""
    words = [sys.executable, "-m", "tests.questions.python_fuzz", "0", "300"]
    done = subprocess.run(words, cwd=ROOT, env=SOURCE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 of 300 calls of seed 0 end wrongly\n"), (
        done.stderr
    )
