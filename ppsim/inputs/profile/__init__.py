"""Measured costs: the profile file, lines fitted to its times, and its summary as text."""

__all__ = ["chunk_times", "costs", "lengths", "line_fit", "profile", "scale", "text"]
