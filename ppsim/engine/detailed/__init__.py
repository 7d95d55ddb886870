"""The detailed model: links, clusters, and the event-driven execution of lowered queues."""

__all__ = ["cluster", "execute", "links", "named_links", "spec"]
