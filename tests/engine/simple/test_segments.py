"""Ops from inside: two streams beside each other, by hand, by the originals' orders and by what
must always hold.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.ops import Kind
from ppsim.engine.simple.segments import (
    ORDERS,
    Segment,
    Segments,
    look_inside,
    look_inside_ops,
    read,
    run_streams,
    segment_costs,
)
from ppsim.errors import InputError
from ppsim.schedules import generate

COMM = "communication"
NAMES = ("attn", "dispatch", "mlp", "combine")
# Times of attn, dispatch, mlp, combine in F; combine, mlp, dispatch, attn in I; mlp, attn in W.
COSTS = {
    "a2a_half": ((1, 0.5, 1, 0.5), (0.5, 1, 0.5, 1.5), (1, 0.5)),
    "a2a_equal": ((1, 1, 1, 1), (1, 1, 1, 1.5), (1, 0.5)),
    "a2a_heavy": ((1, 1.5, 1, 2), (1.5, 1, 2, 1.5), (1, 0.5)),
    "uneven": ((1.1, 0.7, 0.8, 0.9), (0.7, 0.9, 0.9, 2.0), (0.6, 0.6)),
}
# Makespans of a pair by an independent timer: stream order is the order of issue, the segments of a
# chunk are a chain, W waits for its own I. Orders: Megatron-LM d98e8a64
# (model_chunk_schedule_plan.py), deepseek-ai/profile-data.
PAIRS = [
    ("megatron-core", "uneven", 1, 6.0),
    ("megatron-core", "a2a_half", 2, 12.0),
    ("megatron-core", "a2a_heavy", 2, 14.0),
    ("megatron-core", "a2a_half", 3, 18.0),
    ("megatron-core", "a2a_equal", 3, 18.0),
    ("megatron-core", "a2a_heavy", 3, 21.0),
    ("megatron-core", "uneven", 3, 18.0),
    ("megatron-core", "a2a_equal", 4, 24.0),
    ("megatron-core", "a2a_heavy", 6, 42.0),
    ("megatron-core", "uneven", 6, 36.0),
    ("megatron-core-early", "uneven", 1, 6.6),
    ("megatron-core-early", "a2a_heavy", 2, 19.0),
    ("megatron-core-early", "a2a_equal", 3, 19.5),
    ("megatron-core-early", "uneven", 3, 19.8),
    ("megatron-core-early", "uneven", 4, 26.4),
    ("megatron-core-early", "a2a_half", 6, 36.0),
    ("deepseek", "a2a_half", 1, 6.0),
    ("deepseek", "uneven", 1, 6.0),
    ("deepseek", "a2a_equal", 2, 12.0),
    ("deepseek", "a2a_half", 3, 18.0),
    ("deepseek", "a2a_half", 4, 24.0),
    ("deepseek", "a2a_equal", 4, 24.0),
    ("deepseek", "a2a_heavy", 4, 28.0),
    ("deepseek", "a2a_half", 6, 36.0),
    ("deepseek", "a2a_equal", 6, 36.0),
    ("deepseek", "a2a_heavy", 6, 42.0),
    ("deepseek", "uneven", 6, 36.0),
]


def moe(cost: str, order: str = "megatron-core", layers: int = 1) -> Segments:
    forward, inputs, weights = COSTS[cost]

    def make(names, times):
        return tuple(
            Segment(n, t, "compute" if n in ("attn", "mlp") else COMM)
            for n, t in zip(names, times, strict=True)
        )

    backward = make(("combine", "mlp", "dispatch", "attn"), inputs)
    return Segments(
        make(NAMES, forward),
        (),
        backward,
        make(("mlp", "attn"), weights),
        order=order,
        layers=layers,
    )


def compute_of(segments: Segments, ops: str) -> float:
    return sum(s.time for op in ops for s in segments.segments_of(op) if s.stream == "compute")


def chain_of(segments: Segments, op: str) -> float:
    return sum(s.time for s in segments.segments_of(op))


@pytest.mark.parametrize(("order", "cost", "layers", "makespan"), PAIRS)
def test_pairs_take_what_an_independent_timer_says(order, cost, layers, makespan):
    assert look_inside(moe(cost, order), "FB", layers).makespan == pytest.approx(makespan, abs=1e-9)


def test_a_pair_by_hand():
    """Two layers of Megatron-Core's early order: every segment where two streams, two chains and W
    put it.
    """
    inside = look_inside(moe("a2a_heavy", "megatron-core-early"), "FB", 2)
    times = {
        f"{n}.{k}": (a, b)
        for n, k, a, b in zip(inside.name, inside.layer, inside.start, inside.end, strict=True)
    }
    # Forward layer 0 runs with backward layer 1, then 1 with 0.
    assert times["combine_I.1"] == (0, 1.5)
    assert times["attn_F.0"] == (0, 1)
    assert times["mlp_I.1"] == (1.5, 2.5)
    assert times["dispatch_F.0"] == (1.5, 3)  # its stream was taken
    assert times["mlp_W.1"] == (2.5, 3.5)
    assert times["dispatch_I.1"] == (3, 5)
    assert times["attn_I.1"] == (5, 6.5)
    assert times["mlp_F.0"] == (6.5, 7.5)
    assert times["combine_F.0"] == (7.5, 9.5)
    assert times["attn_W.1"] == (7.5, 8)
    assert times["attn_F.1"] == (9.5, 10.5)
    assert times["attn_W.0"] == (17, 17.5)
    assert inside.makespan == 19


def test_deepseeks_profile_from_its_busy_times():
    """Four layers of DualPipe on H800: 121.8 ms from busy times, of 129.0 measured; 125.7 with the
    side stream of W.
    """
    # Means of four layers, ms: attn, dispatch, mlp, combine of F; combine, mlp, dispatch, attn of
    # I; mlp, attn of W.
    layers = [
        ((4.311, 6.059, 4.25, 7.325), (4.38, 5.693, 7.302, 9.018), (3.575, 2.375)),
        ((4.263, 5.706, 4.384, 8.26), (5.224, 5.408, 7.909, 9.368), (3.4, 2.382)),
        ((4.438, 7.077, 5.175, 9.521), (6.207, 5.407, 7.271, 9.452), (3.642, 2.392)),
        ((4.467, 7.919, 4.606, 9.63), (7.266, 4.716, 7.465, 9.525), (3.541, 2.405)),
    ]
    order = ORDERS["deepseek"].split()
    keys = [
        *(f"{n}_F" for n in NAMES),
        *(f"{n}_I" for n in ("combine", "mlp", "dispatch", "attn")),
        "mlp_W",
        "attn_W",
    ]
    times = [
        dict(zip(keys, sum(layer, ()), strict=True))[name] for layer in layers for name in order
    ]
    last, needs = dict[str, int](), list[list[int]]()
    for i, name in enumerate(order * 4):
        needs.append(
            [last[name[:-1] + "I"]]
            if name[-1] == "W"
            else [last[name[-1]]]
            if name[-1] in last
            else []
        )
        last |= {name: i} if name[-1] == "W" else {name: i, name[-1]: i}
    stream = [int(name[:-2] in ("dispatch", "combine")) for name in order * 4]
    assert max(run_streams(stream, times, needs)[1]) == pytest.approx(121.806, abs=1e-3)


def test_contention_slows_compute_while_communication_runs():
    """Two of compute beside one of communication: 0.8 of compute are done when that ends, 1.2 are
    left.
    """
    start, end = run_streams([0, 1], [2, 1], [[], []], slowed=(0.25, 0))
    assert (start, end) == ([0, 0], [pytest.approx(2.2), 1])
    # And what starts later is slowed for its own stretch only.
    assert run_streams([0, 0, 1], [1, 1, 0.5], [[], [], [0]], (1, 0))[1] == pytest.approx(
        [1, 2.25, 1.5]
    )
    # Both share what they need: half of the rate each is no gain over one after the other.
    assert run_streams([0, 1], [1, 1], [[], []], (1, 1))[1] == [2, 2]


def test_an_op_hides_what_needs_nothing_of_it():
    """A shared expert beside the dispatch: an op has two streams too."""
    forward = (
        Segment("attn", 1),
        Segment("dispatch", 2, COMM),
        Segment("shared", 1.5, needs=("attn",)),
        Segment("mlp", 1, needs=("dispatch",)),
        Segment("combine", 1, COMM),
    )
    segments = Segments(forward, (Segment("all", 4),))
    assert look_inside(segments, "F").makespan == 1 + 2 + 1 + 1
    # The next layer waits for both the combine and the shared expert.
    assert look_inside(segments, "F", 3).makespan == 15
    assert look_inside(replace(segments, contention=0.5), "F").makespan == pytest.approx(5 + 1 / 6)


def test_ops_alone_are_chains_of_their_segments():
    segments = moe("uneven")
    assert look_inside(segments, "F", 3).makespan == pytest.approx(3 * 3.5)
    assert look_inside(segments, "I", 3).makespan == pytest.approx(3 * 4.5)
    assert look_inside(segments, "W", 3).makespan == pytest.approx(3 * 1.2)
    # A whole backward hides the dispatch behind W of the experts.
    assert look_inside(segments, "B").makespan == pytest.approx(0.7 + 0.9 + 0.9 + 2.0 + 0.6)
    assert (
        look_inside(replace(segments, order=()), "B").makespan
        == look_inside(segments, "B").makespan
    )


def test_costs_of_stages_have_the_layers_of_each():
    segments = replace(moe("a2a_half"), layers=(1, 2, 3, 2))
    costs = segment_costs(generate("1f1b-overlap", devices=4, microbatches=8), segments, 0.25)
    assert costs.time[Kind.F].tolist() == [3, 6, 9, 6]
    assert costs.time[Kind.R].tolist() == [3, 6, 9, 6]
    assert costs.pair is not None
    assert costs.pair.tolist() == [6, 12, 18, 12]
    assert (costs.comm, costs.unit) == (0.25, "ms")
    whole = segment_costs(
        generate("1f1b", devices=4, microbatches=8),
        Segments((Segment("a", 1),), (Segment("a", 3),)),
    )
    assert whole.time[:, 0].tolist() == [1, 3, 1.5, 1.5, 1]
    assert whole.pair is None
    halves = segment_costs(
        generate("dualpipe-v", devices=2, microbatches=8), moe("a2a_half", layers=2)
    )
    assert halves.time[Kind.F].tolist() == [3] * 4
    looped = generate("interleaved", devices=2, microbatches=4)
    assert segment_costs(looped, moe("a2a_half", layers=2), per="stage").time[Kind.F, 0] == 6
    with pytest.raises(
        InputError, match="3 layers do not divide over the 2 stages of a device of interleaved"
    ):
        segment_costs(looped, moe("a2a_half", layers=3))
    with pytest.raises(InputError, match="of 4 stages, and 1f1b has 2"):
        segment_costs(generate("1f1b", devices=2, microbatches=2), segments)


times = st.floats(0, 9).map(lambda t: round(t, 2))


@given(
    st.tuples(*[times] * 4),
    st.tuples(*[times] * 4),
    st.tuples(times, times),
    st.sampled_from(sorted(ORDERS)),
)
def test_a_pair_takes_no_less_than_a_stream_or_a_chain_and_no_more_than_both_ops(
    forward, inputs, weights, order
):
    """Properties of two streams: below are the busier one and both chains, above is one after the
    other.
    """
    COSTS["drawn"] = (forward, inputs, weights)
    segments = moe("drawn", order)
    together = look_inside(segments, "FB", 3).makespan
    whole = 3 * sum(chain_of(segments, op) for op in "FIW")
    compute = 3 * compute_of(segments, "FIW")
    least = max(compute, whole - compute, 3 * chain_of(segments, "F"), 3 * chain_of(segments, "I"))
    assert least - 1e-9 <= together <= whole + 1e-9
    slowed = look_inside(replace(segments, contention=0.3), "FB", 3).makespan
    assert together - 1e-9 <= slowed <= together + 0.3 * min(compute, whole - compute) + 1e-9


@given(st.lists(st.tuples(st.integers(0, 1), times), max_size=8), st.data())
def test_without_contention_streams_are_a_longest_path(rows, data):
    """Each segment starts when its stream and what it needs have ended, and no later."""
    needs = [
        data.draw(st.lists(st.integers(0, i - 1), max_size=2)) if i else []
        for i in range(len(rows))
    ]
    start, end = run_streams([s for s, _ in rows], [t for _, t in rows], needs)
    free = [0.0, 0.0]
    for (stream, time), others, begin, done in zip(rows, needs, start, end, strict=True):
        assert begin == pytest.approx(max([free[stream], *(end[i] for i in others)]))
        assert done == pytest.approx(begin + time)
        free[stream] = done


FILE = """schema = "ppsim.segments/1"
layers = [2, 1]
order = ["attn_F", "attn_I", "a2a_F", "a2a_I", "attn_W"]
contention = 0.1
F = [{ name = "attn", time = 2 }, { name = "a2a", time = 1, stream = "communication" }]
I = [{ name = "a2a", time = 1.0, stream = "communication" },
  { name = "attn", time = 2.0, needs = [] }]
