"""Questions that need several products: why, what if, what differs, what is wrong."""

__all__ = ["view", "view_model"]
