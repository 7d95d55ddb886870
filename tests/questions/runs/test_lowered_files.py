"""A file with sends and receives runs as it is: its own messages, in its own order."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import ppsim
from ppsim.core.draft import Draft
from ppsim.engine.lowering.lower import TORCH_ORDERS, lower
from ppsim.errors import PpsimError
from ppsim.schedules import generate
from tests.commands import invoke

SHAPE = ("--devices", "2", "--mb", "4")
# What torch 2.13's defer_pp_recv makes of two devices (BSD-3-Clause, PyTorch's tests).
DEFERRED = """0F0,0RECV_B0,0SEND_F0,0F1,0SEND_F1,0I0,0W0,0RECV_B1,0I1,0W1
1RECV_F0,1F0,1I0,1SEND_B0,1W0,1RECV_F1,1F1,1I1,1SEND_B1,1W1
"""
SHARDED = """0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD
1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD
"""


def written(folder, text):
    path = folder / "own.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "order", ["early", "even-first", "torch", "torch-2.15", "deferred", "prefetch:2"]
)
@pytest.mark.parametrize("name", ["1f1b", "zb-v-torch", "interleaved", "dualpipe-v"])
def test_a_lowered_file_takes_as_long_as_the_order_that_it_was_written_with(name, order, tmp_path):
    """In every mode, hangs included: file and schedule end alike."""
    lowered = lower(
        generate(name, devices=2, microbatches=4), order, reduce_grad=order in TORCH_ORDERS
    )
    rows = Draft.from_schedule(lowered.schedule).cells()
    file = written(tmp_path, "\n".join(",".join(row) for row in rows))
    for mode in ("overlap", "batched", "blocking"):
        costs = ("--comm", "0.5", "--cost-per", "stage", "--p2p", mode, "--json")
        own, made = (
            invoke("run", file, *costs),
            invoke("run", name, *SHAPE, *costs, "--order", order),
        )
        assert own.exit_code == made.exit_code, own.output
        if own.exit_code == 0:
            assert json.loads(own.stdout)["makespan"] == json.loads(made.stdout)["makespan"]
            assert own.stderr == ""


@pytest.mark.sampled(13)
@pytest.mark.parametrize("order", ["torch", "torch-2.15", "deferred"])
@pytest.mark.parametrize(
    "name", ["interleaved", "1f1b", "zb-v-torch", "hanayo", "looped-bfs", "dualpipe-v"]
)
def test_a_command_times_the_order_that_it_writes(name, order, tmp_path):
    """In torch's orders, with torch's reductions of gradients; the file that it writes takes as
    long, in every mode.
    """
    file, words = str(tmp_path / "own.csv"), ("--devices", "4", "--mb", "8", "--order", order)
    for mode in ("blocking", "batched", "overlap"):
        costs = (
            "--comm",
            "0.5",
            "--cost-per",
            "stage",
            "--tf",
            "1",
            "--ti",
            "1.1",
            "--tw",
            "0.7",
            "--p2p",
            mode,
            "--json",
        )
        timed, wrote = (
            invoke("run", name, *words, *costs, *more) for more in ((), ("--lowered", "-o", file))
        )
        assert timed.exit_code == wrote.exit_code
        if timed.exit_code == 0:
            read = invoke("run", file, *costs)
            assert (
                len({json.loads(each.stdout)["makespan"] for each in (timed, wrote, read)}) == 1
            ), mode


def test_a_file_that_hangs_says_where(tmp_path):
    """The verdicts of the three kinds of communicators: an edge's queues run, a pair's and a rank's
    hang.
    """
    file = written(tmp_path, DEFERRED)
    for options, code in (
        (("--p2p", "overlap"), 0),
        (("--channel", "direction"), 0),
        (("--channel", "pair"), 1),
        (("--channel", "group"), 1),
        (("--p2p", "batched"), 0),
        (("--p2p", "blocking"), 1),
    ):
        result = invoke("run", file, "-q", *options)
        assert result.exit_code == code, options
        assert ("0RECV_B0" in str(result.exception)) == bool(code)


def test_own_messages_change_times(tmp_path):
    """A receive posted ahead of the send it follows takes its channel first."""
    file = written(tmp_path, DEFERRED)
    own = ppsim.run(file, comm=0.5, p2p="overlap")
    with pytest.warns(UserWarning, match="--order sets theirs"):
        early = ppsim.run(file, comm=0.5, p2p="overlap", order="early")
    assert own.timeline.makespan > early.timeline.makespan


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ((), "; --p2p times them"),
        (("--p2p", "overlap", "--order", "early"), "; --order sets theirs"),
        (("--p2p", "overlap", "--recompute"), "; --recompute adds ops to its queues"),
        (("--p2p", "overlap", "--merge-bw"), "; --merge-bw changes its ops"),
        (("--p2p", "overlap"), None),
        (("--lowered", "-o", "-", "-f", "csv"), None),
    ],
)
def test_what_is_left_out_is_said(options, note, tmp_path):
    result = invoke("run", written(tmp_path, DEFERRED), "-q", *options)
    assert result.exit_code == 0
    assert (note or "") in result.stderr
    assert ("left out" in result.stderr) == bool(note)


def test_a_lowered_file_is_written_as_it_was_read(tmp_path):
    for text in (DEFERRED, SHARDED):
        assert (
            invoke("run", written(tmp_path, text), "--lowered", "-o", "-", "-f", "csv").stdout
            == text
        )


def test_ops_of_fsdp_are_timed_and_none_are_added(tmp_path):
    file, cluster = written(tmp_path, SHARDED), tmp_path / "c.toml"
    links = 'schema = "ppsim.cluster/1"\ndevices_per_node = 2\n[intra]\n[inter]\n'
    cluster.write_text(links + "[fsdp]\nunshard_us = 1000\nreduce_grad_us = 500\n")
    options: dict[str, Any] = {"cluster": str(cluster), "unit": "ms"}
    run = ppsim.run(file, **options)
    assert run.execution
    # 1 to gather, 2 forwards, 2 backwards of 2, and 0.5 to reduce on the first device
    assert run.execution.timeline.makespan == 7.5
    with pytest.raises(PpsimError, match="states its own"):
        ppsim.run(file, reduce_grad=True, **options)


def test_the_grid_shows_own_messages_and_no_op_without_a_slot(tmp_path):
    grid: Any = ppsim.run(written(tmp_path, SHARDED), grid=True, lowered=True)
    assert [[cell for cell in row if cell] for row in grid.rows] == [
        ["0F0", "0SEND_F0", "0RECV_B0", "0B0"],
        ["1RECV_F0", "1F0", "1B0", "1SEND_B0"],
    ]


def test_explanations_and_what_ifs_keep_own_messages(tmp_path):
    """A change of costs runs the same messages: a message that takes nothing ends as in a run of
    its own.
    """
    file = written(tmp_path, DEFERRED)
    found = ppsim.explain(file, p2p="batched", comm=0.5, what_if=["comm=0"])
    changed = found.to_json()["what_if"][0]["makespan"]
    assert changed == ppsim.run(file, p2p="batched").timeline.makespan
    assert np.isclose(found.to_json()["makespan"], 10)
