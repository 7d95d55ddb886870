"""How far the prediction is from what was measured."""

__all__ = ["analyse", "jobs", "overlay", "traced", "verdict"]
