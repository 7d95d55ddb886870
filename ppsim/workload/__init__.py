"""Models, machines, their costs in time and memory, and plans."""

__all__ = ["cost", "hardware", "layout", "model", "plans"]
