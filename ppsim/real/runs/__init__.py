"""Real runs of schedules over torch.distributed, and their records."""

__all__ = ["record", "session"]
