"""GPUs and clusters, and the shares of their peaks that operators reach."""

__all__ = ["efficiency", "hardware"]
