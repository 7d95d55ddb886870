"""Output: pictures, files, and pages served to a browser."""

__all__ = ["drawing", "files", "server"]
