"""Start child processes without running the user's script in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_script(pickled: bytes = b"") -> Iterator[None]:
    """Keep processes started in the block from importing the user's script, unless their pickled
    input needs it.

    By default Python imports it in each process, which runs the top level of the script again.
    """
    script = sys.modules["__main__"]
    if b"__main__" not in pickled:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
