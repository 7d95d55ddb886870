"""Readers: one file for each format of real runs. A file put into this folder is a reader.

A module here has ``READER``, a :class:`ppsim.real.traces.reader.Reader`.
"""
