"""Orders by rules, which schedule families use and searches start from."""

__all__ = ["blocks", "encoder", "fill", "heuristics", "offload", "rows", "zbv"]
