"""What a pipeline that serves holds: keys and values by kind of layer, and the published case."""

import json
from typing import Any

import numpy as np
import pytest

from ppsim.workload.cost.serving import Served, find_held, state_bytes, tokens_in
from ppsim.workload.model.model import count_parameters, read_model
from tests.commands import answer

GIB = 2.0**30


def numbers(*words: str) -> Any:
    return json.loads(answer(*words, "--json")[1])


@pytest.mark.parametrize(
    ("name", "mixer", "width"),
    [
        ("llama3-70b", "attention", 2 * 8 * 128),  # 8 groups of queries
        ("gpt3-175b", "attention", 2 * 96 * 128),
        ("deepseek-v3", "attention", 512 + 64),  # latent attention
        ("deepseek-v3.2", "sparse", 512 + 64 + 128),  # and the keys of its indexer
    ],
)
def test_keys_and_values_of_a_token(name, mixer, width):
    """In 16 bits, for a sequence of one block."""
    found = state_bytes(read_model(name, 4096), mixer, Served(context=16, block=16))
    assert found == 16 * 2 * width


def test_tensor_parallel_ranks_share_heads_but_no_latent():
    """Of 8 groups each of 4 ranks has two, each of 16 ranks still one; latent vectors are on every
    rank.
    """
    llama, deepseek = read_model("llama3-70b"), read_model("deepseek-v3", 4096)
    one = state_bytes(llama, "attention", Served())
    assert state_bytes(llama, "attention", Served(tp=4)) == one / 4
    assert state_bytes(llama, "attention", Served(tp=16)) == one / 8
    assert state_bytes(deepseek, "attention", Served(tp=8)) == state_bytes(
        deepseek, "attention", Served()
    )


def test_windows_and_states_do_not_grow_with_the_sequence():
    """GPT-OSS has every second layer with a window of 128 tokens; Qwen3-Next three of four with a
    state.
    """
    short, long = (Served(context=n) for n in (4096, 65536))
    window = read_model("gpt-oss-20b")
    assert (
        state_bytes(window, "window", short)
        == state_bytes(window, "window", long)
        == 128 * 2 * 2 * 8 * 64
    )
    assert state_bytes(window, "attention", long) == 16 * state_bytes(window, "attention", short)
    hybrid = read_model("qwen3-next-80b-a3b", 4096)
    held = state_bytes(hybrid, "delta", short)
    assert held == state_bytes(hybrid, "delta", long)
    # 32 heads of 128 x 128; of the last three tokens what a convolution of four reaches back to
    assert held == 2 * (32 * 128 * 128 + 3 * (32 * 128 + 2 * 16 * 128))


@pytest.mark.parametrize(
    "name", ["llama3-8b", "gpt-oss-20b", "deepseek-v3", "mixtral-8x7b", "qwen2.5-7b"]
)
def test_weights_are_those_of_the_model(name):
    """All stages together hold every parameter once, in 16 bits."""
    model = read_model(name, 4096)
    held = find_held(model, Served())
    assert held.weights.sum() + held.embedding + held.head == pytest.approx(
        2 * count_parameters(model)
    )


def test_tokens_come_in_whole_blocks():
    """A sequence of 100 tokens takes 7 blocks of 16; a room of two and a half has 17 of them."""
    served = Served(context=100)
    assert tokens_in(np.array([2.5, 0.0, -1.0]), np.array([1.0, 1.0, 1.0]), served).tolist() == [
        17 * 16,
        0,
        0,
    ]
    assert tokens_in(np.array([1.0]), np.array([0.0]), served).tolist() == [np.inf]


LLAMA = ("--model", "llama3-70b", "--devices", "8", "--weight-bits", "8")


def test_the_published_case():
    """vLLM 6920: Llama-3-70B-FP8 on 8 L4: 1,476 blocks with even stages, 3,078 with fewer layers at
    the ends.

    What a GPU has for weights and cache is not stated; the even split says it, and the other number
    follows.
    """
    cap = ("--cap", "11087MiB")
    even = numbers("memory", "decode", "--serve", *LLAMA, *cap)
    assert even["blocks"] == 1476
    assert even["deciding_device"] in (0, 7)
    assert even["devices"][0]["weights"] - even["devices"][1]["weights"] == pytest.approx(
        2.1e9, rel=0.01
    )
    best = numbers("partition", "decode", "--serve", "tokens", *LLAMA, *cap)
    assert best["blocks"] == pytest.approx(3078, rel=0.03)
    assert best["even"]["blocks"] == 1476
    assert (best["split"][0], best["split"][-1]) == (9, 9)
    again = numbers("memory", "decode", "--serve", *LLAMA, *cap, "--layout", best["layout"])
    assert again["blocks"] == best["blocks"]
    assert again["devices"] == best["memory"]["devices"]


