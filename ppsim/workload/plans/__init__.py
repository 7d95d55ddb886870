"""The search for plans, their flags and ranks, and published runs beside them."""

__all__ = ["flags", "improve", "published", "ranks", "rows", "search", "software", "space", "task"]
