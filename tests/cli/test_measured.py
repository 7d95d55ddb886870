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
    found = json.loads(say("memory", "1f1b", "--devices", "8", "--mb", "16", "--measured", peaks, "--json").output)
    rows = found["measured"]["devices"]
    assert [row["measured_gib"] for row in rows] == pytest.approx(PEAKS)
    assert max(abs(row["error"]) for row in rows) < 0.05
    assert found["measured"]["worst"] == 0


def test_memory_prints_them_by_device(peaks):
    text = say("memory", "1f1b", "--devices", "8", "--mb", "16", "--measured", peaks).output
    assert "dev 7" in text
    assert "fitted to the measured peaks: 43.6 GiB that each device always holds, 7.46 GiB an activation" in text


def test_model_prints_predicted_beside_measured(peaks):
    words = ["model", "llama2-7b", "--pp", "8", "--mb", "16", "--measured", peaks]
    found = json.loads(say(*words, "--json").output)
    assert [row["measured_gib"] for row in found["devices"]] == pytest.approx(PEAKS)
    assert found["line"]["in_flight"] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert "measured, device 0 holds most, 104.3 GiB" in say(*words).output


def test_model_lists_the_library_and_explains_one():
    assert re.search(r"\ndeepseek-v3 +671\.0 +37\.55 +61 +7,168 +4,096\n", say("model").output)
    text = say("model", "llama3-8b").output
    assert "llama3-8b: 8.03 B parameters" in text
    assert "query, key, value" in text
    found = json.loads(say("model", "llama3-8b", "--tp", "2", "--pp", "2", "--cluster", "dgx-h100", "--json").output)
    assert [row["layers"] for row in found["stages"]] == [16, 16]
    assert found["step"]["seconds"] > 0
    assert len(found["devices"]) == 2


def test_model_finds_what_to_recompute_and_which_layout_evens_out_the_devices():
    text = " ".join(say("model", "llama3-70b", "--tp", "4", "--pp", "4", "--mb", "16", "--even").output.split())
    assert "layers to recompute on each stage: 16,11,6,0 then the worst holds 88.8 GiB" in text
    assert "layout: Et*17|t*19|t*21|t*23L then the worst holds 1" in text
    assert "--num-layers 80 --pipeline-model-parallel-layout 'Et*17|t*19|t*21|t*23L'" in text
