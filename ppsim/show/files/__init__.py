"""The document, its writers, and conversion between formats."""

__all__ = ["convert", "document", "provenance", "tradeoff", "writers"]
