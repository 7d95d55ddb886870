"""What devices hold over time, in activations or bytes."""

__all__ = ["comparable", "report", "usage"]
