"""``ppsim serve`` in a process that tests ask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.clock import HANG_S
from tests.commands import SOURCE


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Run ``ppsim serve`` in another process, and yield its address until the end."""
    words = [sys.executable, "-m", "ppsim", "serve", "--port", "0", "--no-open", *options]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=SOURCE
    ) as served:
        assert served.stdout
        try:
            yield served.stdout.readline().strip()
        finally:
            served.terminate()
        assert served.wait(HANG_S) in (143, -15)
