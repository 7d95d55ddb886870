"""Measured costs: the profile file, the lines fitted to it, its text."""

__all__ = ["chunk_times", "costs", "lengths", "line_fit", "profile", "scale", "text"]
