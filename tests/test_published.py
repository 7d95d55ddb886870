"""Rows of research tables become rows of keys."""

import pytest

from tests.published import plain_row

ROW = {
    "model": "GPT 145.6B",
    "framework": "Megatron-LM (SC21)",
    "schedule": "interleaved where pp > 1",
    "vp": None,
}


@pytest.mark.parametrize(
    ("notes", "keys"),
    [
        ({"model": "DeepSeekV3 (w/o MTP)"}, {"model": "deepseek-v3", "mtp": 0}),
        ({"model": "LLAMA3.1_405B proxy, 8 layers"}, {"model": "llama3-405b", "layers": 8}),
        ({"model": "MPT 7b"}, {"model": "MPT 7b"}),
        ({"precision": "FP8-MX"}, {"precision": "mxfp8"}),
        ({"precision": "see release notes"}, {"precision": None}),
        ({"schedule": "1F1B, synchronous P2P"}, {"schedule": "1F1B", "overlap_p2p": False}),
        (
            {"recompute": "block, 1 layer per virtual stage (32 of 61)"},
            {"recompute": "full", "recompute_layers": 1},
        ),
        (
            {"recompute": "selective + sequence parallel"},
            {"recompute": "selective", "sequence_parallel": True},
        ),
        ({"recompute": "norm, act (selective)"}, {"recompute": "layernorm, moe_act"}),
        (
            {"recompute": "ids 0,3", "layout": "Et|tt|tL", "pp": 3, "model": "llama3-8b, 4 layers"},
            {"recompute": "full", "recompute_layers": [1, 0, 1]},
        ),
        ({"task": "LoRA Performance", "mfu_pct": 3}, {"adapters": True, "mfu_pct": None}),
        ({"local_batch": 6, "dp": 2}, {"gbs": 12, "local_batch": None}),
        ({"derived_step_s": 3.0}, {"step_s": 3.0}),
        ({"memory_GB": 30, "gbs": 8, "mbs": 1}, {"memory_alloc_GiB": 30e9 / 2**30}),
        ({"peak_by_rank_MB": {"0": 2048, "1": 4096}}, {"memory_alloc_GiB": 4.0}),
        (
            {"architecture": {"layers": 2, "kv": 4, "params_B": 1}},
            {"architecture": {"layers": 2, "kv_heads": 4}},
        ),
    ],
)
def test_notes_become_keys(notes, keys):
    """What a note says in words is a key; a row of keys stays as it is."""
    found = plain_row(ROW | notes)
    assert {key: found.get(key) for key in keys} == keys
    assert plain_row(found) == found


def test_flops_of_2021_count_recompute_and_attentions_whole_square():
    """96 B s l h^2 (1 + s/(6h) + V/(16 l h)): arXiv 2104.04473, equation 3."""
    l, h, s, V = 96, 12288, 2048, 51200  # noqa: E741
    counted = 96 * 128 * s * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h)) / 64 / 10 / 1e12
    row = ROW | {"model": "GPT 175B", "tflops_per_gpu": counted, "gbs": 128, "seq": s, "gpus": 64}
    assert plain_row(row)["step_s"] == pytest.approx(10.0)
