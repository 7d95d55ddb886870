"""Environment of child processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_script(pickled: bytes = b"") -> Iterator[None]:
    """Start processes during the block without importing the user's script, unless their pickled
    input needs it.

    Python imports it in each process, which would run the script's top level again.
    """
    script = sys.modules["__main__"]
    if b"__main__" not in pickled:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
