"""A transformer's bytes: published formulas, published measurements, and a real layer in torch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base.toml import Refused
from ppsim.core.costs import costs_for
from ppsim.engine.memory.usage import curves, layer_model, peaks
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.workload.model.transformer import (
    Transformer,
    layer_bytes,
    layer_parameters,
    layers_of,
    memory_model,
    parameters,
    read_model,
    recompute_share,
    with_recompute,
)

SMALL = Transformer(hidden=64, heads=4, layers=8, seq=32, vocab=0, mbs=2)
sizes = st.builds(
    lambda heads, head, **rest: Transformer(hidden=8 * head * heads, heads=heads, **rest),
    heads=st.integers(1, 64),
    head=st.integers(1, 64),
    layers=st.just(8),
    seq=st.integers(1, 4096),
    vocab=st.just(0),
    mbs=st.integers(1, 8),
)


@given(sizes)
def test_layer_bytes_are_the_published_formula(model):
    """sbh(34 + 5as/h) from F on; I keeps 32 sbh for W and so gives back sbh(2 + 5as/h)."""
    s, b, h, a = model.seq, model.mbs, model.hidden, model.heads
    layer = layer_bytes(model)
    assert layer.activations == 34 * s * b * h + 5 * a * s * s * b
    assert (layer.inputs, layer.gradients) == (14 * s * b * h, 18 * s * b * h)
    assert layer.activations - layer.inputs - layer.gradients == 2 * s * b * h + 5 * a * s * s * b


@given(sizes, st.sampled_from([2, 4, 8]))
def test_tensor_parallelism_divides_as_published(model, t):
    """sbh(10 + 24/t + 5as/(ht)); with sequence parallelism sbh/t (34 + 5as/h)."""
    sbh, scores = model.seq * model.mbs * model.hidden, 5 * model.heads * model.seq**2 * model.mbs
    alone = layer_bytes(replace(model, tp=t)).activations
    both = layer_bytes(replace(model, tp=t, sequence_parallel=True)).activations
    assert alone == 10 * sbh + 24 * sbh // t + -(-scores // t)
    assert both == 34 * sbh // t + -(-scores // t)


def test_fp32_and_flash_attention():
    """Four bytes an element, one a mask: sbh(66 + 9as/h). Flash keeps 4 bytes per query and head of the scores."""
    sbh, queries = 64 * 64, 4 * 64
    assert layer_bytes(replace(SMALL, dtype="fp32")).activations == 66 * sbh + 9 * queries * 32
    flash = layer_bytes(replace(SMALL, attention="flash"))
    assert (flash.activations, flash.scores) == (34 * sbh + 4 * queries, 4 * queries)


@given(st.integers(1, 10_000))
def test_layer_parameters_are_the_published_formula(h):
    """12 h^2 (1 + 13/(12h))."""
    assert layer_parameters(replace(SMALL, hidden=h, heads=1)) == 12 * h * h + 13 * h


@pytest.mark.parametrize(
    ("billions", "hidden", "layers"),
    [(1.7, 2304, 24), (7.5, 4096, 36), (39.1, 8192, 48), (145.6, 12288, 80), (529.6, 20480, 105)],
)
def test_parameters_are_those_of_published_models(billions, hidden, layers):
    """Narayanan et al., table 1 (v = 51200, s = 2048), which counts the tied output matrix once; 3 % as they round."""
    model = Transformer(hidden, 1, layers, 2048, 51200)
    count = parameters(model, 1)[0] - model.vocab * hidden - 2 * hidden
    assert count / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize(
    ("hidden", "heads", "mbs", "measured"),
    [
        (2304, 24, 6, {"1f1b": 30, "zb-1p": 32, "interleaved": 40}),
        (4096, 32, 3, {"1f1b": 39, "zb-1p": 42, "interleaved": 48}),
    ],
    ids=["1.5B", "6.2B"],
)
def test_peaks_are_those_measured_on_a_cluster(hidden, heads, mbs, measured):
    """Qi et al., table 4: largest memory of 8 GPUs in GB, printed without decimals; within 5 %.

    Their first and last stage hold one layer less, and interleaved puts one layer on each of its stages.
    """
    each = {2304: 3, 4096: 4}[hidden]
    for name, gigabytes in measured.items():
        chunks = each if name == "interleaved" else 1
        each_stage = each // chunks
        layers = (each_stage - 1, *(each_stage,) * (8 * chunks - 2), each_stage - 1)
        schedule = generate(name, devices=8, chunks=chunks, microbatches=24)
        timeline = simulate(schedule, costs_for(schedule, tf=18, ti=18, tw=9))
        model = memory_model(Transformer(hidden, heads, layers, 1024, 51200, mbs=mbs), schedule)
        assert curves(timeline, model).peak.max() / 1e9 == pytest.approx(gigabytes, rel=0.05)


def test_embedding_and_head():
    """The first stage adds a mask of sbh, the last 4 sbh (1 + v/h); both hold a matrix of v h."""
    schedule = generate("zb-1p", devices=4, microbatches=4)
    bare, whole = (memory_model(replace(SMALL, vocab=v), schedule) for v in (0, 100))
    sbh, matrix = 64 * 64, 100 * 64
    assert (whole.activations - bare.activations).tolist() == [sbh, 0, 0, 4 * sbh + 4 * 64 * 100]
    assert (whole.static["weights"] - bare.static["weights"]).tolist() == [
        2 * (matrix + 32 * 64),
        0,
        0,
        2 * (matrix + 2 * 64),
    ]


def test_recomputation_saves_bytes():
    """Selective drops 5 a s^2 b of each layer, full keeps 2 sbh; the backward works on one layer at a time."""
    schedule = generate("1f1b", devices=4, microbatches=8)
    layer, sbh = layer_bytes(SMALL), 64 * 64
    none, selective, full = (
        memory_model(replace(SMALL, recompute=how), schedule) for how in ("none", "selective", "full")
    )
    assert none.activations[0] == 2 * layer.activations
    assert none.work_b[0] == 0
    assert selective.activations[0] == 2 * 34 * sbh
    assert selective.work_b[0] == 5 * 4 * 32 * 64
    assert full.activations[0] == 2 * 2 * sbh
    assert full.work_b[0] == layer.activations - 2 * sbh


def test_full_recomputation_does_not_spare_what_w_needs():
    """After I, 32 sbh per layer wait for W however little F kept; I has built them up by its end."""
    schedule = generate("zb-1p", devices=4, microbatches=8)
    layer, sbh = layer_bytes(SMALL), 64 * 64
    full = memory_model(replace(SMALL, recompute="full"), schedule)
    assert full.kept[0] == 0
    assert full.stash[0] == 2 * 32 * sbh
    assert full.activations[0] + full.work_i[0] == 32 * sbh + layer.activations


def test_recomputation_costs_time():
    """Full runs the forward again in B and I and in a pair; selective 4s of a layer's 24h + 4s."""
    schedule = generate("dualpipe", devices=4, microbatches=8)
    costs = costs_for(schedule, tf=2, ti=3, tw=5, tfb=6)
    full = with_recompute(costs, recompute_share(replace(SMALL, recompute="full")))
    assert full.time[:, 0].tolist() == [2, 10, 5, 5, 2]
    assert full.pair is not None
    assert full.pair[0] == 8
    assert recompute_share(replace(SMALL, recompute="selective")) == pytest.approx(4 * 32 / (24 * 64 + 4 * 32))
    assert recompute_share(SMALL) == 0


