"""Measuring with real torch processes: small shapes, no assertion on any time."""

from __future__ import annotations

import pytest

from ppsim.errors import InputError
from ppsim.profile import ITEM_BYTES, Model, read, write

torch = pytest.importorskip("torch", reason="measuring needs torch")
pytestmark = pytest.mark.torch

from ppsim.measure import ops, p2p, stage  # noqa: E402
from ppsim.measure.calibrate import Plan, calibrate  # noqa: E402

SMALL = Model(hidden=16, heads=2, sequence=8, microbatch_size=2, layers=1, dtype="float32", vocab=32)


def test_a_calibration_has_every_part_kind_and_pattern_and_survives_a_file(tmp_path):
    steps: list[float] = []
    profile = calibrate(Plan(SMALL, "cpu", 3, 1, 16 << 10, "ppsim"), lambda done, what: steps.append(done))
    found = {(op.part, op.kind, op.layers) for op in profile.op}
    assert {("layers", k, n) for k in "FBIW" for n in (1, 2)} <= found
    assert {("embedding", k, 0) for k in "FB"} | {("head", k, 0) for k in "FBIW"} <= found
    assert {m.pattern for m in profile.message} >= {"early", "late", "ping-pong", "bidirectional", "batched"}
    assert SMALL.message_bytes in {m.bytes for m in profile.message}
    assert all(op.n == 3 and op.p10_ms > 0 for op in profile.op)
    assert steps == sorted(steps)
    assert steps[-1] == pytest.approx(1)
    write(profile, str(tmp_path / "p.toml"))
    assert [op.kind for op in read(str(tmp_path / "p.toml")).op] == [op.kind for op in profile.op]


@pytest.mark.parametrize("part", ["layers", "head"])
def test_the_gradients_of_i_and_w_equal_those_of_a_full_backward(part):
    full, half, weight = ops._backward_functions()
    model = Model(hidden=16, heads=2, sequence=8, microbatch_size=2, layers=2, dtype="float64", vocab=32)
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
        model = Model(16, 2, 8, 2, 1, dtype, 32)
        x = stage.activations(model, "cpu")
        assert model.message_bytes == x.numel() * x.element_size()


def test_message_sizes_begin_at_a_kibibyte_and_stop_at_the_largest():
    assert p2p.sizes_up_to(20_000) == [1024, 4096, 16384]
    assert p2p.sizes_up_to(256 << 20)[-1] == 256 << 20


@pytest.mark.parametrize(
    ("hidden", "heads", "hint"), [(64, 5, "--heads 4, or --hidden 65"), (10, 64, "--heads 10, or --hidden 64")]
)
def test_heads_that_do_not_divide_are_refused_with_the_nearest_that_do(hidden, heads, hint):
    with pytest.raises(InputError, match="does not divide") as caught:
        calibrate(Plan(Model(hidden, heads, 8, 1, 1, "float32", 0), "cpu"))
    assert caught.value.hint == hint


def test_a_stage_that_cannot_fit_is_refused_before_it_is_built():
    with pytest.raises(InputError, match="GiB are free"):
        calibrate(Plan(Model(1 << 20, 8, 1 << 16, 64, 100, "float32", 0), "cpu"))
