"""Models: sizes, operators and activations, and their division over GPUs."""

__all__ = ["contents", "from_profile", "model", "operators", "parallel"]
