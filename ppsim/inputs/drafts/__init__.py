"""Files read as drafts: schedules as a file states them, faults and all."""

__all__ = ["read", "readers"]
