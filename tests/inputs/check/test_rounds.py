"""Check proves queues whose last stage feeds results back, or names their circle, as run does."""

import json
import random
import re
from itertools import product

import pytest

from tests.commands import invoke


def write_decoder(folder, *queues, rounds=2):
    """Write queues of cells such as 0F1 that go round, and return the file's name."""
    cells = [
        (device, *re.findall(r"\d+|[A-Z_]+", cell))
        for device, queue in enumerate(queues)
        for cell in queue.split()
    ]
    device, stage, kind, microbatch = (list(column) for column in zip(*cells, strict=True))
    ops = {
        "device": device,
        "kind": kind,
        "stage": [int(number) for number in stage],
        "microbatch": [int(number) for number in microbatch],
    }
    path = folder / "decoder.json"
    path.write_text(json.dumps({"ops": ops, "steps": rounds, "feeds_back": True}))
    return str(path)


def test_a_circle_through_the_feedback_is_named(tmp_path):
    file = write_decoder(tmp_path, "0F0 0F2 0F1 0F3", "1F1 1F0 1F2 1F3")
    checked = invoke("check", file)
    assert checked.exit_code == 1
    assert "each waits for the next: 0F2 -> 1F0 -> 1F1 -> 0F1 -> 0F2" in checked.stdout
    assert "try: move 1F0 before 1F1 on device 1" in checked.stdout
    assert invoke("run", file).exit_code == 1


def test_a_step_before_the_result_that_it_needs_is_out_of_order(tmp_path):
    checked = invoke("check", write_decoder(tmp_path, "0F1 0F0"))
    assert "0F1 runs before 0F0 (device 0, op 2), which it needs" in checked.stdout


def test_rounds_of_unequal_microbatches_are_a_fault(tmp_path):
    file = write_decoder(tmp_path, "0F0 0F1 0F2")
    checked = invoke("check", file)
    assert checked.exit_code == 1
    assert "missing: 3 microbatches in 2 rounds, which each have as many" in checked.stdout


def test_a_circle_through_the_feedback_of_queues_with_messages_is_named(tmp_path):
    first = "0F0 0SEND_F0 0F2 0SEND_F2 0F1 0SEND_F1 0F3 0SEND_F3"
    second = "1RECV_F{0} 1F{0} 1RECV_F{1} 1F{1} 1RECV_F{2} 1F{2} 1RECV_F{3} 1F{3}"
    sound = write_decoder(tmp_path, first, second.format(0, 2, 1, 3))
    assert invoke("check", sound).exit_code == 0
    early = first.replace("0F0 0SEND_F0 0F2 0SEND_F2", "0F2 0SEND_F2 0F0 0SEND_F0")
    for mode in ((), ("--mode", "overlap")):
        checked = invoke("check", write_decoder(tmp_path, early, second.format(2, 0, 1, 3)), *mode)
        assert checked.exit_code == 1
        assert "0F2 (device 0, op 1) waits for 1F0" in checked.stdout


def test_messages_of_a_file_are_not_simulated_where_results_are_fed_back(tmp_path):
    """No message brings them back: the second step must not begin before the first one's end."""
    file = write_decoder(tmp_path, "0F0 0SEND_F0 0F1 0SEND_F1", "1RECV_F0 1F0 1RECV_F1 1F1")
    assert "makespan 4" in invoke("run", file, "-q").stdout
    refusal = invoke("run", file, "--p2p", "overlap").exception
    assert "cannot take decoder, whose last stage feeds results back to the first" in str(refusal)


@pytest.mark.sampled(13)
@pytest.mark.parametrize(
    ("devices", "chunks", "batches", "seed"),
    list(product((1, 2, 3), (1, 2), (1, 2, 3), (1, 2))),
)
def test_check_is_valid_exactly_where_run_finishes(devices, chunks, batches, seed, tmp_path):
    """Queues in any order: some of them finish, and most of them wait in a circle."""
    rng = random.Random(f"{devices} {chunks} {batches} {seed}")
    verdicts = set()
    for swaps in (0, 1, 1, 2, 3):
        queues = []
        for device in range(devices):
            queue = [
                f"{chunk * devices + device}F{microbatch}"
                for microbatch in range(2 * batches)
                for chunk in range(chunks)
            ]
            for _ in range(swaps):
                place = rng.randrange(len(queue))
                queue.insert(rng.randrange(len(queue)), queue.pop(place))
            queues.append(" ".join(queue))
        file = write_decoder(tmp_path, *queues)
        ran, checked = invoke("run", file, "-q"), invoke("check", file)
        assert checked.exit_code == (ran.exception is not None), (queues, checked.stdout)
        verdicts.add(checked.exit_code)
    assert 0 in verdicts


def test_a_file_of_several_steps_counts_microbatches_as_run_does(tmp_path):
    file = str(tmp_path / "run.json")
    shape = ("--devices", "4", "--mb", "8", "--steps", "3", "--t-optimizer", "1")
    verdict = json.loads(invoke("run", "1f1b", *shape, "-o", file, "--json").stdout)["verdict"]
    counts = "8 microbatches, 3 steps"
    assert counts in verdict
    assert invoke("check", file).stdout.startswith(f"valid: 4 devices, 4 stages, {counts}; ")