@pytest.mark.parametrize(("zero", "divided"), [(0, ""), (1, "o"), (2, "go"), (3, "wgo")])
def test_zero_divides_states_over_data_parallel_ranks(zero, divided):
    """1 the optimizer's, 2 gradients too, 3 weights too: those are gathered whole while an op runs."""
    schedule = generate("1f1b", devices=4, microbatches=4)
    whole = memory_model(SMALL, schedule)
    model = memory_model(replace(SMALL, zero=zero, dp=4), schedule)
    for name, amount in model.static.items():
        assert (amount == whole.static[name] // (4 if name[0] in divided else 1)).all()
    assert (model.static["weights"] + model.gathered == whole.static["weights"]).all()


def test_mixed_precision_states_are_18_bytes_a_parameter():
    """Weights 2, gradients 4, Adam 12 in 16 bits; 4, 4 and 8 in fp32."""
    schedule = generate("1f1b", devices=4, microbatches=4)
    count = parameters(SMALL, 4)
    for dtype, wanted in (("bf16", (2, 4, 12)), ("fp32", (4, 4, 8))):
        model = memory_model(replace(SMALL, dtype=dtype), schedule)
        assert [(amount == count * size).all() for amount, size in zip(model.static.values(), wanted, strict=True)]


def test_layers_that_do_not_divide_are_refused_with_a_list_that_works():
    """30 layers over 4 stages have no even split; a list of four numbers does."""
    with pytest.raises(InputError, match="30 layers do not divide over 4 stages") as refused:
        layers_of(replace(SMALL, layers=30), 4)
    assert "layers = [8, 8, 7, 7]" in refused.value.hint
    assert layers_of(replace(SMALL, layers=(8, 8, 7, 7)), 4).tolist() == [8, 8, 7, 7]
    with pytest.raises(InputError, match="layers for 4 stages, the schedule has 8"):
        layers_of(replace(SMALL, layers=(8, 8, 7, 7)), 8)


def test_a_stage_without_layers_holds_only_its_ends():
    """Zero layers on a stage: no activation, no recomputed layer."""
    schedule = generate("zb-1p", devices=4, microbatches=4)
    for how in ("none", "selective", "full"):
        model = memory_model(replace(SMALL, layers=(0, 3, 3, 2), recompute=how), schedule)
        assert model.activations[0] == model.stash[0] == model.work_b[0] == model.work_i[0] == 0


def test_peaks_of_a_model_name_their_parts():
    """Every byte at the peak has a name."""
    schedule = generate("zb-1p", devices=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule))
    peak = peaks(timeline, memory_model(replace(SMALL, zero=3, dp=2), schedule))[3]
    assert set(peak.parts) == {
        *("weights", "gradients", "optimizer", "activations", "weight-gradient stash"),
        *("gathered weights", "output tensors", "receive buffers"),
    }


