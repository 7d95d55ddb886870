"""Letters on paper: how wide a text is, and which unit is set as a formula."""

from __future__ import annotations

import re

LONGEST_UNIT = 40  # characters


def is_symbol(unit: str) -> bool:
    """Whether a unit is a letter with an index, such as t_F, which figures write as a formula."""
    return re.fullmatch(r"t_[A-Za-z0-9]", unit) is not None


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Width in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0])
