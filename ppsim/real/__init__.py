"""Real machines: measurements on them, and the error of predictions."""

__all__ = ["calibration", "runs", "traces", "validation"]
