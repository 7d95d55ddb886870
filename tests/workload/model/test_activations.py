"""What a layer keeps, against a real layer in torch; and what a whole pipeline does, against a
cluster.
"""

from dataclasses import replace

import pytest

from ppsim.core.costs import costs_for
from ppsim.engine.memory.usage import curves
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.workload.cost.memory import memory_model
from ppsim.workload.layout.layout import build_layout
from ppsim.workload.model.activations import layer_activations
from ppsim.workload.model.model import Layer, Model
from ppsim.workload.model.parallel import Parallel

# Attention whose scores are written out, and dropout, as in 2021.
EAGER = Parallel(flash=False, kernels="eager", sequence_parallel=False, zero=0)


@pytest.mark.torch
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_real_layer_holds_what_the_model_says(recompute):
    """A bf16 transformer layer in torch, and under torch's checkpoint: bytes saved for the
    backward, to 5 %.
    """
    torch = pytest.importorskip("torch")
    model = Model(hidden=256, heads=8, layers=1, seq=128, vocab=0, biases=True)
    held = saved_bytes(torch, model, 2, checkpoint=recompute == "full")
    parallel = replace(EAGER, mbs=2)
    assert held == pytest.approx(layer_activations(model, parallel, Layer(), recompute), rel=0.05)


@pytest.mark.parametrize(
    ("hidden", "heads", "mbs", "measured"),
    [
        (2304, 24, 6, {"1f1b": 30, "zb-1p": 32, "interleaved": 40}),
        (4096, 32, 3, {"1f1b": 39, "zb-1p": 42, "interleaved": 48}),
    ],
    ids=["1.5B", "6.2B"],
)
def test_peaks_are_those_measured_on_a_cluster(hidden, heads, mbs, measured):
    """Qi et al., arXiv 2401.10241, table 4: largest memory of 8 GPUs in GB, printed without
    decimals; within 5 %.

    Their first and last stage hold one layer less, and interleaved puts one layer on each of its
    stages.
    """
    each = {2304: 3, 4096: 4}[hidden]
    for name, gigabytes in measured.items():
        chunks = each if name == "interleaved" else 1
        layers = [each // chunks - 1, *[each // chunks] * (8 * chunks - 2), each // chunks - 1]
        schedule = generate(name, devices=8, chunks=chunks, microbatches=24)
        timeline = simulate(schedule, costs_for(schedule, tf=18, ti=18, tw=9))
        model = Model(hidden, heads, sum(layers), 1024, 51200, biases=True, learned_positions=True)
        parallel = replace(EAGER, pp=8, vp=chunks, mbs=mbs, microbatches=24, schedule=name)
        held = memory_model(model, parallel, schedule.placement.devices, build_layout(layers, 8))
        assert curves(timeline, held).peak.max() / 1e9 == pytest.approx(gigabytes, rel=0.05)


def saved_bytes(torch, model: Model, microbatch: int, checkpoint: bool = False) -> int:
    """Bytes that the forward saves, parameters aside."""
    from torch.utils.checkpoint import checkpoint as recomputed

    h, a, dtype = model.hidden, model.heads, torch.bfloat16
    shapes = {"qkv": (3 * h, h), "proj": (h, h), "up": (4 * h, h), "down": (h, 4 * h)}
    weight = {
        name: torch.randn(shape, dtype=dtype, requires_grad=True) for name, shape in shapes.items()
    }
    bias = {
        name: torch.zeros(shape[0], dtype=dtype, requires_grad=True)
        for name, shape in shapes.items()
    }
    scale = torch.ones(h, dtype=dtype, requires_grad=True)

    def linear(x, name):
        return torch.nn.functional.linear(x, weight[name], bias[name])

    def dropout(x):  # one byte per element of the mask, as on a GPU
        return torch.native_dropout(x, 0.1, True)[0]

    def layer(x):
        mixed = linear(torch.nn.functional.layer_norm(x, (h,), scale), "qkv")
        q, k, v = mixed.view(microbatch, model.seq, 3, a, h // a).permute(2, 0, 3, 1, 4)
        scores = dropout(torch.softmax(q @ k.transpose(-1, -2) * (h // a) ** -0.5, -1))
        x = x + dropout(
            linear((scores @ v).transpose(1, 2).reshape(microbatch, model.seq, h), "proj")
        )
        wide = torch.nn.functional.gelu(
            linear(torch.nn.functional.layer_norm(x, (h,), scale), "up")
        )
        return x + dropout(linear(wide, "down"))

    own = {t.untyped_storage().data_ptr() for t in (*weight.values(), *bias.values(), scale)}
    storages: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(microbatch, model.seq, h, dtype=dtype, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = recomputed(layer, x, use_reentrant=True) if checkpoint else layer(x)
    assert out.shape == x.shape
    return sum(storages.values())
