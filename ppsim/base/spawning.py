"""What processes that start here take with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_script(told: bytes = b"") -> Iterator[None]:
    """Start processes within the block that do not import the script, unless what they are told,
    pickled, is of it.

    Python imports it in each, where it would begin again with what it asks for at its top level.
    """
    script = sys.modules["__main__"]
    if b"__main__" not in told:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
