"""Models: their sizes, operators and activations, and how they are divided."""

__all__ = ["contents", "from_profile", "model", "operators", "parallel"]
