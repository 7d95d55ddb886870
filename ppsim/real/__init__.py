"""Real machines: calibration, runs, recorded and foreign traces, and errors of predictions."""

__all__ = ["calibration", "runs", "traces", "validation"]
