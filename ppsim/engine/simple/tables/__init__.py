"""Columns of tables: the ``COLUMNS`` of every file in this folder, found by a scan.

``number_of`` computes a number that :class:`ppsim.engine.simple.metrics.Metrics` does not have.
"""
