"""Writers: one module per format, found by suffix. To add a format, put its module into this
folder.

Each module has ``SUFFIXES``, ``ABILITIES`` (the features of the format) and
``write(document, out, suffix)``.
"""

__all__ = ["csv", "figure", "html", "json"]
