"""The document, its writers, and conversion between formats."""

__all__ = ["chart", "convert", "document", "plan_page", "provenance", "tradeoff", "workers", "writers"]
