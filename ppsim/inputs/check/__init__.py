"""Faults of a draft: ops missing, out of order or on two devices, unmatched messages, deadlocks."""

__all__ = [
    "checks",
    "expected_counts",
    "faults",
    "messages",
    "queues",
    "replicas",
    "runtime",
    "tables",
]
