"""The search for orders: annealing, an exact solver, and stored results."""

__all__ = ["optimize", "stored_rows", "v_limit"]
