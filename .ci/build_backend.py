"""The build backend: setuptools, from a clean build folder.

setuptools packs whatever an earlier build left in ``build/``, so that a file removed or renamed
since would come back, and every module in ``cli/`` or ``schedules/`` is a command or a schedule.
"""

import shutil
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401 - the hooks that need no change
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)


def build_wheel(wheel_directory: str, *settings: Any) -> str:
    """Build the wheel from the sources alone."""
    shutil.rmtree("build", ignore_errors=True)
    return build_meta.build_wheel(wheel_directory, *settings)
