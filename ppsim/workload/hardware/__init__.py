"""GPUs and clusters, and how close to their peaks operators come."""

__all__ = ["efficiency", "hardware"]
