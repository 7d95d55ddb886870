"""Files read as drafts: a draft is the schedule of a file with all its faults."""

__all__ = ["read", "readers"]
