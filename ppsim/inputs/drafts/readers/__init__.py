"""Readers: one module per format, found by suffix. A file put into this folder is a format that can
be read.

A module here has ``SUFFIXES``, ``matches(text)``, which tells whether a text without a name is of
its format, and ``parse(text, source)``, which makes a :class:`ppsim.core.draft.Draft` or raises
:class:`ppsim.errors.InputError`.
"""

__all__ = ["csv"]
