"""Servers for a browser on this machine."""

__all__ = ["app", "one_file", "page"]
