"""Questions that need several products: explain, diff, check, convert and the live page."""

__all__ = ["view", "view_model"]
