"""Measured peaks beside those of a schedule or a model."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from ppsim.cli import group

# Eight MI300X, PP 8, 16 microbatches, GiB by rank: AMD-AGI/Primus@fd1eeabb, pp_data_example.
PEAKS = [104.33, 95.57, 88.11, 80.33, 73.15, 65.85, 58.07, 52.20]


@pytest.fixture
def peaks(tmp_path):
    path = tmp_path / "peaks.json"
    path.write_text(json.dumps(PEAKS))
    return str(path)


def say(*words):
    return CliRunner().invoke(group, words, catch_exceptions=False)


def test_memory_fits_activations_to_measured_peaks(peaks):
    found = json.loads(
        say("memory", "1f1b", "--devices", "8", "--mb", "16", "--measured", peaks, "--json").output
    )
    rows = found["measured"]["devices"]
    assert [row["measured_gib"] for row in rows] == pytest.approx(PEAKS)
    assert max(abs(row["error"]) for row in rows) < 0.05
    assert found["measured"]["worst"] == 0


def test_memory_prints_them_by_device(peaks):
    text = say("memory", "1f1b", "--devices", "8", "--mb", "16", "--measured", peaks).output
    assert "dev 7" in text
    assert (
        "fitted to the measured peaks: 43.6 GiB that each device always holds, 7.46 GiB an "
        "activation" in text
    )


def test_memory_of_a_model_stands_beside_measured_peaks(peaks):
    """In bytes nothing is fitted: each device has its error."""
    words = [
        "memory",
        "1f1b",
        "--devices",
        "8",
        "--mb",
        "16",
        "--model",
        "llama2-7b",
        "--measured",
        peaks,
    ]
    found = json.loads(say(*words, "--json").output)
    rows = found["measured"]["devices"]
    assert [row["peak_gib"] * 2**30 for row in rows] == pytest.approx(found["peak"])
    assert [row["error"] for row in rows] == pytest.approx(
        [row["peak_gib"] / row["measured_gib"] - 1 for row in rows]
    )
    assert "base_gib" not in found["measured"]
    assert "measured, device 0 holds most, 104.3 GiB" in say(*words).output


def test_model_lists_the_library_and_explains_one():
    assert re.search(r"\ndeepseek-v3 +671\.03 +37\.55 +61 +7,168 +4,096\n", say("model").output)
    text = say("model", "llama3-8b").output
    assert "llama3-8b: 8.03 B parameters" in text
    assert "query, key, value" in text
    found = json.loads(
        say(
            "model", "llama3-8b", "--tp", "2", "--pp", "2", "--cluster", "dgx-h100", "--json"
        ).output
    )
    assert [row["layers"] for row in found["stages"]] == [16, 16]
    assert found["step"]["seconds"] > 0
    assert len(found["devices"]) == 2
