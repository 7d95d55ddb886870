"""Comparison and explanation of schedules and runs."""

__all__ = [
    "break_even",
    "changes",
    "compare",
    "critical_path",
    "diff",
    "explain",
    "grid",
    "heat",
    "idle",
    "jitter",
    "link_use",
    "mending",
    "observed",
    "period",
    "reorder",
    "slowdown",
    "tradeoff",
    "views",
]
