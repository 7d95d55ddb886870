"""Several schedules or runs side by side: compare, jitter, time against memory."""

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
