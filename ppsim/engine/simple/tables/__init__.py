"""Numbers of tables: each file's ``COLUMNS``, found by a scan, add to all tables.

A number that Metrics does not have is computed by its ``number_of``.
"""
