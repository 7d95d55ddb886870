"""The faults of a draft: ops missing, out of order or in two places, messages that do not match,
deadlocks.
"""

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
