"""From options to a schedule, its costs, its memory and its times."""

__all__ = []
