"""The search for plans, their flags and ranks, and published runs beside them."""

__all__ = [
    "by_speed",
    "flags",
    "gains",
    "improve",
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
