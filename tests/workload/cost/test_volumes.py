"""What a GPU sends in a step: closed forms by kind, and which of it leaves the node."""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.workload.cost.costs import schedule_of
from ppsim.workload.cost.volumes import VOLUMES, sent_bytes
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.model.contents import contents_of, message_bytes, parameters_of_stages
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import Parallel

MACHINE = read_machine("dgx-h100")
DENSE, MIXED = read_model("llama3-8b"), read_model("mixtral-8x7b")


def sent(model, p, schedule="1f1b"):
    return sent_bytes(model, MACHINE, p, schedule_of(schedule, p.pp, p.vp, p.microbatches))


def test_alone_a_gpu_sends_nothing():
    assert not np.any(list(sent(MIXED, Parallel(microbatches=4)).values()))


@pytest.mark.parametrize(("tp", "microbatches"), [(2, 1), (8, 4)])
def test_tensor_ranks_gather_and_scatter_five_times_a_block(tp, microbatches):
    """Attention and MLP of each layer: twice forward, three times backward; or two sums, of two
    gathers each.
    """
    p = Parallel(tp=tp, microbatches=microbatches, mbs=2)
    whole = 2 * DENSE.seq * DENSE.hidden * 2
    found = sent(DENSE, p)
    assert found["tp"] == pytest.approx([32 * 2 * 5 * whole * (tp - 1) / tp * microbatches, 0])
    again = sent(DENSE, replace(p, recompute="full"))["tp"]
    assert again == pytest.approx(found["tp"] * 7 / 5)
    assert sent(DENSE, replace(p, sequence_parallel=False))["tp"] == pytest.approx(
        found["tp"] * 4 / 5
    )
    narrow = sent(DENSE, replace(p, precision="fp8"))["tp"]  # of the five three gather
    assert narrow == pytest.approx(found["tp"] * 3.5 / 5)
    assert sent(DENSE, replace(p, precision="fp8", recompute="full"))["tp"] == pytest.approx(
        found["tp"] * 5 / 5
    )
    assert not np.any([found[kind] for kind in VOLUMES if kind != "tp"])


def test_tensor_ranks_gather_latents_where_attention_has_them():
    """DeepSeek-V3's attention gathers 1536 + 512 + 64 numbers a token in place of 7168: in F, in a
    backward once more, and their gradients' scatter. Its output is as wide as any.
    """
    model = replace(read_model("deepseek-v3"), layers=1, mtp=0, dense_layers=1)
    tp = 8
    p = Parallel(tp=tp)
    state, latent = (2 * model.seq * width * (tp - 1) / tp for width in (7168, 1536 + 512 + 64))
    assert sent(model, p)["tp"][0] == pytest.approx(5 * state + 2 * state + 3 * latent)
    summed = sent(model, replace(p, sequence_parallel=False))["tp"][0]
    assert summed == pytest.approx(2 * (2 + 1) * state + 2 * latent)
    again = sent(model, replace(p, recompute="full"))["tp"][0]
    assert again == pytest.approx(7 * state + 3 * state + 4 * latent)
    # of queries without a latent hidden states are gathered
    lite = replace(read_model("deepseek-v2-lite"), layers=1, mtp=0, dense_layers=1)
    state, latent = (2 * lite.seq * width * (tp - 1) / tp for width in (2048, 2048 + 512 + 64))
    assert sent(lite, p)["tp"][0] == pytest.approx(5 * state + 2 * state + 3 * latent)


@pytest.mark.parametrize(("name", "vp"), [("1f1b", 1), ("interleaved", 2)])
def test_messages_go_both_ways_over_every_stage_boundary(name, vp):
    """With four devices of two GPUs a node has all; with eight GPUs each device is a node of its
    own.
    """
    for tp, far in ((2, 0.0), (8, 1.0)):
        p = Parallel(tp=tp, pp=4, vp=vp, microbatches=8, schedule=name)
        found = sent(DENSE, p, name)["pp"]
        total = 2 * (4 * vp - 1) * 8 / 4 * message_bytes(DENSE, p)
        assert found == pytest.approx([total * (1 - far), total * far])
    # two devices a node: one boundary of three is between nodes
    p = Parallel(tp=4, pp=4, microbatches=8)
    found = sent(DENSE, p)["pp"]
    assert found[1] / found.sum() == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("zero", "of_weight"), [(0, 4 + 4), (1, 4 + 2), (2, 3 * 4 + 2), (3, 3 * 4 + 6 * 2)]
)
def test_replicas_scatter_gradients_and_gather_weights(zero, of_weight):
    """Once a step, or for every one of three microbatches as ZeRO-2 scatters and ZeRO-3 gathers
    twice.
    """
    # all of a sum crosses once between two nodes
    for nodes, crosses in ((2, 8 / 15 if zero == 0 else 1), (3, 1)):
        p = Parallel(dp=8 * nodes, zero=zero, microbatches=3)
        weights = parameters_of_stages(DENSE, p, contents_of(DENSE, p, None)).sum()
        total = weights * of_weight * (1 - 1 / p.dp)
        assert sent(DENSE, p)["dp"] == pytest.approx([total * 7 / 8, total / 8 * crosses])
        narrow = [
            sent(DENSE, replace(p, precision=name, narrow_weights=True))["dp"]
            for name in ("fp8", "mxfp8")
        ]
        # blocks' scales are made where weights arrive
        less = {0: 0, 1: 1, 2: 1, 3: 6}[zero] * weights * (1 - 1 / p.dp)
        assert narrow[0] == pytest.approx([(total - less) * 7 / 8, (total - less) / 8 * crosses])
        assert narrow[1] == pytest.approx(sent(DENSE, p)["dp"])


def test_gradients_are_of_the_stages_of_a_device_in_the_mean():
    p = Parallel(dp=8, pp=2, microbatches=4)
    weights = parameters_of_stages(DENSE, p, contents_of(DENSE, p, None)).sum() / 2
    assert sent(DENSE, p)["dp"].sum() == pytest.approx(weights * (4 + 2) * 7 / 8)
    adapters = sent(DENSE, replace(p, adapters=True))["dp"]
    assert not adapters.any()


@pytest.mark.parametrize("ep", [2, 8])
def test_tokens_go_to_their_experts_and_back(ep):
    """Four all-to-alls a layer, of which the own share stays; replicas of experts are fewer."""
    p = Parallel(dp=8, ep=ep, microbatches=1, dispatch="alltoall", dispatch_bytes=2)
    found, without = sent(MIXED, p), sent(MIXED, replace(p, ep=1))
    tokens = MIXED.seq * MIXED.top_k * MIXED.hidden * 2
    assert found["ep"] == pytest.approx([32 * 4 * tokens * (ep - 1) / ep, 0])
    assert found["dp"].sum() < without["dp"].sum()


def test_context_ranks_pass_keys_and_values_around():
    p = Parallel(cp=4, microbatches=2)
    keys = 2 * DENSE.kv_heads * DENSE.head_dim * 2 * DENSE.seq
    assert sent(DENSE, p)["cp"] == pytest.approx([32 * 3 * keys * 3 / 4 * 2, 0])
