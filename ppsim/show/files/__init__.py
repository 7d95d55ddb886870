"""The document, its writers, and conversion between formats."""

__all__ = ["convert", "document", "plan_page", "provenance", "tradeoff", "workers", "writers"]
