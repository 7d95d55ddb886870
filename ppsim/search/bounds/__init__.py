"""Times that no order of the same ops in the same memory beats."""

__all__ = ["bounds"]
