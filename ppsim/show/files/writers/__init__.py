"""Writers: one module per format, found by suffix. To add a format, put its module into this
folder.

A module here has ``SUFFIXES``, ``ABILITIES``, which say what the format can do, and
``write(document, out, suffix)``.
"""

__all__ = ["csv", "figure", "html", "json"]
