"""Prediction errors of measured runs."""

__all__ = ["analyse", "jobs", "overlay", "trace_records", "verdict"]
