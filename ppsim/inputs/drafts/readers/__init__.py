"""Readers: one module per format, found by suffix. To add a format, put its module into this
folder.

A module here has ``SUFFIXES``, ``matches(text)``, which tells whether a text without a name is of
its format, and ``parse(text, source)``, which makes a :class:`ppsim.core.draft.Draft` or raises
:class:`ppsim.errors.InputError`.
"""

__all__ = ["csv"]
