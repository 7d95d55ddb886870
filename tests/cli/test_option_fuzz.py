"""The commands' own options in random combinations: each ends with an answer or a refusal, within its limits."""

from __future__ import annotations

import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process"),
]


@pytest.mark.parametrize("seed", range(2))
def test_no_combination_of_options_ends_in_a_traceback_or_without_limit(seed):
    """More of them: ``python -m tests.cli.option_fuzz SEED COUNT``."""
    from tests.cli.option_fuzz import faults

    assert list(faults(seed, 25)) == []
