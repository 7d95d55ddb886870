"""From queues and costs to times and bytes: the exact model, the detailed one, and what both stand
on.
"""

__all__ = ["detailed", "lowering", "memory", "simple"]
