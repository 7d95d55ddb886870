"""Lowered queues: add sends, receives and FSDP ops to queues, and match them."""

__all__ = ["fsdp", "lower", "matching"]
