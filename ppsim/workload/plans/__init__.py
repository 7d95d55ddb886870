"""The search for plans, their flags and ranks, and published runs."""

__all__ = [
    "by_speed",
    "gains",
    "improve",
    "launcher",
    "nearby",
    "operation",
    "published",
    "rank_chart",
    "ranks",
    "rows",
    "search",
    "software",
    "space",
    "split_chart",
    "task",
]
