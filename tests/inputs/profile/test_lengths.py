"""Lengths of sequences: what loaders write, what is drawn, and the times that a law gives them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.law import Law
from ppsim.core.sequences import join_times, linear_times
from ppsim.errors import InputError
from ppsim.inputs.profile.lengths import Shares, draw_tokens, read_sequences
from ppsim.prices.data_parallel.lengths import scale_costs
from tests.cases import EIGHTHS, FEW, PLAIN, schedules
from tests.cases import costs as drawn_costs

SHARES = Shares(None, 2, 1, 2)
ROWS = [(0, 0, 100), (0, 0, 300), (0, 1, 500), (1, 0, 200), (1, 1, 900), (1, 1, 0)]


def written(folder, suffix, rows=ROWS, names=("replica", "microbatch", "tokens")):
    """Write rows in a format, and return the file's path."""
    path = folder / f"lengths{suffix}"
    if suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        columns = list(zip(*rows, strict=True))
        parquet.write_table(pyarrow.table(dict(zip(names, columns, strict=True))), path)
    elif suffix == ".csv":
        path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]))
    else:
        path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    return str(path)


def read(path, shares=SHARES, law=None, *, padded=False):
    return read_sequences(path, shares, law, padded=padded)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_factors(suffix, tmp_path):
    """Four microbatches of 400, 500, 200 and 900 tokens: over their mean of 500."""
    found = read(written(tmp_path, suffix))
    assert found.factors(2).tolist() == [[[0.8, 1.0]], [[0.4, 1.8]]]
    assert found.counts.tolist() == [2, 2]
    assert found.length[:, 0].tolist() == [row[2] for row in ROWS]


def test_a_stage_whose_tokens_are_all_zero_takes_no_time(tmp_path):
    rows = [(0, m, stage, 100 * (m + 1) * (stage == 0)) for m in (0, 1) for stage in (0, 1)]
    names = ("replica", "microbatch", "stage", "tokens")
    found = read(written(tmp_path, ".csv", rows, names), Shares(1, 2, 1, 2))
    assert found.time.tolist() == [[2 / 3, 0], [4 / 3, 0]]


def test_padded_sequences_take_as_long_as_the_longest(tmp_path):
    """600, 500, 200 and 1800 tokens: over their mean of 775."""
    found = read(written(tmp_path, ".csv"), padded=True)
    assert found.factors(2)[:, 0] == pytest.approx(np.array([[600, 500], [200, 1800]]) / 775)


def test_a_law_has_a_constant_a_rate_and_a_square(tmp_path):
    """Of no tokens nothing is run, so that the constant is not paid."""
    found = read(written(tmp_path, ".csv"), law=Law(10, 0, 1, 0.01))
    took = np.array(
        [[10 + 100 + 100 + 10 + 300 + 900, 10 + 500 + 2500], [10 + 200 + 400, 10 + 900 + 8100]]
    )
    assert found.factors(2)[:, 0] == pytest.approx(took / took.mean())


def test_factors_are_taken_as_they_are(tmp_path):
    rows = [(0, 0, 0.5), (0, 1, 0), (1, 0, 2), (1, 1, 1)]
    found = read(written(tmp_path, ".csv", rows, ("dp_rank", "mb", "factor")))
    assert found.factors(2).tolist() == [[[0.5, 0.0]], [[2.0, 1.0]]]
    with pytest.raises(InputError, match="--law is of tokens, and the file has factors"):
        read(written(tmp_path, ".csv", rows, ("dp_rank", "mb", "factor")), law=Law())


def test_a_stage_replaces_what_holds_for_all(tmp_path):
    """An image encoder on stage 0 has no tokens in a step of texts alone."""
    rows = [(0, 0, "", 100), (0, 0, 0, 50), (0, 1, "", 300), (0, 1, 0, 0)]
    names = ("replica", "microbatch", "stage", "tokens")
    found = read(written(tmp_path, ".csv", rows, names))
    assert found.factors(2).tolist() == [[[2.0, 0.0], [0.5, 1.5]]]
    with pytest.raises(InputError, match="replica 0, microbatch 1 has no row of stage 1"):
        read(written(tmp_path, ".csv", [*rows[:2], rows[3]], names))
    with pytest.raises(InputError, match="two rows of one sequence"):
        read(
            written(
                tmp_path,
                ".csv",
                [(*row, 7) for row in (rows[1], rows[1], rows[3])],
                (*names, "sequence"),
            )
        )


def test_a_plain_list_is_shared_out_as_a_sampler_does(tmp_path):
    """The n-th goes to replica n mod R, and there in order."""
    path = written(tmp_path, ".csv", [(n,) for n in range(1, 13)], ("tokens",))
    found = read(path, Shares(2, 3, 1, 2))
    assert found.factors(3)[:, 0] * 13 == pytest.approx(np.array([[4, 12, 20], [6, 14, 22]]))
    with pytest.raises(InputError, match="12 lengths for 2 replicas of 5 microbatches"):
        read(path, Shares(2, 5, 1, 2))


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("uniform:10:20:3", 10, 20),
        ("zipf:1.2:50:3", 1, 50),
        ("choice:7,9:3", 7, 9),
        ("lognormal:100:0.5:3", 1, 1e5),
    ],
)
def test_replicas_draw_of_their_own_and_the_seed_repeats_it(text, least, most):
    drawn = [draw_tokens(text, 400, replica) for replica in (0, 1, 0)]
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[0] != drawn[1]).any()
    assert (drawn[0] != draw_tokens(text.replace(":3", ":4"), 400, 0)).any()
    assert least <= min(map(min, drawn)) <= max(map(max, drawn)) <= most


