"""Measurement of a pipeline's costs on this machine; torch is imported only to measure."""

__all__ = ["calibrate", "links", "machine", "p2p", "processes", "user_module"]
