"""Measuring with real torch processes: small shapes, no assertion on any time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsim.errors import InputError
from ppsim.inputs.profile.profile import ITEM_BYTES, PATTERNS, Workload, read, write

torch = pytest.importorskip("torch", reason="measuring needs torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_processes")]

from ppsim.real.calibration import links, memory, ops, p2p, stage  # noqa: E402
from ppsim.real.calibration.calibrate import CalibrationPlan, calibrate  # noqa: E402
from ppsim.real.calibration.processes import ranks  # noqa: E402
from ppsim.real.calibration.stage_ops import backward_functions, stage_ops  # noqa: E402

SMALL = Workload(
    hidden=16, heads=2, sequence=8, microbatch_size=2, layers=1, dtype="float32", vocab=32
)


def test_a_calibration_has_every_part_kind_and_pattern_and_survives_a_file(tmp_path):
    steps: list[float] = []
    profile = calibrate(
        CalibrationPlan(SMALL, "cpu", 3, 1, tuple(p2p.sizes_up_to(16 << 10)), "ppsim"),
        lambda done, what: steps.append(done),
    )
    assert profile is not None
    found = {(op.part, op.kind, op.layers) for op in profile.op}
    assert {("layers", k, n) for k in "FBIW" for n in (0, 1, 2)} <= found
    assert {("embedding", k, 0) for k in "FB"} | {("head", k, 0) for k in "FBIW"} <= found
    assert {("layers", "FB", 1)} == {key for key in found if key[1] == "FB"}
    assert {m.pattern for m in profile.message} == set(PATTERNS)
    assert {f.pattern for f in profile.fit if f.range == "all"} == set(PATTERNS)
    assert all(m.send_ms > 0 and m.receive_ms > 0 for m in profile.message)
    assert SMALL.message_bytes in {m.bytes for m in profile.message}
    assert all(op.n == 3 and op.p10_ms > 0 for op in profile.op)
    assert steps == sorted(steps)
    assert steps[-1] == pytest.approx(1)
    write(profile, str(tmp_path / "p.toml"))
    assert [op.kind for op in read(str(tmp_path / "p.toml")).op] == [op.kind for op in profile.op]


@pytest.mark.parametrize("part", ["layers", "head"])
def test_the_gradients_of_i_and_w_equal_those_of_a_full_backward(part):
    full, half, weight = backward_functions()
    model = Workload(
        hidden=16, heads=2, sequence=8, microbatch_size=2, layers=2, dtype="float64", vocab=32
    )
    module = stage.layers(model, 2, "cpu") if part == "layers" else stage.head(model, "cpu")
    targets = stage.tokens(model, "cpu")
    x = stage.activations(model, "cpu")

    def forward(x):
        return module(x) if part == "layers" else stage.loss(module(x), targets)

    out = forward(x)
    grad = None if part == "head" else torch.randn_like(out)
    (whole_input,) = full((out,), (grad,), (x,))
    whole = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    out = forward(x)
    (split_input,), groups = half([out], None if grad is None else [grad], [x], module.parameters())
    weight(module.parameters(), groups)
    torch.testing.assert_close(split_input, whole_input, rtol=1e-12, atol=1e-14)
    for a, b in zip((p.grad for p in module.parameters()), whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_a_stage_is_causal_and_keeps_its_shape():
    module, x = stage.layers(SMALL, 1, "cpu"), stage.activations(SMALL, "cpu")
    changed = x.detach().clone()
    changed[:, -1] += 1
    before, after = module(x), module(changed)
    assert before.shape == x.shape
    torch.testing.assert_close(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


def test_the_message_size_is_that_of_the_activations():
    for dtype in ITEM_BYTES:
        model = Workload(16, 2, 8, 2, 1, dtype, 32)
        x = stage.activations(model, "cpu")
        assert model.message_bytes == x.numel() * x.element_size()


def test_message_sizes_begin_at_a_kibibyte_and_stop_at_the_largest():
    assert p2p.sizes_up_to(20_000) == [1024, 4096, 16384]
    assert p2p.sizes_up_to(256 << 20)[-1] == 256 << 20


@pytest.mark.parametrize(
    ("hidden", "heads", "hint"),
    [(64, 5, "--heads 4, or --hidden 65"), (10, 64, "--heads 10, or --hidden 64")],
)
def test_heads_that_do_not_divide_are_refused_with_the_nearest_that_do(hidden, heads, hint):
    with pytest.raises(InputError, match="does not divide") as caught:
        calibrate(CalibrationPlan(Workload(hidden, heads, 8, 1, 1, "float32", 0), "cpu"))
    assert caught.value.hint == hint


def test_a_stage_that_cannot_fit_is_refused_before_it_is_built():
    with pytest.raises(InputError, match="GiB are free"):
        calibrate(CalibrationPlan(Workload(1 << 20, 8, 1 << 16, 64, 100, "float32", 0), "cpu"))


def test_activations_are_held_from_f_to_w_and_grow_with_the_layers():
    model = replace(SMALL, layers=2)
    (one, layers, *_, head) = ops.measure_activations(model, "cpu")
    assert (one.layers, layers.layers, head.part) == (1, 2, "head")
    size = model.message_bytes
    assert layers.after_f_bytes - one.after_f_bytes == one.after_f_bytes - size, (
        "every layer adds the same"
    )
    assert layers.after_i_bytes > 2 * size, "W still needs its inputs and gradients"
    assert layers.after_w_bytes == 0
    assert head.after_f_bytes >= size + model.microbatch_size * model.sequence * model.vocab * 4


def test_a_part_whose_weights_need_nothing_holds_what_its_arithmetic_says():
    """y = x @ w keeps x for W; nothing else is made but y and, from I on, its gradient."""
    linear, size = torch.nn.Linear(8, 8, bias=False), 4 * 8 * 4

    def make_input():
        return torch.randn(4, 8).requires_grad_()

    held = memory.activation_bytes(linear, stage_ops(linear, first=False), make_input)
    assert held == (2 * size, 3 * size, 0)


def test_host_staged_messages_name_their_link():
    """The way of a machine with one GPU, here with the buffers on the CPU."""
    rows = []
    with ranks(links._worker, 2, "cpu", True, (1024, 4096), 3, 1, False) as messages:
        for _, found in messages:
            rows += found
    assert [(m.link, m.pattern, m.bytes) for m in rows] == [
        ("host-staged", "ping-pong", n) for n in (1024, 4096)
    ]


def test_only_torchrun_s_variables_make_several_ranks(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert links.launched() == (0, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert links.launched() == (3, 8)
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert links.launched() == (0, 1)


@pytest.mark.gpu
def test_on_a_gpu_times_come_from_its_events(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    profile = calibrate(
        CalibrationPlan(
            replace(SMALL, dtype="bfloat16"),
            "cuda",
            3,
            1,
            tuple(p2p.sizes_up_to(16 << 10)),
            "ppsim",
        )
    )
    assert profile is not None
    assert all(op.host_ms > 0 for op in profile.op)
    assert profile.provenance.device == torch.cuda.get_device_name()
    if torch.cuda.device_count() == 1:
        assert {m.link for m in profile.message} == {"same-device", "host-staged"}