def test_the_deciding_stage_is_named():
    """In words, and where nothing fits as an error with the exit code 1."""
    code, text, _ = answer("memory", "--serve", *LLAMA, "--cap", "12GiB")
    assert code == 0
    assert "blocks of 16 tokens fit" in text
    assert "decides" in text
    code, _, said = answer("memory", "--serve", *LLAMA, "--cap", "9GiB")
    assert code == 1
    assert "exceed its memory" in said
    experts = ["--model", "deepseek-v3", "--devices", "2", "--weight-bits", "8", "--cap", "75GiB"]
    code, text, said = answer("memory", "decode", "--serve", *experts, "--tp", "8")
    assert code == 1
    assert "a higher --ep" in said
    assert answer("memory", "decode", "--serve", *experts, "--tp", "8", "--ep", "8")[0] == 0
    small = ["--model", "llama3-8b", "--devices", "1", "--cap", "75GiB"]
    assert "decode on 1 device: " in answer("memory", "decode", "--serve", *small)[1]
    code, _, said = answer("partition", "decode", "--serve", "tokens", *LLAMA, "--cap", "8GiB")
    assert code == 1
    assert "no split of 80 layers" in said


def test_by_period_the_longest_stage_decides():
    """A head of three layers' time takes layers from its stage; caps of devices that differ are
    kept to.
    """
    words = (
        "partition",
        "decode",
        "--devices",
        "4",
        "--mb",
        "4",
        "--num-layers",
        "17",
        "--t-head",
        "3",
    )
    found = numbers(*words, "--serve", "period")
    assert (found["split"], found["period"], found["even"]["period"]) == ([5, 5, 5, 2], 20, 28)
    slow = numbers(*words, "--serve", "period", "--speed", "1,1,1,0.5")
    assert slow["split"][-1] == 0
    fits = (
        "partition",
        "decode",
        "--serve",
        "period",
        *LLAMA,
        "--cap",
        "12GiB,12GiB,12GiB,12GiB,12GiB,12GiB,12GiB,7GiB",
    )
    assert numbers(*fits)["split"][-1] < 7


REFUSED = [
    (("memory", "1f1b", "--serve", *LLAMA, "--cap", "9GiB"), "1f1b trains"),
    (("memory", "--serve", "--devices", "8", "--cap", "9GiB"), "needs a model"),
    (("memory", "decode", "--mb", "4", *LLAMA[:4]), "decode does not train"),
    (("memory", "--serve", *LLAMA), "needs the memory"),
    (("memory", "--serve", *LLAMA, "--cap", "9"), "has no unit"),
    (("memory", "--serve", *LLAMA, "--cap", "9GiB", "--tf", "2"), "no time changes"),
    (("memory", "--serve", *LLAMA, "--cap", "9GiB", "--te", "2"), "no time changes"),
    (("memory", "--serve", *LLAMA, "--cap", "9GiB", "--feedback", "2"), "no time changes"),
    (
        ("memory", "--serve", *LLAMA, "--cap", "9GiB", "--dp", "2"),
        "cannot be combined with --serve",
    ),
    (("memory", "--serve", *LLAMA, "--cap", "9GiB", "--tp", "3"), "does not divide"),
    (("memory", "--serve", *LLAMA, "--cap", "9GiB,8GiB"), "2 numbers for 8 devices"),
    (("memory", "--serve", *LLAMA, "--cap", "12GiB", "-o", "x.svg"), "--serve has none"),
    (
        ("memory", "1f1b", "--devices", "4", "--mb", "8", "--kv-bits", "8"),
        "needs --serve",
    ),
    (
        ("partition", "decode", "--serve", "tokens", "--devices", "4", "--num-layers", "8"),
        "needs a model",
    ),
    (("partition", "decode", "--serve", "period", "--devices", "4"), "number of layers is missing"),
    (("partition", "decode", "--serve", "period", *LLAMA, "--num-layers", "8"), "not clear"),
    (("partition", "decode:2", "--serve", "period", *LLAMA), "one stage per device"),
    (("partition", "1f1b", "--serve", "period", *LLAMA), "1f1b trains"),
    (
        (
            "partition",
            "1f1b",
            "--feedback",
            "1",
            "--devices",
            "4",
            "--mb",
            "4",
            "--num-layers",
            "8",
        ),
        "simulates one round",
    ),
    (("partition", "forward-only", "--serve", "period", *LLAMA, "--feedback", "1"), "no loop"),
]


@pytest.mark.parametrize(("words", "why"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_what_has_no_meaning_is_refused(words, why):
    code, _, said = answer(*words)
    assert code == 2
    assert why in said
