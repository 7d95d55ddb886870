"""Data-parallel replicas, the lengths of their sequences, and the dealing of sequences to them."""

__all__ = ["dealing", "lengths", "replicas"]
