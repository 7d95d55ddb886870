"""The document, its writers, and conversion between formats."""

__all__ = [
    "chart",
    "convert",
    "document",
    "editing",
    "page_parts",
    "plan_page",
    "provenance",
    "tradeoff",
    "workers",
    "writers",
]
