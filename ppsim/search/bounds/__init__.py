"""Lower bounds on the time of all orders of the same ops in the same memory."""

__all__ = ["bounds"]
