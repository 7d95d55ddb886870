"""Times and bytes from queues and costs: the exact model, the detailed model, and their common
parts.
"""

__all__ = ["detailed", "lowering", "memory", "simple"]
