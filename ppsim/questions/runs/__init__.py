"""Questions about real runs: measured, recorded, read and predicted."""

__all__ = ["profile"]
