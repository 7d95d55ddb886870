"""Run the user's code: prints go to standard error, and exceptions become one error that names the
line.
"""

from __future__ import annotations

import importlib.util
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
    """Run a Python file and return its module. It can import its neighbours; installed modules come
    first.

    Raises:
        InputError: there is no such file, or its code fails.
    """
    if not Path(path).is_file():
        raise InputError(f"cannot read '{path}': No such file or directory", "check the path")
    spec = importlib.util.spec_from_file_location(f"ppsim_user_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        with outside_code(path):
            spec.loader.exec_module(module)
    except InputError:
        del sys.modules[spec.name]
        raise
    return module


@contextmanager
def outside_code(path: str, doing: str = "") -> Iterator[None]:
    """Send prints to standard error, and turn anything raised into an InputError.

    Args:
        path: the file whose line is named, or the name of something installed.
        doing: the step that the code is in, for the message.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (PpsimError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise explain_failure(path, error, doing) from error


def explain_failure(path: str, error: BaseException, doing: str = "") -> InputError:
    """Make the error for code of the user's that failed, with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((f" (line {f.lineno})" for f in reversed(frames) if f.filename.endswith(path)), "")
    if not line and frames and not isinstance(error, SyntaxError):  # which says its own line
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
