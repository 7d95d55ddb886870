"""The commands' own options in random combinations: each ends with an answer or a refusal, within
its limits.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.commands import ROOT, SOURCE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process"),
]


@pytest.mark.parametrize("seed", range(2))
def test_no_combination_of_options_ends_in_a_traceback_or_without_limit(seed):
    """More of them: ``python -m tests.cli.option_fuzz SEED COUNT``.

    From a process of its own: what others have loaded would count as the memory of each case.
    """
    words = [sys.executable, "-m", "tests.cli.option_fuzz", str(seed), "25"]
    done = subprocess.run(words, cwd=ROOT, env=SOURCE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"0 of 25 cases of seed {seed} end wrongly\n"), (
        done.stderr
    )
