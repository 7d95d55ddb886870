"""What is served to a browser on this machine."""

__all__ = ["app", "connections", "one_file", "page"]
