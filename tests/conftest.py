"""Shared fixtures and hypothesis profiles."""

from hypothesis import settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile("ppsim", deadline=None)
settings.load_profile("ppsim")
