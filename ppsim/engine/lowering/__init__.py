"""Sends, receives and FSDP ops written out into the queues, and matched with each other."""

__all__ = ["lower", "matching"]
