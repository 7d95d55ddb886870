"""Questions about training a model on a cluster."""

__all__ = []
