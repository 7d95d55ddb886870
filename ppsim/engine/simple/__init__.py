"""The exact longest-path model of one or many runs, and the numbers read off it."""

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
