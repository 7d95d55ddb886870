"""The search for plans, their flags and ranks, and published runs beside them."""

__all__ = ["flags", "improve", "nearby", "published", "ranks", "rows", "search", "software", "space", "task"]
