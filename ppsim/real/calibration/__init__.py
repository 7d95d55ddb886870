"""Measuring what a pipeline costs on this machine, with torch; torch is imported when something is
measured.
"""

__all__ = ["calibrate", "links", "machine", "p2p", "processes", "user_module"]
