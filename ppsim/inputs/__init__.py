"""Input files: schedules as drafts, their faults, and measured costs."""

__all__ = ["check", "drafts", "profile"]
