"""The one door for content that grows when it is read: gzip, text, CSV, JSON, Parquet, pictures.

Every reader of a user's file comes through here. The memory that content needs is counted before
it is taken, and whatever a library raises becomes an InputError or a ValueError.
"""

__all__ = ["gzipped", "json_objects", "limits", "parquet", "picture", "texts"]
