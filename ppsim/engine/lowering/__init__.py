"""Sends, receives and FSDP ops written out into the queues, and matched with each other."""

__all__ = ["fsdp", "lower", "matching"]
