"""Questions about schedules in time and memory."""

__all__ = []
