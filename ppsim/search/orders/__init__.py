"""The search for orders: annealing, an exact solver, and stored results."""

__all__ = ["kept", "optimize", "v_limit"]
