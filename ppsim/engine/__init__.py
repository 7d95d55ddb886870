"""Times and bytes from queues and costs: the simple and the detailed model, lowering, memory."""

__all__ = ["detailed", "lowering", "memory", "simple"]
