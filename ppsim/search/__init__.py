"""Find the best order of ops and split of layers, and prove how good they are."""

__all__ = ["bounds", "dealing", "orders", "problem", "rules", "splits"]
