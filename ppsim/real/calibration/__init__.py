"""Measuring what a pipeline costs on this machine, with torch; torch is imported when something is measured."""

__all__ = ["calibrate", "links", "p2p", "processes", "torch_here", "user_module"]
