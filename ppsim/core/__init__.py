"""The nouns: ops, schedule, builder, costs, timeline, lowered queues, execution, draft, curve."""

__all__ = [
    "builder",
    "columns",
    "costs",
    "curve",
    "draft",
    "execution",
    "job",
    "lanes",
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
