"""Orders written by rules: families of schedules use them, and searches start from them."""

__all__ = ["blocks", "encoder", "fill", "heuristics", "offload", "rows", "zbv"]
