"""Real machines: what is measured on them, and how far the prediction is from it."""

__all__ = ["calibration", "runs", "traces", "validation"]
