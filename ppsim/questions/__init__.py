"""What users ask, by product: one module a question, a request in, an answer out."""

__all__ = []
