"""Dealing sequences over replicas and microbatches: the search, and a lower bound on the step."""

__all__ = ["deal", "problem"]
