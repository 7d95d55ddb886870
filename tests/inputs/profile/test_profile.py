"""Profiles: what they hold survives a file, what is wrong with a file is said with its line, costs
follow from it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base import toml
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.inputs.profile import line_fit
from ppsim.inputs.profile.costs import costs_from, message_ms
from ppsim.inputs.profile.line_fit import fit_messages, relative_errors
from ppsim.inputs.profile.profile import SCHEMA, read, write
from ppsim.inputs.profile.text import differences, lines, message_rows, op_rows
from ppsim.schedules import generate
from tests.inputs.profile.cases import MADE, PROFILE, message, op

RECORDED = Path(__file__).parents[2] / "data" / "p2p-gloo.toml"


def test_a_profile_survives_a_file(tmp_path):
    write(PROFILE, str(tmp_path / "p.toml"))
    assert read(str(tmp_path / "p.toml")) == PROFILE


@given(note=st.text(st.characters(exclude_categories=["Cs"])), load=st.floats(0, 1e6))
def test_any_text_and_number_survives_to_six_digits(note, load, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("p") / "p.toml")
    write(replace(PROFILE, provenance=replace(MADE, note=note, load=load)), path)
    made = read(path).provenance
    assert made.note == note
    assert made.load == pytest.approx(load, rel=1e-5)


TEXT = toml.dump(PROFILE, SCHEMA)


def line_of(text: str, start: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(start))


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("hidden = 64", "hiden = 64", "hidden", "unknown key 'hiden' in \\[model\\]"),
        ("hidden = 64\n", "", "[model]", "'hidden' is missing in \\[model\\]"),
        ("hidden = 64", "hidden = 6.5", "hidden", "'hidden' must be a whole number, got 6.5"),
        ("hidden = 64", "hidden = true", "hidden", "'hidden' must be a whole number, got True"),
        ("hidden = 64", "hidden = 0", "hidden", "'hidden' in \\[model\\] must be 1 or more"),
        ('dtype = "float32"', "dtype = 32", "dtype", "'dtype' must be text"),
        ('dtype = "float32"', 'dtype = "int8"', "dtype", "'dtype' in \\[model\\] must be one of"),
        ("load = 0.5", "load = nan", "load", "'load' must be finite"),
        (
            "median_ms = 10",
            "median_ms = -1",
            "median_ms",
            "'median_ms' in \\[\\[op\\]\\] must be 0 or more",
        ),
        ("median_ms = 10", "median_ms = 99", "median_ms", "must lie between p10_ms and p90_ms"),
        ("[model]", "[[model]]", "[model]", "'model' must be a table"),
    ],
)
def test_a_wrong_key_is_named_with_its_line(old, new, line, says, tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(InputError, match=f"line {line_of(TEXT, line)}: .*{says}"):
        read(str(path))


def test_the_line_counts_repeated_tables(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(TEXT.replace('kind = "W"', 'kind = "X"'))
    with pytest.raises(
        InputError,
        match=f"line {line_of(TEXT, 'kind = ' + chr(34) + 'W')}: 'kind' .*one of F, B, I, W",
    ):
        read(str(path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\xff\xfe\x00\x01", "is not a text file"),
        (TEXT[: len(TEXT) // 2].rsplit("=", 1)[0].encode(), "not whole or not TOML"),
        (b"hello", "not TOML"),
        (b"a = 1\n", "no schema, expected"),
        (
            b'schema = "ppsim.profile/9"\n',
            "line 1: schema 'ppsim.profile/9', expected 'ppsim.profile/1'",
        ),
        (TEXT.split("[[op]]")[0].encode(), "nothing was measured"),
    ],
)
def test_a_file_that_is_no_profile_says_why(content, says, tmp_path):
    path = tmp_path / "p.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        read(str(path))
    assert caught.value.exit_code == 2


def test_a_device_without_end_is_not_read():
    with pytest.raises(InputError, match="is a pipe or a device"):
        read("/dev/zero")


def test_a_missing_file_and_a_folder_are_input_errors(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            read(str(path))


def test_a_stage_costs_its_share_of_the_layers_and_the_last_adds_the_head():
    costs = costs_from(PROFILE, generate("interleaved", stages=8, devices=4, microbatches=8))
    assert costs.unit == "ms"
    np.testing.assert_allclose(costs.time[Kind.F], [5] * 7 + [8])
    np.testing.assert_allclose(costs.time[Kind.B], [10] * 7 + [15])


def test_the_first_stage_splits_only_where_asked():
    schedule = generate("zb-1p", stages=4, microbatches=4)
    costs = costs_from(PROFILE, schedule)
    assert (costs.time[Kind.I, 0], costs.time[Kind.W, 0]) == (0, costs.time[Kind.B, 0])
    np.testing.assert_allclose(costs.time[Kind.I, 1:3], 11)
    split = costs_from(PROFILE, schedule, first_stage_splits=True)
    assert (split.time[Kind.I, 0], split.time[Kind.W, 0]) == (11, 12)


def test_a_fixed_cost_per_action_does_not_shrink_with_the_layers():
    ops = (*(op("F", 1 + 2 * n, layers=n) for n in (1, 2, 4)), op("B", 5))
    costs = costs_from(
        replace(PROFILE, op=ops), generate("interleaved", stages=8, devices=4, microbatches=8)
    )
    np.testing.assert_allclose(costs.time[Kind.F], 3)


def test_cold_times_come_before_warm_ones():
    ops = (op("F", 7, cache="warm"), op("F", 9), op("B", 20))
    costs = costs_from(replace(PROFILE, op=ops), generate("1f1b", stages=2, microbatches=2))
    np.testing.assert_allclose(costs.time[Kind.F], 9)


def test_a_measured_pair_is_used_for_pairs():
    ops = (op("F", 10), op("B", 20), op("FB", 24))
    schedule = generate("dualpipe", stages=4, microbatches=8)
    with pytest.raises(InputError, match="no times of I"):
        costs_from(replace(PROFILE, op=ops), schedule)
    costs = costs_from(replace(PROFILE, op=(*ops, op("I", 11), op("W", 12))), schedule)
    assert costs.pair is not None
    np.testing.assert_allclose(costs.pair, 24)


def test_stages_of_a_trace_are_taken_one_by_one_or_shared_out():
    ops = tuple(
        op(k, ms, "stage", 0, stage=s, cache="run") for k in "FB" for s, ms in enumerate((1.0, 2.0))
    )
    traced = replace(PROFILE, op=ops)
    np.testing.assert_allclose(
        costs_from(traced, generate("1f1b", stages=2, microbatches=2)).time[0], [1, 2]
    )
    np.testing.assert_allclose(
        costs_from(traced, generate("1f1b", stages=4, microbatches=4)).time[0], [0.75] * 4
    )


def test_a_message_is_interpolated_between_sizes_and_extended_beyond():
    assert message_ms(PROFILE, 1024) == pytest.approx(0.1)
    assert message_ms(PROFILE, 1 << 15) == pytest.approx(0.1 * 10**0.5)
    assert message_ms(PROFILE, 1 << 24) == pytest.approx(
        0.1 + 0.9 * ((1 << 24) - 1024) / ((1 << 20) - 1024), rel=0.01
    )
    assert message_ms(PROFILE) == pytest.approx(message_ms(PROFILE, 2 * 16 * 64 * 4))


def test_a_message_may_take_no_time():
    assert message_ms(
        replace(PROFILE, message=(message(1024, 0.0), message(4096, 0.0))), 2048
    ) == pytest.approx(0, abs=1e-6)


def test_a_copy_within_a_device_is_never_a_link():
    assert message_ms(replace(PROFILE, message=(message(1024, 5.0, link="same-device"),))) == 0
    rows = (message(1024, 5.0, link="same-device"), message(1024, 7.0, link="host-staged"))
    assert message_ms(replace(PROFILE, message=rows), 1024) == pytest.approx(7)


def test_a_profile_times_a_schedule_in_ms():
    schedule = generate("1f1b", stages=2, microbatches=1)
    timeline = simulate(schedule, costs_from(PROFILE, schedule))
    latency = message_ms(PROFILE)
    assert timeline.makespan == pytest.approx(10 + latency + 13 + 25 + latency + 20)
    assert timeline.unit == "ms"


@given(alpha=st.floats(1e-3, 10), slope=st.floats(1e-8, 1e-3))
def test_a_fit_finds_the_line_it_was_given(alpha, slope):
    sizes = [1 << k for k in range(10, 25, 2)]
    found = line_fit.fit_line(sizes, [alpha + slope * s for s in sizes])
    assert found.max_residual < 1e-6
    assert found.time_at(sizes[0]) == pytest.approx(alpha + slope * sizes[0], rel=1e-6)


def test_a_fit_weighs_small_and_large_messages_alike():
    """The large size is a hundred times off in milliseconds and no more than the small one in
    share.
    """
    found = line_fit.fit_line([1, 10_000], [1.0, 100.0])
    assert found.max_residual < 0.02
    rough = line_fit.fit_line([1, 2, 10_000, 20_000], [1.0, 1.3, 100.0, 260.0])
    assert rough.max_residual < 0.3


def test_neither_part_of_a_fit_goes_below_zero():
    found = line_fit.fit_line([1, 2, 3], [1.0, 3.0, 6.0])
    assert found.alpha == 0
    assert line_fit.fit_line([1, 2], [2.0, 1.0]).slope == 0


SIZES = [1 << k for k in range(10, 30, 2)]


@given(
    st.floats(1e-3, 10),
    st.floats(1e-8, 1e-3),
    st.lists(st.floats(-0.005, 0.005), min_size=10, max_size=10),
)
def test_what_one_line_describes_has_one_range(alpha, slope, errors):
    """Up to half a percent beside it."""
    times = [(alpha + slope * s) * (1 + e) for s, e in zip(SIZES, errors, strict=True)]
    assert line_fit.split_ranges(SIZES, times) == [slice(0, 10)]


@pytest.mark.parametrize("cut", range(3, 8))
def test_two_lines_are_told_apart_where_they_meet(cut):
    """Flat to a size, and eight times as long from there on."""
    times = [1 + 1e-7 * s if k < cut else 8 * (1 + 1e-5 * s) for k, s in enumerate(SIZES)]
    assert line_fit.split_ranges(SIZES, times) == [slice(0, cut), slice(cut, 10)]
    rows = [message(size, ms) for size, ms in zip(SIZES, times, strict=True)]
    found = {f.range: f for f in fit_messages(rows)}
    assert (found["eager"].high_bytes, found["rendezvous"].low_bytes) == (
        SIZES[cut - 1],
        SIZES[cut],
    )
    assert relative_errors(rows, list(found.values()))["same-host", "early"][1] < 1e-6
    assert found["all"].max_residual > 0.1


def test_beyond_the_sizes_measured_the_nearest_range_continues():
    times = [1.0 if k < 5 else 1e-5 * s for k, s in enumerate(SIZES)]
    rows = tuple(message(size, ms) for size, ms in zip(SIZES, times, strict=True))
    profile = replace(PROFILE, message=rows, fit=tuple(fit_messages(rows)))
    assert message_ms(profile, 1) == pytest.approx(1.0)
    assert message_ms(profile, 1 << 30) == pytest.approx(1e-5 * (1 << 30))


def test_lines_describe_the_messages_of_a_recorded_sweep():
    """Of gloo, 1 KiB to 256 MiB: the median relative error of every way to send is at most 15 %."""
    profile = read(str(RECORDED))
    assert (min(m.bytes for m in profile.message), max(m.bytes for m in profile.message)) == (
        1 << 10,
        256 << 20,
    )
    found = relative_errors(profile.message, fit_messages(profile.message))
    for pattern in ("early", "late", "ping-pong", "bidirectional", "batched"):
        assert found["same-host", pattern][0] <= 0.15, pattern


def test_two_profiles_differ_where_they_do():
    other = replace(
        PROFILE, op=(op("F", 15), *PROFILE.op[1:-1]), provenance=replace(MADE, load=3.0)
    )
    found = differences(PROFILE, other)
    assert found.settings == {"load": (0.5, 3.0)}
    assert {d.name: (d.ratio, d.overlap) for d in found.times if d.ratio != 1} == {
        "2 layers F, cold": (1.5, False)
    }
    assert found.only_before == ("head B, cold",)
    assert found.only_after == ()


def test_the_text_of_a_profile_names_every_number():
    rows = op_rows(PROFILE)
    assert rows[[row[0] for row in rows].index("2 layers F, cold")][1] == "10.000"
    assert "head B, cold" in {row[0] for row in rows}
    patterns, sizes = message_rows(PROFILE, PROFILE.message[0].link)
    assert all(len(row) == 1 + len(patterns) for row in sizes)
    assert any(row[0] == "1 MiB" and "1.000" in row for row in sizes)
    assert "I + W take 1.15 x B" in "\n".join(lines(PROFILE))
