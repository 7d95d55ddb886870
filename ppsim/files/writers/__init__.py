"""Writers: one module per format, found by suffix. A file put into this folder is a format.

A module here has ``SUFFIXES`` and ``write(document, out, suffix)``.
"""
