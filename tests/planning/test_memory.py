"""Memory of pipeline devices against measured runs, files of measured peaks, and which layers to recompute."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.errors import InputError
from ppsim.layout.layout import build_layout
from ppsim.planning.activations import layer_activations
from ppsim.planning.costs import schedule_of
from ppsim.planning.even import even_layers, even_out
from ppsim.planning.measured import fit_line, read_peaks
from ppsim.planning.memory import device_memory, host_memory, in_flight
from ppsim.planning.model import layer_parameters, read_model
from ppsim.planning.parallel import Parallel

# SimuMax docs (MooreThreads/SimuMax@4dcaae5): PyTorch's peaks in MiB on B200, Megatron-LM 0.14, a few layers.
RUNS = [
    ("llama3-70b", 12, 4096, Parallel(pp=2, dp=4, microbatches=4), [68149.2, 64479.5]),
    ("llama3-70b", 12, 4096, Parallel(tp=2, dp=4, microbatches=4), [62136.4]),
    ("llama3-70b", 12, 4096, Parallel(tp=4, dp=2, microbatches=4), [40009.8]),
    ("llama3-70b", 12, 4096, Parallel(tp=8, microbatches=4), [28965.4]),
    ("llama3-70b", 12, 32768, Parallel(tp=2, cp=4, microbatches=4), [70070.6]),
    ("llama3-70b", 12, 131072, Parallel(cp=8, microbatches=4), [151539.4]),
    ("deepseek-v2", 4, 4096, Parallel(pp=2, dp=4, ep=4, microbatches=4), [32343.4, 45775.8]),
    ("deepseek-v3", 4, 4096, Parallel(pp=2, dp=4, ep=4, microbatches=4), [72948.5, 116737.9]),
    ("deepseek-v3", 4, 4096, Parallel(dp=8, ep=8, microbatches=4), [106803.8]),
]


@pytest.mark.parametrize(("name", "layers", "seq", "parallel", "measured"), RUNS)
def test_peaks_are_within_five_percent_of_measured_ones(name, layers, seq, parallel, measured):
    model = read_model(name)
    few = replace(model, layers=layers, seq=seq, mtp=0, dense_layers=min(model.dense_layers, 1))
    assert device_memory(few, parallel).total / 2**20 == pytest.approx(np.array(measured), rel=0.05)


def test_devices_hold_as_many_microbatches_as_the_schedule_says():
    assert in_flight(schedule_of("1f1b", 4, 1, 8)).tolist() == [4, 3, 2, 1]
    assert in_flight(schedule_of("gpipe", 4, 1, 8)).tolist() == [8, 8, 8, 8]
    assert in_flight(schedule_of("interleaved", 4, 2, 8)).tolist() == [11, 9, 7, 5]


def test_zero_divides_states_and_recompute_drops_activations():
    model, plain = read_model("llama3-8b"), Parallel(dp=8, zero=0)
    whole = device_memory(model, plain)
    divided = device_memory(model, replace(plain, zero=3))
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(divided, part)[0] == pytest.approx(getattr(whole, part)[0] / 8)
    full = device_memory(model, replace(plain, recompute="full"))
    assert full.activations[0] == 32 * 8192 * 4096 * 2  # each layer's input in 16 bits


def test_evening_out_lowers_the_worst_device_to_the_least():
    model, parallel = read_model("llama3-70b"), Parallel(tp=4, pp=4, dp=4, microbatches=16)
    before = device_memory(model, parallel).total
    chosen = even_out(model, parallel)
    after = device_memory(model, replace(parallel, recompute="full", recompute_layers=chosen)).total
    assert before.max() > 1.4 * before.min()
    assert after.max() <= before.min() * 1.001
    assert chosen == tuple(sorted(chosen, reverse=True))  # the first stage holds the most


def test_a_layout_evens_out_devices_as_far_as_whole_layers_can():
    """No move of one more layer from the worst device to any stage of another one lowers what the worst holds."""
    model, parallel = replace(read_model("llama3-8b"), layers=16), Parallel(tp=4, pp=4, microbatches=16)
    found = even_layers(model, parallel)
    held = device_memory(model, parallel, found).total
    assert (found.n_layers, min(found.layers) > 0) == (16, True)
    assert held.max() < 0.9 * device_memory(model, parallel).total.max()
    worst = int(held.argmax())
    for target in set(range(4)) - {worst}:
        layers = list(found.layers)
        layers[worst] -= 1
        layers[target] += 1
        assert device_memory(model, parallel, build_layout(layers, 4)).total.max() >= held.max()
    assert even_layers(model, parallel, found) == found


def test_offloaded_activations_wait_in_the_hosts_memory():
    """A GPU keeps the rest, and the layer that is being copied."""
    model, parallel = read_model("llama3-70b"), Parallel(tp=4, pp=4, microbatches=16)
    plain, half = device_memory(model, parallel), device_memory(model, replace(parallel, offload=0.5))
    assert host_memory(model, replace(parallel, offload=0.5)) == pytest.approx(plain.activations / 2)
    assert half.activations == pytest.approx(plain.activations / 2)
    assert (half.work >= plain.work).all()


def test_inputs_of_linear_layers_are_kept_as_narrow_as_they_are_multiplied():
    """In FP8 a byte less for each element of four inputs: of query, key, value; of attention's output; of the MLP's."""
    model, parallel = read_model("llama3-70b"), Parallel(tp=4)
    wide, narrow = (layer_activations(model, replace(parallel, precision=p), False, "none") for p in ("bf16", "fp8"))
    inputs = 2 * model.hidden / 4 + model.hidden / 4 + model.ffn / 4
    assert wide - narrow == pytest.approx(model.seq * inputs)
    full = {p: layer_activations(model, replace(parallel, precision=p), False, "full") for p in ("bf16", "fp8")}
    assert full["bf16"] == full["fp8"]


def test_zero_three_holds_a_share_of_the_weights_and_two_layers_whole():
    model = read_model("llama3-70b")
    two, three = (device_memory(model, Parallel(dp=64, microbatches=4, zero=zero)) for zero in (2, 3))
    layer = 2 * layer_parameters(model, False)
    ends = 2 * 2 * model.vocab * model.hidden
    assert three.weights == pytest.approx(two.weights / 64)
    assert three.work - two.work == pytest.approx(2 * layer + ends)


def test_measured_peaks_are_read_in_the_forms_people_have(tmp_path):
    """PyTorch's and Megatron's GB and MB are 2^30 and 2^20; of several ranks of a device the largest counts."""
    texts = {
        "list.json": "[4, 2]",
        "unit.json": '{"unit": "MiB", "memory": [4096, 2048]}',
        "ranks.json": '{"peak_by_rank_MB": {"0": 4000, "1": 4096, "2": 2048, "3": 2000}}',
        "nested.json": '{"source": "x", "pp8": {"memory_GB_per_rank": [4, 2]}}',
        "lines.txt": "4GiB\n2048MiB\n",
        "table.csv": "rank 0,4\nrank 1,2\n",
        "heading.csv": "device,peak MiB\n0,4096\n1,2048.0\n",
        "gib.csv": "rank,peak_gib\n0,4\n1,2\n",
        "key.json": '{"run": 3, "peaks_mib": [4096, 2048]}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert read_peaks(str(tmp_path / name), 2).tolist() == [4 * 2**30, 2 * 2**30], name
    folder = tmp_path / "primus"
    folder.mkdir()
    for rank, held in enumerate((4, 2)):
        text = json.dumps({"1": {"memory": held / 2}, "2": {"memory": held}})
        (folder / f"pp_rank_{rank}.json").write_text(text)
    assert read_peaks(str(folder), 2).tolist() == [4 * 2**30, 2 * 2**30]
    (tmp_path / "halves.txt").write_text("4.5\n2.25\n")
    assert read_peaks(str(tmp_path / "halves.txt"), 2).tolist() == [4.5 * 2**30, 2.25 * 2**30]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("{}", "has no memory by rank"), ("[1, 2, 3]", "of 3 ranks, and the pipeline has 2"),
     ("[" * 200_000, "is not JSON"), ("[1e400, 3]", "has no memory by rank"), ("[NaN, 3]", "has no memory by rank"),
     (f"[1{'0' * 400}, 3]", "has no memory by rank"), ('[1, "x"]', "has no memory by rank"),
     ("4 parsec\n1\n", "line 1: '4 parsec' is not a size")],
)  # fmt: skip
def test_a_file_without_peaks_is_refused(tmp_path, text, message):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_peaks(str(tmp_path / "m.json"), 2)


def test_a_line_over_microbatches_in_flight_explains_a_real_run():
    """Eight MI300X, PP 8, 16 microbatches (AMD-AGI/Primus@fd1eeabb, pp_data_example): within 3.5 % on each device."""
    measured = np.array([104.33, 95.57, 88.11, 80.33, 73.15, 65.85, 58.07, 52.20])
    held = in_flight(schedule_of("1f1b", 8, 1, 16)).astype(float)
    base, each = fit_line(held, measured)
    assert base + each * held == pytest.approx(measured, rel=0.035)