W = [{ name = "attn", time = 1.5 }]
"""


def test_a_file_of_segments(tmp_path):
    (tmp_path / "s.toml").write_text(FILE)
    segments = read(str(tmp_path / "s.toml"))
    assert segments.layers == (2, 1)
    assert list(segments.F) == [Segment("attn", 2.0), Segment("a2a", 1.0, COMM)]
    assert segments.I[1].needs == ()
    assert segments.contention == 0.1


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("ppsim.segments/1", "ppsim.profile/1", "expected 'ppsim.segments/1'"),
        (
            "contention = 0.1",
            "contention = -1",
            "'contention' must be one or two numbers from 0 to 10",
        ),
        ("contention = 0.1", "contention = [0.1, 0.1, 0.1]", "'contention' must be one or two"),
        ("contention = 0.1", "contention = nan", "'contention' must be finite"),
        ("layers = [2, 1]", "layers = [2, 0]", "'layers' must be 1 to 1024 for each stage"),
        ("layers = [2, 1]", "layers = []", "'layers' must be"),
        ("layers = [2, 1]", "layers = 99999999", "'layers' must be 1 to 1024"),
        ("time = 2 ", "time = -2 ", "'time' in .* must be zero or more"),
        ("time = 2 ", "time = 1e300 ", "'time' in .* must be zero or more and at most"),
        ("time = 2 ", 'time = "2" ', "'time' must be a number"),
        ('"attn", time = 2 ', '"a b", time = 2 ', "'name' in .* must be up to 32 letters"),
        ('"attn", time = 2 ', '"a2a", time = 2 ', "must name each segment once, got 'a2a' twice"),
        (
            'stream = "communication" }]\nI',
            'stream = "nvlink" }]\nI',
            "must be compute or communication",
        ),
        ("needs = []", 'needs = ["mlp"]', "'attn' needs 'mlp', which is none of a2a"),
        (
            'W = [{ name = "attn"',
            'W = [{ name = "mlp"',
            "'mlp' needs 'mlp', which is none of a2a, attn",
        ),
        (
            '"attn_W"]',
            '"attn_W", "attn_W"]',
            "must list each segment once, as attn_F, a2a_F, a2a_I; look at 'attn_W'",
        ),
        ('"attn_W"]', '"mlp_W"]', "look at 'attn_W'"),
        (
            'order = ["attn_F", "attn_I", "a2a_F"',
            'order = "mine" # ',
            "must be one of megatron-core, ",
        ),
        (
            '["attn_F", "attn_I", "a2a_F", "a2a_I", "attn_W"]',
            '["attn_W","attn_F","attn_I","a2a_F","a2a_I"]',
            "cycle",
        ),
        ("I = [", "B = [", "'W' must come with \\[\\[I\\]\\]"),
        ("W = [", "B = [", "not with both"),
        ("F = [", "G = [", "unknown key 'G'"),
        (FILE, 'schema = "ppsim.segments/1"', "'F' is missing"),
        (FILE, 'schema = "ppsim.segments/1"\nF = []\nB = []', "must come with"),
        (FILE, 'schema = "ppsim.segments/1"\nF = 3', "must be tables"),
        (FILE, "", "is empty"),
    ],
)
def test_broken_files_are_refused_by_what_is_wrong(tmp_path, old, new, why):
    (tmp_path / "s.toml").write_text(FILE.replace(old, new, 1))
    with pytest.raises(InputError, match=why):
        read(str(tmp_path / "s.toml"))


def test_too_many_segments_are_refused(tmp_path):
    rows = ", ".join(f'{{ name = "s{i}", time = 1 }}' for i in range(65))
    (tmp_path / "s.toml").write_text(
        f'schema = "ppsim.segments/1"\nF = [{rows}]\nB = [{{ name = "a", time = 1 }}]'
    )
    with pytest.raises(InputError, match="64 segments at most, got 65"):
        read(str(tmp_path / "s.toml"))


def test_a_stage_of_most_layers_is_timed():
    assert np.isclose(look_inside(moe("a2a_half"), "FB", 1024).makespan, 1024 * 6)


def test_every_op_is_looked_into_as_long_as_it_takes():
    """An op's segments end when it does; a pair has those of both at its first op, and none at its
    second.
    """
    schedule = generate("dualpipe-v", devices=2, microbatches=6)
    segments = moe("uneven", layers=4)
    costs, found = segment_costs(schedule, segments), look_inside_ops(schedule, segments)
    second = np.zeros(len(schedule), np.bool_)
    second[schedule.second_of_pairs] = True
    assert ((found.shape_of_op < 0) == second).all()
    lengths = np.array([shape.makespan for shape in found.shapes])
    assert lengths[found.shape_of_op[~second]] == pytest.approx(costs.durations(schedule)[~second])
    pair, whole = (next(shape for shape in found.shapes if shape.op == op) for op in ("FB", "I"))
    assert set(pair.kind) == {Kind.F, Kind.B}
    assert {"attn", "mlp", "mlp W", "attn W", "dispatch", "combine"} == set(pair.label)
    assert set(whole.kind) == {Kind.I}
