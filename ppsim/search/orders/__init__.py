"""The search for orders: annealing, an exact solver, and what was found before."""

__all__ = ["kept", "optimize", "v_limit"]
