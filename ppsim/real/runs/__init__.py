"""Schedules executed for real over torch.distributed, into a record."""

__all__ = ["record", "session"]