FILE = """schema = "ppsim.model/1"
hidden = 64
heads = 4
layers = 8
seq = 32
vocab = 0
mbs = 2
"""


def test_a_model_file_is_the_model(tmp_path):
    """Every key is a field; layers may be a list."""
    path = tmp_path / "model.toml"
    path.write_text(FILE)
    assert read_model(str(path)) == SMALL
    path.write_text(FILE.replace("layers = 8", "layers = [3, 3, 2]") + 'recompute = "full"\nsequence_parallel = true\n')
    assert read_model(str(path)) == replace(SMALL, layers=(3, 3, 2), recompute="full", sequence_parallel=True)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (FILE.replace("hidden", "hiden"), "line 2: unknown key 'hiden'", "did you mean 'hidden'?"),
        (FILE.replace("hidden = 64\n", ""), "'hidden' is missing", ""),
        (FILE.replace("heads = 4", "heads = 0"), "line 3: 'heads' must be 1 or more, got 0", ""),
        (FILE.replace("heads = 4", "heads = 31"), "line 3: 'heads' must divide hidden = 64, got 31; .* is 32", ""),
        (FILE.replace("heads = 4", "heads = 4.5"), "line 3: 'heads' must be a whole number, got 4.5", ""),
        (FILE.replace("heads = 4", "heads = true"), "line 3: 'heads' must be a whole number, got True", ""),
        (FILE.replace("= 8", "= [8, -1]"), r"line 4: 'layers' must be 0 or more on each stage, got \[8, -1\]", ""),
        (FILE.replace("= 8", "= [8, 0.5]"), "line 4: 'layers' must be a whole number, got 0.5", ""),
        (FILE.replace("= 8", "= []"), "line 4: 'layers' must be", ""),
        (FILE + 'dtype = "int8"', "line 8: 'dtype' must be one of bf16", ""),
        (FILE + "zero = 4", "line 8: 'zero' must be 0, 1, 2 or 3, got 4", ""),
        (FILE + "gradient_bytes = -1", "line 8: 'gradient_bytes' must be 0 or more", ""),
        (FILE + 'keep_outputs = "yes"', "line 8: 'keep_outputs' must be true or false, got 'yes'", ""),
        (FILE + "keep_outputs = 1", "line 8: 'keep_outputs' must be true or false, got 1", ""),
        ("hidden = 64", "no schema, expected 'ppsim.model/1'", "hidden = 4096"),
        ("[model", "not TOML", ""),
    ],
)
def test_a_fault_of_a_model_file_is_named_with_its_line(tmp_path, text, message, hint):
    """What is wrong, where, and what to write instead."""
    path = tmp_path / "model.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        read_model(str(path))
    assert hint in refused.value.hint


