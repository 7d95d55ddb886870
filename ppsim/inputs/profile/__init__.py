"""Measured costs: the profile file, the lines fitted to it, its text."""

__all__ = ["costs", "lengths", "line_fit", "profile", "scale", "text"]
