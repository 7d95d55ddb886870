"""Names of options that rules speak of together."""

from __future__ import annotations

COSTS = ("tf", "tb", "ti", "tw", "tfb", "tr", "comm", "per", "unit")
LAYER_TIMES = ("t_layer", "t_embedding", "t_head", "t_mtp", "b_over_f")
GIVEN_COSTS = (*COSTS, *LAYER_TIMES, "layout", "profile", "segments")
UNEVEN = ("links", "mb_scale", "slice_scale", "speed")
DETAILED = (
    "p2p",
    "order",
    "channel",
    "cluster",
    "message",
    "unshard",
    "reduce_grad",
    "shapes",
    "t_shape",
)
# which a run with stated times refuses
TIMING = (*GIVEN_COSTS, *UNEVEN, *DETAILED, "recompute")
# ops around a training step
STEP = ("t_optimizer", "post_validation", "t_gather", "t_reduce_grad")
TIMED = ("tf", "ti", "tw", "t_beside", "message")
MODEL = ("hidden", "heads", "sequence", "microbatch_size", "layers", "vocab")
REQUEST = ("ops", "module", "runner", "device", *TIMED, "repeats", "warm_up", "real_time", *MODEL)
MEASURING = (
    *MODEL,
    "module",
    "dtype",
    "device",
    "repeats",
    "warm_up",
    "max_bytes",
    "sizes",
    "note",
    "real_time",
)
