"""Run a user's code: prints go to standard error, exceptions become an InputError with the line."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType

from ppsim.base.text import shorten
from ppsim.errors import InputError, PpsimError

MOST = 500  # characters of the error that the code raised


def run_file(path: str) -> ModuleType:
    """Run a Python file and return its module; it can import files in its folder.

    Raises:
        InputError: there is no such file, or its code fails.
    """
    if not os.path.isfile(path):
        raise InputError(f"cannot read '{path}': No such file or directory", "check the path")
    spec = importlib.util.spec_from_file_location(f"ppsim_user_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[spec.name] = module  # dataclasses look up their module
    try:
        with outside_code(path):
            spec.loader.exec_module(module)
    except InputError:
        del sys.modules[spec.name]
        raise
    return module


@contextmanager
def outside_code(path: str, doing: str = "") -> Iterator[None]:
    """Send prints to standard error, and convert exceptions to InputError.

    Args:
        path: the file whose line the message has, or the name of an installed module.
        doing: the current step of the code, for the message.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (PpsimError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise explain_failure(path, error, doing) from error


def explain_failure(path: str, error: BaseException, doing: str = "") -> InputError:
    """Return the error for a failure in a user's code, with the line that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((f" (line {f.lineno})" for f in reversed(frames) if f.filename.endswith(path)), "")
    if not line and frames and not isinstance(error, SyntaxError):  # which states its line
        line = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    where = f"{path}, {doing}," if doing else path
    if isinstance(error, SystemExit):
        return InputError(
            f"{where} ends the program: sys.exit({error.code}){line}", "leave the exit out of it"
        )
    return InputError(
        f"{where} fails: {type(error).__name__}: {shorten(str(error), MOST)}{line}",
        "fix it, or run it alone to see more",
    )