def test_a_model_file_that_is_not_there_is_an_error():
    """The message has the path."""
    with pytest.raises(InputError, match=r"cannot read 'nowhere\.toml'"):
        read_model("nowhere.toml")


@pytest.mark.torch
def test_a_real_layer_holds_what_the_model_says():
    """A bf16 transformer layer in torch: bytes saved for the backward, and what its linear layers' W needs, to 5 %."""
    torch = pytest.importorskip("torch")
    model = Transformer(hidden=256, heads=8, layers=1, seq=128, vocab=0, mbs=2)
    held, inputs, gradients = saved_bytes(torch, model)
    layer = layer_bytes(model)
    assert held == pytest.approx(layer.activations, rel=0.05)
    assert inputs == pytest.approx(layer.inputs, rel=0.05)
    assert gradients == pytest.approx(layer.gradients, rel=0.05)


@pytest.mark.torch
def test_recomputation_of_a_real_layer_keeps_its_input():
    """Under torch's checkpoint the layer keeps 2 sbh."""
    torch = pytest.importorskip("torch")
    model = Transformer(hidden=256, heads=8, layers=1, seq=128, vocab=0, mbs=2)
    held, _, _ = saved_bytes(torch, model, checkpoint=True)
    assert held == pytest.approx(layer_bytes(model).boundary, rel=0.05)


