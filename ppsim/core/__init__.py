"""The data types: ops, schedules and their builder, costs, timelines, lowered queues, executions,
drafts, curves.
"""

__all__ = [
    "builder",
    "columns",
    "costs",
    "curve",
    "draft",
    "execution",
    "job",
    "lanes",
    "law",
    "lowered",
    "ops",
    "recompute",
    "rounds",
    "schedule",
    "sequences",
    "slices",
    "soundness",
    "split_backward",
    "steps",
    "timeline",
    "waiting",
]
