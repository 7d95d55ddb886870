"""Memory of microbatches of different lengths goes by their tokens, op by op, in every command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import SOME
from tests.commands import invoke, refused

SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-1p", "zb-v", "v-half", "dualpipe", "dualpipe-v")
STAGES = {"interleaved": 2, "zb-v": 2, "v-half": 2, "dualpipe-v": 2}  # of a device


def write(path: Path, tokens: list[list[list[int]]]) -> str:
    """A file of sequences: tokens of each sequence of each microbatch of each replica."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("replica", "microbatch", "tokens"))
        for replica, microbatches in enumerate(tokens):
            for microbatch, sequences in enumerate(microbatches):
                rows.writerows((replica, microbatch, length) for length in sequences)
    return str(path)


def ask(*words: str) -> dict[str, Any]:
    return json.loads(invoke(*words, "--json").stdout)


def peak_of(ops: dict[str, Any], sizes: np.ndarray, devices: int) -> list[float]:
    """Walk each device's queue: F takes its microbatch's activation, B or W gives it back; of a
    pair both run at once.
    """
    peaks = []
    for device in range(devices):
        own = [i for i, on in enumerate(ops["device"]) if on == device]
        held = peak = 0.0
        freed = 0.0  # by the ops of a pair, at its end
        for i in own:
            size = sizes[ops["microbatch"][i]]
            closes = ops["pair"][i] >= 0 and ops["pair"][i] < i
            if not closes:
                held, freed = held - freed, 0.0
            if ops["kind"][i] == "F":
                held += size
            if ops["kind"][i] in "BW":
                freed += size
            peak = max(peak, held)
        peaks.append(peak)
    return peaks


@SOME
@given(data=st.data(), name=st.sampled_from(SCHEDULES), padded=st.booleans())
def test_peaks_are_those_of_a_walk_over_the_queues(data, name, padded, tmp_path_factory):
    devices, microbatches = 4, 8
    tokens = data.draw(
        st.lists(
            st.lists(
                st.lists(st.integers(1, 4000), min_size=1, max_size=3),
                min_size=microbatches,
                max_size=microbatches,
            ),
            min_size=1,
            max_size=3,
        )
    )
    path = write(tmp_path_factory.mktemp("lengths") / "lengths.csv", tokens)
    words = (name, "--devices", str(devices), "--mb", str(microbatches))
    lengths = ("--lengths", path, *["--padded"] * padded)
    whole = np.array([[max(s) * len(s) if padded else sum(s) for s in row] for row in tokens])
    sizes = whole / whole.mean()
    ops = ask("run", *words)["ops"]
    wanted = [peak_of(ops, row, devices) for row in sizes]
    found = ask("memory", *words, *lengths)
    assert np.array(found["peak_of_replicas"]) == pytest.approx(np.array(wanted), abs=1e-6)
    most = int(np.max(wanted, axis=1).argmax())
    assert np.max(found["peak"]) == pytest.approx(np.max(wanted), abs=1e-6)
    assert found["peak"] == pytest.approx(found["peak_of_replicas"][found["replica"]])
    assert np.max(wanted[most]) == pytest.approx(np.max(found["peak"]), abs=1e-6)
    for part in found["parts"]:
        assert part in ("activations", "weight-gradient stash")
    # a cap just above what is held fits, and one just below does not; --cap counts 1/P shares
    share = float(np.max(wanted)) / STAGES.get(name, 1)
    for factor, fits in ((1 + 1e-4, True), (1 - 1e-4, False)):
        cap = ("--cap", f"{share * factor:.9f}")
        assert ask("memory", *words, *lengths, *cap)["fits"] is fits
        assert ask("run", *words, *lengths, *cap)["fits"] is fits


