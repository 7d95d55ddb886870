"""Writers: one module per format, found by suffix. A file put into this folder is a format.

A module here has ``SUFFIXES``, ``ABILITIES``, which say what the format can do, and
``write(document, out, suffix)``.
"""

__all__ = ["csv", "figure", "html", "json"]
