"""Dealing sequences over replicas and microbatches: the search, and a step that none can beat."""

__all__ = ["deal", "problem"]