def test_distributions_have_the_mean_that_they_state():
    assert draw_tokens("lognormal:2000:0.5:1", 200_000, 0).mean() == pytest.approx(2000, rel=0.01)
    weights = np.arange(1, 9) ** -1.5
    mean = (np.arange(1, 9) * weights).sum() / weights.sum()
    assert draw_tokens("zipf:1.5:8:1", 200_000, 0).mean() == pytest.approx(mean, rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "lognormal:2048",
        "lognormal:0:1:1",
        "lognormal:1e13:1:1",
        "lognormal:5:99",
        "uniform:9:1:1",
        "zipf:1:1e9:1",
        "zipf:0:5",
        "choice::1",
        "choice:1,x:1",
        "choice:1,2:z",
        "lognormal:nan:1:1",
        "uniform:1:2:99999999999",
    ],
)
def test_what_is_not_a_distribution_is_refused(text):
    with pytest.raises(InputError, match="not a distribution of tokens"):
        read(text)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no rows"),
        ("replica,microbatch,tokens\n", "has no rows"),
        ("a,b\n1,2\n", "has no column of tokens or factor"),
        ("replica,microbatch,tokens,factor\n0,0,1,1\n", "has tokens and factors"),
        ("replica,tokens\n0,1\n", "has no column of microbatch"),
        ("replica,microbatch,tokens\n0,0,x\n", "row 1: tokens is 'x'"),
        ("replica,microbatch,tokens\n0,0,-1\n", "row 1: tokens is '-1'"),
        ("replica,microbatch,tokens\n0,0,nan\n", "row 1: tokens is 'nan'"),
        ("replica,microbatch,tokens\n0,0,1e300\n", "row 1: tokens is '1e300'"),
        ("replica,microbatch,tokens\n0,0.5,1\n", "row 1: microbatch is '0.5'"),
        ("replica,microbatch,tokens\n0,99999999999,1\n", "row 1: microbatch is '99999999999'"),
        ("replica,microbatch,tokens\n5000,0,1\n", "row 1: replica is '5000'"),
        ("replica,microbatch,tokens\n0,0,1\n2,1,1\n", "has no sequence of replica 1"),
        ("replica,microbatch,tokens\n0,0,1\n", "has 1 microbatches, and the schedule has 2"),
        ("replica,microbatch,tokens\n0,0,0\n0,1,0\n", "no sequence takes any time"),
        ("replica,microbatch,stage,tokens\n0,0,2,1\n0,1,0,1\n", "row 1: stage is '2'"),
        ("replica,microbatch,tokens\n0,0\n", "row 1: tokens is None"),
        ("stage,tokens\n0,1\n", "has a stage and no microbatch"),
        ("replica,microbatch,sequence,tokens\n0,0,3,1\n0,1,3,1\n", "two rows of one sequence"),
    ],
)
def test_a_hostile_table_is_refused_with_the_place(content, says, tmp_path):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(InputError, match=says):
        read(str(tmp_path / "x.csv"))


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1]",
        '"x"',
        '{"tokens": [1]}',
        '{"tokens": {"a": 1}}',
        '{"tokens": true}',
        '{"tokens": null}',
        "[" * 9999,
        '{"tokens": 1' + "0" * 5000 + "}",
    ],
)
def test_hostile_json_lines_are_refused(line, tmp_path):
    (tmp_path / "x.jsonl").write_text(f'{{"tokens": 1, "replica": 0, "microbatch": 0}}\n{line}\n')
    with pytest.raises(InputError, match=r"x\.jsonl"):
        read(str(tmp_path / "x.jsonl"))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(60))
def test_broken_files_end_in_sequences_or_a_refusal(seed, tmp_path):
    """Of every format: bytes changed, left out or doubled."""
    draw = random.Random(seed)
    suffix = [".csv", ".jsonl", ".parquet"][seed % 3]
    data = bytearray(Path(written(tmp_path, suffix)).read_bytes())
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(data))
        data[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
        data = data or bytearray(b"x")
    (tmp_path / f"y{suffix}").write_bytes(data)
    try:
        found = read(str(tmp_path / f"y{suffix}"))
    except InputError:
        return
    assert np.isfinite(found.factors(2)).all()


def test_too_large_a_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PPSIM_MAX_SIZE", "20KiB")
    for suffix in (".csv", ".jsonl"):
        with pytest.raises(InputError, match="is larger than"):
            read(written(tmp_path, suffix, ROWS * 1000))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PLAIN)
@FEW
@given(data=st.data())
def test_linear_times_are_the_durations_of_costs(name, data):
    """Of every schedule, with pairs, slices, speeds and factors by kind."""
    schedule = data.draw(schedules(name))
    costs = data.draw(drawn_costs(schedule, EIGHTHS))
    M = schedule.whole_microbatches
    factor = st.floats(0, 4)
    one = np.array(data.draw(st.lists(factor, min_size=M, max_size=M)))
    linear = linear_times(schedule, costs)
    expected = scale_costs(schedule, costs, one[None]).durations(schedule)
    assert linear.durations(one[:, None])[:, 0] == pytest.approx(expected)
    by_stage = linear_times(schedule, costs, by_stage=True)
    same = np.tile(one, schedule.n_stages)
    assert by_stage.durations(same[:, None])[:, 0] == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 9)), min_size=1, max_size=12))
def test_the_times_of_packed_microbatches_sum_to_all(rows):
    slot, time = (np.array(part) for part in zip(*rows, strict=True))
    packed = join_times(time[:, None].astype(float), slot, 4, padded=False)
    padded = join_times(time[:, None].astype(float), slot, 4, padded=True)
    assert packed.sum() == pytest.approx(time.sum())
    assert (padded >= packed - 1e-9).all()
