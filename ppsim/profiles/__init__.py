"""Measured costs: the profile file, the lines fitted to it, its text."""