@pytest.mark.parametrize(("padded", "peaks"), [((), (1.5, 2.5)), (("--padded",), (16 / 9, 20 / 9))])
def test_sizes_are_over_the_mean_of_all_replicas_padding_included(padded, peaks, tmp_path):
    """GPipe holds all: 600 and 1,000 tokens where a mean microbatch has 400; padded 800 and 1,000
    where it has 450.
    """
    path = write(tmp_path / "l.csv", [[[100, 300], [200]], [[400], [600]]])
    found = ask("memory", "gpipe", "--devices", "2", "--mb", "2", "--lengths", path, *padded)
    assert np.array(found["peak_of_replicas"]) == pytest.approx(np.array([[p, p] for p in peaks]))
    assert found["replica"] == 1


def test_explain_and_compare_hold_changes_to_the_longest_microbatch(tmp_path):
    """A microbatch of eight times the others' tokens fills the cap that counts means would fit."""
    tokens = [[[100]] * 7 + [[800]]] * 2
    words = ("--devices", "4", "--mb", "8", "--lengths", write(tmp_path / "l.csv", tokens))
    mean = (7 * 100 + 800) / 8
    held = ask("explain", "1f1b", *words)["memory"]["held"]
    assert held == pytest.approx((3 * 100 + 800) / mean)
    rows = {
        row["schedule"]: row
        for row in ask("compare", "1f1b", "gpipe", *words, "--cap", "6")["schedules"]
    }
    assert rows["1f1b"]["fits"]
    assert not rows["gpipe"]["fits"]
    tight = ask("explain", "1f1b", *words, "--cap", "5")
    assert any("holds" in each["change"] for each in tight["what_if"]) or tight["advice"]


def test_bytes_of_a_model_go_by_tokens(tmp_path):
    """Microbatches as long as the model's are as without lengths; twice as long, as with twice the
    sequence, and what does not depend on tokens stays.
    """
    shape = ("1f1b", "--devices", "4", "--mb", "6", "--model", "llama3-8b", "--tp", "2")
    for times, more in ((1, ()), (2, ("--seq", "16384"))):
        path = write(tmp_path / f"{times}.csv", [[[times * 8192]] * 6])
        found = ask("memory", *shape, "--lengths", path)
        wanted = ask("memory", *shape, *more)
        assert found["peak"] == pytest.approx(wanted["peak"], rel=1e-9)
        assert found["static"] == wanted["static"]
    # the second of them is half as long
    path = write(tmp_path / "half.csv", [[[8192]] * 5 + [[4096]]])
    half, plain = ask("memory", *shape, "--lengths", path), ask("memory", *shape)
    assert half["peak"][0] == plain["peak"][0]  # the other four are held at the peak


def test_a_context_that_is_split_leaves_a_share_of_its_tokens(tmp_path):
    path = tmp_path / "cp.csv"
    path.write_text("microbatch,cp\n7,4\n")
    words = ("gpipe", "--devices", "2", "--mb", "8")
    found = ask("memory", *words, "--cp-of", str(path))
    assert found["peak"] == [7.25, 7.25]


def test_a_distribution_is_drawn_as_run_draws_it():
    """With several sequences in a microbatch too, and without a model."""
    words = ("1f1b", "--devices", "4", "--mb", "8", "--lengths", "choice:512,1024:3", "--mbs", "3")
    held = ask("memory", *words)
    size = max(map(max, held["peak_of_replicas"]))
    assert ask("run", *words, "--cap", f"{size + 1e-6:.9f}")["fits"]
    assert not ask("run", *words, "--cap", f"{size - 1e-6:.9f}")["fits"]


def test_lengths_without_meaning_for_memory_are_refused(tmp_path):
    path = write(tmp_path / "l.csv", [[[100]] * 8])
    said = str(refused("memory", "1f1b", "--devices", "4", "--mb", "8", "--padded"))
    assert "needs --lengths" in said
    words = ("decode", "--serve", "--devices", "4", "--model", "llama3-8b", "--cap", "60GiB")
    assert "no effect" in str(refused("memory", *words, "--lengths", path))
