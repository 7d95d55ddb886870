"""The best split of layers into stages."""

__all__ = ["chunks", "partition", "partition_planned", "serving", "split_search", "splits"]
