"""How numbers are written on terminals, in pictures and on pages; ``report_ops.js`` follows the same rules."""

from __future__ import annotations

import math

LARGE = 999_999.5  # from here on all digits before the point are written, and an exponent never


def format_number(value: float, separator: str = "") -> str:
    """Write six digits, and all digits before the point of larger numbers; ``separator`` goes between thousands."""
    if abs(value) < LARGE or not math.isfinite(value):
        return f"{value:{separator}.6g}"
    return f"{value:{separator}.15g}" if value == round(value) else f"{value:{separator}.1f}"


def format_part(value: float, whole: float) -> str:
    """Write a part of a whole: as many digits as matter beside it, a hundred-thousandth of it and no more."""
    if not (math.isfinite(whole) and whole > 0 and math.isfinite(value)):
        return format_number(value)
    return format_number(round(value, max(0, 4 - math.floor(math.log10(whole)))) + 0.0)


def format_share(share: float, blank: str = "") -> str:
    """Write a share in percent with one digit after the point; ``blank`` goes before the sign."""
    if not math.isfinite(share):
        return "infinite"
    return f"{100 * share:{'.1f' if abs(share) < LARGE else '.3g'}}{blank}%"
