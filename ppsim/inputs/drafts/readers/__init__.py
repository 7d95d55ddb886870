"""Readers: one module per format. To add a format, put its module into this folder.

A module here has ``SUFFIXES``, ``matches(text)``, which returns whether a text without a file name
is in its format, and ``parse(text, source)``, which returns a :class:`ppsim.core.draft.Draft` or
raises :class:`ppsim.errors.InputError`.
"""

__all__ = ["csv"]
