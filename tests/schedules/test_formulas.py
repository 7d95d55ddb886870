"""The closed forms that ``ppsim list NAME`` prints and docstrings state are exact under their own
conditions.

Times are whole numbers per stage, V times that per device, so that every comparison is exact.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ppsim.core.costs import costs_for
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import Metrics, measure, peak_activations
from ppsim.schedules import Family, families, find
from ppsim.schedules.interleaved import group_size, small_group_size
from tests.cases import EVERY, accepted, build
from tests.schedules.closed_forms import read_form

NUMBERS: dict[str, Callable[[Metrics], float]] = {
    "makespan": lambda m: m.makespan,
    "bubble": lambda m: m.makespan - m.ideal,
    "span bubble": lambda m: m.span - m.ideal,
    "longest idle": lambda m: float(m.idle.max()),
}
# of F, I and W
TIMES = [(1, 1, 1), (3, 3, 2), (4, 3, 2), (3, 4, 1), (8, 8, 0), (5, 2, 4), (1, 2, 3)]


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


STATED_FORMS = [
    Form(
        "gpipe",
        "makespan",
        lambda c: (c.M + c.P - 1) * (c.tf + c.tb) + 2 * (c.P - 1) * c.comm,
        comm=(0, 1, 5, 60),
    ),
    Form(
        "1f1b",
        "makespan",
        lambda c: (
            (c.M + c.P - 1) * (c.tf + c.tb) + 2 * c.comm * (c.P - 1 + (c.M - 1) * (c.P - 1) // c.P)
        ),
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
    Form(
        "interleaved", "makespan", lambda c: (c.M * c.V + c.P - 1) * (c.tf + c.tb) / c.V, groups_fit
    ),
    Form(
        "interleaved-overlap",
        "makespan",
        lambda c: (
            ((c.P + c.N * (c.V - 1)) * (c.tf + c.tb) + (c.M * c.V - c.N * (c.V - 1) - 1) * c.tfb)
            / c.V
        ),
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


def sizes(name: str) -> Iterator[tuple[Any, SimpleNamespace]]:
    """Accepted shapes, with P, V, M and the group size N that is in force."""
    for shape in accepted(name):
        if not {"rule", "limit", "everywhere", "placement"} & shape.options.keys():
            sizes = {
                "P": shape.devices,
                "V": shape.chunks,
                "M": shape.microbatches,
                "K": shape.slices,
            }
            yield shape, SimpleNamespace(**sizes, N=group(name, shape))


def group(name: str, shape: Any) -> int:
    """The microbatches per group that are in force, 0 for schedules without groups."""
    if name == "gis":
        return small_group_size(shape)
    if "group_size" not in find(name).options:
        return 0
    return group_size(shape, fused=int(name in ("interleaved-overlap", "kimi")))


def times(
    fused: bool, size: SimpleNamespace, latencies: tuple[int, ...] = (0,)
) -> Iterator[SimpleNamespace]:
    """Times per device; with ``fused``, a pair takes from its longer part's to both parts' time,
    else both parts'.
    """
    for tf, ti, tw in TIMES:
        both = tf + ti + tw
        for pair in sorted({max(tf, ti + tw), (tf + both) // 2 + 1, both}) if fused else (both,):
            each = {"tf": tf, "ti": ti, "tw": tw, "tb": ti + tw, "tfb": pair}
            for comm in latencies:
                yield SimpleNamespace(
                    **vars(size),
                    comm=comm,
                    **{key: value * size.V * size.K for key, value in each.items()},
                )


def measured(schedule: Schedule, c: SimpleNamespace) -> Metrics:
    """The numbers of a simulation with these times."""
    given = {key: getattr(c, key) / (c.V * c.K) for key in ("tf", "ti", "tw", "tfb")}
    return measure(simulate(schedule, costs_for(schedule, per="stage", comm=c.comm, **given)))


def check_bubble(family: Family) -> None:
    """Compare the printed bubble with simulations of every accepted shape, wherever its condition
    holds.
    """
    form, checked, shapes = read_form(family.bubble), 0, list(sizes(family.name))
    step = EVERY if len(shapes) > 20 else 1  # of the times, other ones for each shape
    for number, (shape, size) in enumerate(shapes):
        schedule = build(family.name, shape)
        applying = list(filter(form.applies, times(form.fused, size)))
        for c in applying[number % step :: step]:
            assert NUMBERS[form.number or "bubble"](measured(schedule, c)) == form.at(c), c
            checked += 1
    assert checked >= 20 // EVERY


def check_peak(family: Family) -> None:
    """Compare the printed peak with every device of every accepted shape, or with the fullest where
    it is the most.
    """
    most = family.peak.startswith("at most ")
    form, checked, reached = read_form(family.peak.removeprefix("at most ")), 0, 0
    for shape, size in sizes(family.name):
        if most:
            schedule = build(family.name, shape)
            fullest = measure(simulate(schedule, costs_for(schedule))).peak_activations.max()
            assert fullest <= form.at(size), shape
            checked, reached = checked + 1, reached + (fullest == form.at(size))
        elif form.applies(size):
            expected = [
                form.at(SimpleNamespace(**vars(size), device=device)) for device in range(size.P)
            ]
            assert peak_activations(build(family.name, shape)).tolist() == expected, shape
            checked += 1
    assert checked >= 5 // EVERY
    assert reached >= most * checked // 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_printed_bubbles_are_exact(family):
    """The bubble that ``ppsim list`` prints, whatever a schedule claims, is what the simulation
    gives.
    """
    check_bubble(family)


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_printed_peaks_are_exact(family):
    """The peak activations that ``ppsim list`` prints are right on every device of every accepted
    shape.
    """
    check_peak(family)


@pytest.mark.parametrize(
    "bubble",
    [
        "42 bananas",
        "42",
        "",
        "(P-1)(t_F + t_B",
        "(P-1)(t_F + t_I)",
        "(P-1)(t_F + t_B)  for M < P",
        "P(t_F + t_B)",
    ],
)
def test_a_schedule_that_claims_a_wrong_bubble_is_found_out(bubble):
    """No list to add a schedule to: what it prints is read and compared."""
    with pytest.raises((AssertionError, ValueError)):
        check_bubble(replace(find("gpipe"), bubble=bubble))


@pytest.mark.parametrize("peak", ["7", "a lot", "min(M, P - device) + 1", "min(M, P)"])
def test_a_schedule_that_claims_a_wrong_peak_is_found_out(peak):
    with pytest.raises((AssertionError, ValueError)):
        check_peak(replace(find("1f1b"), peak=peak))


def test_forms_are_read_as_written():
    """Products, divisions, the pair's time, the number named and every clause of the condition."""
    form = read_form(
        "span bubble (P/2 - 1)(2 t_F&B + 3 t_W)/V  for N | M, N >= P and max(t_F, t_B) <= t_F&B"
    )
    size = SimpleNamespace(P=6, V=4, M=12, N=6, tf=1, tb=2, tw=5, tfb=2)
    assert (form.number, form.at(size), form.fused) == ("span bubble", 2 * (4 + 15) / 4, True)
    assert form.applies(size)
    for change in ({"M": 13}, {"N": 4}, {"tb": 3}):
        assert not form.applies(SimpleNamespace(**{**vars(size), **change})), change


@pytest.mark.parametrize("name", ["interleaved", "interleaved-overlap"])
def test_the_default_group_is_the_devices_where_it_can_be(name):
    """N is P where P | M, as the note beside the printed bubble says."""
    found = [size for shape, size in sizes(name) if not shape.options and size.M % size.P == 0]
    assert len(found) >= 20 // EVERY
    assert all(size.N == size.P for size in found)


@pytest.mark.slow
@pytest.mark.parametrize("form", STATED_FORMS, ids=lambda form: form.name)
def test_stated_forms_are_exact(form):
    """The forms that the generators' docstrings state, messages included, are what the simulation
    gives.
    """
    checked, fused = 0, "tfb" in form.value.__code__.co_names
    for shape, size in sizes(form.name):
        schedule = build(form.name, shape)
        for c in filter(form.holds, times(fused, size, form.comm)):
            assert NUMBERS[form.number](measured(schedule, c)) == form.value(c), c
            checked += 1
    assert checked >= 20
