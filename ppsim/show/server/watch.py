"""A file of the user's that the live page follows: a copy of it, made anew whenever it has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from ppsim.errors import InputError


def watch(source: Path, folder: Path) -> Callable[[], tuple[str, int]]:
    """Copy a file to the drops; the function returned does so again if it changed (InputError: unreadable, or code)."""
    if source.suffix == ".py":
        raise InputError(f"--watch {source} is code, which a page does not run", "ppsim run writes its ops as JSON")
    seen: list[tuple[int, int]] = []

    def changes() -> tuple[str, int]:
        try:
            found = source.stat()
            state = found.st_mtime_ns, found.st_size
            if not seen or seen[-1] != state:
                shutil.copyfile(source, folder / source.name)
                seen.append(state)
        except OSError as error:
            if not seen:
                raise InputError(f"--watch {source}: {error.strerror}") from error
        return source.name, len(seen)

    changes()
    return changes
