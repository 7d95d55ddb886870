"""Readers: one file for each format of real runs.

Each file in this folder is found by a scan. It defines ``READER``, a
:class:`ppsim.real.traces.reader.Reader`.
"""
