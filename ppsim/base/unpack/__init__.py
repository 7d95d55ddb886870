"""Decode content that grows when it is read: gzip, text, CSV, JSON, Parquet, pictures.

All readers of users' files use this package. Memory is counted before it is allocated, and
exceptions of libraries are converted to InputError or ValueError.
"""

__all__ = ["gzipped", "json_objects", "limits", "parquet", "picture", "texts"]
