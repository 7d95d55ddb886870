"""Compare measured runs with predictions."""

__all__ = ["analyse", "jobs", "overlay", "trace_records", "verdict"]