def saved_bytes(torch, model: Transformer, checkpoint: bool = False) -> tuple[int, int, int]:
    """Bytes that the forward saves, parameters aside; of the linear layers' inputs; of their outputs' gradients."""
    from torch.utils.checkpoint import checkpoint as recomputed

    h, a, dtype = model.hidden, model.heads, torch.bfloat16
    shapes = {"qkv": (3 * h, h), "proj": (h, h), "up": (4 * h, h), "down": (h, 4 * h)}
    weight = {name: torch.randn(shape, dtype=dtype, requires_grad=True) for name, shape in shapes.items()}
    bias = {name: torch.zeros(shape[0], dtype=dtype, requires_grad=True) for name, shape in shapes.items()}
    scale = torch.ones(h, dtype=dtype, requires_grad=True)
    inputs: dict[int, int] = {}
    gradients: dict[str, int] = {}

    def linear(x, name):
        out = torch.nn.functional.linear(x, weight[name], bias[name])
        inputs[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        if out.requires_grad:
            out.register_hook(lambda gradient: gradients.__setitem__(name, gradient.numel() * gradient.element_size()))
        return out

    def dropout(x):  # one byte per element of the mask, as on a GPU
        return torch.native_dropout(x, 0.1, True)[0]

    def layer(x):
        mixed = linear(torch.nn.functional.layer_norm(x, (h,), scale), "qkv")
        q, k, v = mixed.view(model.mbs, model.seq, 3, a, h // a).permute(2, 0, 3, 1, 4)
        scores = dropout(torch.softmax(q @ k.transpose(-1, -2) * (h // a) ** -0.5, -1))
        x = x + dropout(linear((scores @ v).transpose(1, 2).reshape(model.mbs, model.seq, h), "proj"))
        wide = torch.nn.functional.gelu(linear(torch.nn.functional.layer_norm(x, (h,), scale), "up"))
        return x + dropout(linear(wide, "down"))

    own = {t.untyped_storage().data_ptr() for t in (*weight.values(), *bias.values(), scale)}
    storages: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(model.mbs, model.seq, h, dtype=dtype, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = recomputed(layer, x, use_reentrant=True) if checkpoint else layer(x)
    held = sum(storages.values())
    out.sum().backward()
    return held, sum(inputs.values()), sum(gradients.values())


def test_a_layout_says_where_layers_embedding_and_head_are():
    """The same as layers per stage, with MTP layers as layers and the head moved to the stage of L."""
    model = Transformer(hidden=64, heads=4, layers=(2, 1, 0, 1), seq=32, vocab=100)
    schedule = generate("1f1b", devices=4, microbatches=4)
    listed = memory_model(model, schedule)
    placed = memory_model(replace(model, layers=4), schedule, ("Ett", "t", "", "tL"))
    for name in ("activations", "kept", "stash", "work_b", "work_i", "gathered"):
        assert getattr(placed, name).tolist() == getattr(listed, name).tolist()
    assert {k: v.tolist() for k, v in placed.static.items()} == {k: v.tolist() for k, v in listed.static.items()}
    moved = parameters(replace(model, layers=3), 4, ("Ett", "t", "mL", ""))
    assert moved.tolist() == [*parameters(model, 4)[[0, 1, 3]].tolist(), 0]
    with pytest.raises(InputError, match="the layout has 4 layers, and the model 5"):
        layers_of(replace(model, layers=5), 4, ("Ett", "t", "", "tL"))


def test_activations_are_counted_by_layers():
    timeline = simulate(schedule := generate("1f1b", devices=3, microbatches=4), costs_for(schedule))
    assert curves(timeline, layer_model(schedule, ("Ettt", "", "tmL"))).peak.tolist() == [9, 0, 2]


@pytest.mark.parametrize(("tp", "sequence_parallel"), [(1, False), (2, False), (2, True)])
def test_ends_keep_a_mask_norms_and_logits(tp, sequence_parallel):
    """Of sbh: a byte for the embedding's mask, its gradient for W; at the output two inputs, of which W reads one.

    Logits are kept in 32 bits and their gradient, which W reads, in 16; tensor ranks divide them.
    """
    plain = replace(SMALL, tp=tp, sequence_parallel=sequence_parallel)
    schedule = generate("zb-1p", stages=4, microbatches=4)
    inner, found = (memory_model(model, schedule) for model in (plain, replace(plain, vocab=1000)))
    sbh, logits = 32 * 2 * 64 // (tp if sequence_parallel else 1), 32 * 2 * 1000 // tp
    for name, first, last in (
        ("activations", sbh, 4 * sbh + 4 * logits),
        ("kept", 0, 2 * sbh),
        ("stash", 2 * sbh, 2 * logits),
    ):
        added = getattr(found, name) - getattr(inner, name)
        assert added.tolist() == [first, 0, 0, last], name


def test_a_model_too_large_to_count_is_refused_whatever_makes_it_so():
    """By its states or by its activations alone; a thousandth of a pebibyte is none too large."""
    for large in ({"hidden": 1 << 20, "heads": 1 << 10, "layers": 1 << 10}, {"mbs": 1 << 20, "seq": 1 << 16}):
        with pytest.raises(Refused, match="a model of more than"):
            replace(SMALL, **large)  # type: ignore[arg-type]
    replace(SMALL, hidden=1 << 13, heads=64, layers=80, seq=8192)
