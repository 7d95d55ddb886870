"""Many shapes as one matplotlib path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path


def add_path(axes: Axes, path: Path, **look: Any) -> None:
    """Add a path to axes, snapped to whole dots and without an edge unless ``look`` says so."""
    from matplotlib.patches import PathPatch

    axes.add_artist(PathPatch(path, **{"linewidth": 0, "snap": True} | look))


def rectangles(
    left: NDArray[Any], right: NDArray[Any], top: NDArray[Any], bottom: NDArray[Any]
) -> Path:
    """Return rectangles as one path; the edges have shape (rectangles,)."""
    from matplotlib.path import Path

    corners = np.stack(
        [left, top, right, top, right, bottom, left, bottom, left, top], axis=1
    ).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(corners, np.tile(np.array(codes, Path.code_type), len(left)))
