"""Measure a pipeline's costs on this machine with torch, which is imported when a measurement
begins.
"""

__all__ = ["calibrate", "links", "machine", "p2p", "processes", "user_module"]
