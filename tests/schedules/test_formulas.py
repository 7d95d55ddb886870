"""The closed forms that ``ppsim describe`` prints and docstrings state, exact under their own conditions.

Times are whole numbers per stage, V times that per device, so that every comparison is exact.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ppsim.core.costs import costs_for
from ppsim.schedules import find
from ppsim.schedules.interleaved import group_size
from ppsim.simulation.longest_path import simulate
from ppsim.simulation.metrics import Metrics, measure, peak_activations
from tests.cases import accepted, build

NUMBERS: dict[str, Callable[[Metrics], float]] = {
    "makespan": lambda m: m.makespan,
    "bubble": lambda m: m.makespan - m.ideal,
    "span bubble": lambda m: m.span - m.ideal,
    "longest idle": lambda m: float(m.idle.max()),
}
TIMES = [(1, 1, 1), (3, 3, 2), (4, 3, 2), (3, 4, 1), (8, 8, 0), (5, 2, 4), (1, 2, 3)]  # of F, I and W


class Form(NamedTuple):
    """A closed form over P, V, M, N, the times per device and comm, and the condition it needs."""

    name: str
    number: str
    value: Callable[[Any], float]
    holds: Callable[[Any], bool] = lambda _: True
    comm: tuple[int, ...] = (0,)


def weights_are_short(c: Any) -> bool:
    return c.tw <= min(c.tf, c.ti)


def groups_fit(c: Any) -> bool:
    return c.M % c.N == 0 and c.N >= c.P


def pair_is_no_longer(c: Any) -> bool:
    return max(c.tf, c.tb) <= c.tfb <= c.tf + c.tb


def forward_is_input_backward(c: Any) -> bool:
    return c.tw <= c.tf == c.ti and c.tb <= c.tfb <= c.tf + c.tb


PRINTED = {
    "gpipe": "(P-1)(t_F + t_B)",
    "1f1b": "(P-1)(t_F + t_B)",
    "eager-1f1b": "(P-1)(t_F + t_B)",
    "1f1b-overlap": "(P-1)(2 t_F&B - t_F - t_B)  for M >= 2P-1 and max(t_F, t_B) <= t_F&B <= t_F + t_B",
    "interleaved": "(P-1)(t_F + t_B)/V  for N | M, N >= P (the default N is P where P | M)",
    "interleaved-overlap": "(P-1)(2 t_F&B - t_F - t_B)/V  for N | M, N >= P, M >= 2N and "
    "max(t_F, t_B) <= t_F&B <= t_F + t_B",
    "looped-bfs": "(P-1)(t_F + t_B)/V  for M >= P",
    "zb-1p": "(P-1)(t_F + t_I - t_W)  for M >= P and t_W <= min(t_F, t_I)",
    "zb-h2": "span bubble (P-1)(t_F + t_I - 2 t_W)  for M >= 2P-1 and t_W <= min(t_F, t_I)",
    "dualpipe": "longest idle (P/2 - 1)(t_F&B + t_B - 3 t_W)  for t_W <= t_F = t_I, t_B <= t_F&B <= t_F + t_B",
    "dualpipe-v": "longest idle (P - 1)(t_F&B + t_B - 3 t_W)/2  for t_W <= t_F = t_I, t_B <= t_F&B <= t_F + t_B",
}
PRINTED_FORMS = [
    Form("gpipe", "bubble", lambda c: (c.P - 1) * (c.tf + c.tb)),
    Form("1f1b", "bubble", lambda c: (c.P - 1) * (c.tf + c.tb)),
    Form("eager-1f1b", "bubble", lambda c: (c.P - 1) * (c.tf + c.tb)),
    Form(
        "1f1b-overlap",
        "bubble",
        lambda c: (c.P - 1) * (2 * c.tfb - c.tf - c.tb),
        lambda c: c.M >= 2 * c.P - 1 and pair_is_no_longer(c),
    ),
    Form("interleaved", "bubble", lambda c: (c.P - 1) * (c.tf + c.tb) / c.V, groups_fit),
    Form(
        "interleaved-overlap",
        "bubble",
        lambda c: (c.P - 1) * (2 * c.tfb - c.tf - c.tb) / c.V,
        lambda c: groups_fit(c) and c.M >= 2 * c.N and pair_is_no_longer(c),
    ),
    Form("looped-bfs", "bubble", lambda c: (c.P - 1) * (c.tf + c.tb) / c.V, lambda c: c.M >= c.P),
    Form(
        "zb-1p",
        "bubble",
        lambda c: (c.P - 1) * (c.tf + c.ti - c.tw),
        lambda c: c.M >= c.P and weights_are_short(c),
    ),
    Form(
        "zb-h2",
        "span bubble",
        lambda c: (c.P - 1) * (c.tf + c.ti - 2 * c.tw),
        lambda c: c.M >= 2 * c.P - 1 and weights_are_short(c),
    ),
    Form(
        "dualpipe",
        "longest idle",
        lambda c: (c.P // 2 - 1) * (c.tfb + c.tb - 3 * c.tw),
        forward_is_input_backward,
    ),
    Form(
        "dualpipe-v",
        "longest idle",
        lambda c: (c.P - 1) * (c.tfb + c.tb - 3 * c.tw) / 2,
        forward_is_input_backward,
    ),
]
STATED_FORMS = [
    Form("gpipe", "makespan", lambda c: (c.M + c.P - 1) * (c.tf + c.tb) + 2 * (c.P - 1) * c.comm, comm=(0, 1, 5, 60)),
    Form(
        "1f1b",
        "makespan",
        lambda c: (c.M + c.P - 1) * (c.tf + c.tb) + 2 * c.comm * (c.P - 1 + (c.M - 1) * (c.P - 1) // c.P),
        comm=(0, 1, 5, 60),
    ),
    Form(
        "eager-1f1b",
        "makespan",
        lambda c: (c.M + c.P - 1) * (c.tf + c.tb) + 2 * (c.P - 1) * c.comm,
        lambda c: 2 * c.comm <= c.tf + c.tb,
        comm=(0, 1, 2, 5),
    ),
    Form(
        "1f1b-overlap",
        "makespan",
        lambda c: c.P * (c.tf + c.tb) + (c.M - 1) * c.tfb,
        lambda c: c.tfb >= max(c.tf, c.tb),
    ),
    Form("interleaved", "makespan", lambda c: (c.M * c.V + c.P - 1) * (c.tf + c.tb) / c.V, groups_fit),
    Form(
        "interleaved-overlap",
        "makespan",
        lambda c: ((c.P + c.N * (c.V - 1)) * (c.tf + c.tb) + (c.M * c.V - c.N * (c.V - 1) - 1) * c.tfb) / c.V,
        lambda c: groups_fit(c) and c.tfb >= max(c.tf, c.tb),
    ),
    Form(
        "looped-bfs",
        "makespan",
        lambda c: (c.M * c.V + c.P - 1) * (c.tf + c.tb) / c.V,
        lambda c: c.M >= c.P,
    ),
    Form(
        "zb-1p",
        "makespan",
        lambda c: (c.M + c.P - 1) * (c.tf + c.ti) + c.tw,
        lambda c: c.M <= c.P and weights_are_short(c),
    ),
    Form(
        "zb-h2",
        "span bubble",
        lambda c: (c.P - 1) * (c.tf + c.ti + 2 * c.comm - 2 * c.tw),
        lambda c: c.M >= 2 * c.P and weights_are_short(c) and c.comm <= min(c.tf, c.ti),
        comm=(1, 2, 3),
    ),
    Form(
        "dualpipe",
        "bubble",
        lambda c: (c.P // 2 - 1) * (c.tfb + c.tb - 3 * c.tw),
        lambda c: forward_is_input_backward(c) and c.tfb == c.tf + c.tb,
    ),
]
PEAKS: dict[str, tuple[str, Callable[[Any], int]]] = {
    "gpipe": ("M on every device", lambda c: c.M),
    "1f1b": ("min(M, P - rank)", lambda c: min(c.M, c.P - c.rank)),
    "eager-1f1b": ("min(M, 2(P - rank) - 1)", lambda c: min(c.M, 2 * (c.P - c.rank) - 1)),
    "1f1b-overlap": ("min(M, 2(P - rank))", lambda c: min(c.M, 2 * (c.P - c.rank))),
    "interleaved": (
        "min(VM, (V-1)N + 2(P-1-rank) + 1) stage activations",
        lambda c: min(c.V * c.M, (c.V - 1) * c.N + 2 * (c.P - 1 - c.rank) + 1),
    ),
    "interleaved-overlap": (
        "min(VM, (V-1)N + 2(P-1-rank) + 2) stage activations",
        lambda c: min(c.V * c.M, (c.V - 1) * c.N + 2 * (c.P - 1 - c.rank) + 2),
    ),
    "looped-bfs": ("VM stage activations", lambda c: c.V * c.M),
    "zb-1p": ("min(M, P)", lambda c: min(c.M, c.P)),
    "zb-h2": ("min(M, 2P - 1)", lambda c: min(c.M, 2 * c.P - 1)),
    "dualpipe": ("P + 1", lambda c: c.P + 1),
    "dualpipe-v": ("2P + 1 stage activations", lambda c: 2 * c.P + 1),
}


def sizes(name: str) -> Iterator[tuple[Any, SimpleNamespace]]:
    """Accepted shapes, with P, V, M and the group size N that is in force."""
    for shape in accepted(name):
        if "rule" not in shape.options:
            N = group_size(shape, fused=int(name == "interleaved-overlap")) if "interleaved" in name else 0
            yield shape, SimpleNamespace(P=shape.devices, V=shape.chunks, M=shape.microbatches, N=N)


def times(form: Form, size: SimpleNamespace) -> Iterator[SimpleNamespace]:
    """Times per device for which the form holds; a pair takes from its longer part's to both parts' time."""
    for tf, ti, tw in TIMES:
        for pair in sorted({max(tf, ti + tw), (2 * tf + ti + tw) // 2 + 1, tf + ti + tw}):
            for comm in form.comm:
                each = {"tf": tf, "ti": ti, "tw": tw, "tb": ti + tw, "tfb": pair}
                c = SimpleNamespace(**vars(size), comm=comm, **{key: value * size.V for key, value in each.items()})
                if form.holds(c) and (pair == tf + ti + tw or "tfb" in form.value.__code__.co_names):
                    yield c


def assert_holds(form: Form) -> None:
    checked = 0
    for shape, size in sizes(form.name):
        schedule = build(form.name, shape)
        for c in times(form, size):
            given = {key: getattr(c, key) / c.V for key in ("tf", "ti", "tw", "tfb")}
            timeline = simulate(schedule, costs_for(schedule, per="stage", comm=c.comm, **given))
            assert NUMBERS[form.number](measure(timeline)) == form.value(c), (shape, given, c.comm)
            checked += 1
    assert checked >= 20


@pytest.mark.parametrize("form", PRINTED_FORMS, ids=lambda form: form.name)
def test_printed_bubbles_are_exact(form):
    """The bubble that ``ppsim list`` prints is what the simulation gives, wherever its condition holds."""
    assert find(form.name).bubble == PRINTED[form.name]
    assert_holds(form)


@pytest.mark.slow
@pytest.mark.parametrize("form", STATED_FORMS, ids=lambda form: form.name)
def test_stated_forms_are_exact(form):
    """The forms that the generators' docstrings state, messages included, are what the simulation gives."""
    assert_holds(form)


@pytest.mark.parametrize("name", PEAKS)
def test_printed_peaks_are_exact(name):
    """The peak activations that ``ppsim list`` prints are right on every device of every accepted shape."""
    text, form = PEAKS[name]
    assert find(name).peak == text
    for shape, size in sizes(name):
        expected = [form(SimpleNamespace(**vars(size), rank=rank)) for rank in range(size.P)]
        assert peak_activations(build(name, shape)).tolist() == expected, shape
