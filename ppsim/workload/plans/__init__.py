"""The search for plans, their flags and ranks, and published runs."""

__all__ = [
    "gains",
    "improve",
    "launcher",
    "layers_by_speed",
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
