"""Input files: schedules (read as drafts), their faults, and profiles of measured costs."""

__all__ = ["check", "drafts", "profile"]
