"""The simple model: exact longest paths of one or many runs, and the metrics of a timeline."""

__all__ = [
    "batch",
    "columns",
    "longest_path",
    "metrics",
    "replay_kernel",
    "segments",
    "steps",
    "terms",
]
