"""Orders written by rule, in one go: what families of schedules are, and where a search starts."""

__all__ = ["blocks", "encoder", "fill", "heuristics", "offload", "rows", "zbv"]
