"""Memory of devices over time, in activations or bytes."""

__all__ = ["report", "usage"]
