"""A memory cap above the memory of the cluster's GPU is said, wherever both are known."""

import shlex

import pytest

import ppsim as pp
from tests.commands import answer

SHAPE = "--devices 4 --mb 8"
JOB = f"{SHAPE} --model llama3-8b --cluster dgx-h100"
PLAN = "plan --model llama2-7b --cluster dgx-h100 --gpus 8 --gbs 8 --pp 1 --top 1"
COMMANDS = [
    f"run 1f1b {JOB} --no-gantt",
    f"compare 1f1b zb-1p {JOB}",
    f"sweep 1f1b {JOB}",
    f"explain 1f1b {JOB}",
    PLAN,
]
REMARK = "is above the 80 GiB of a GPU (h100): what fits the cap may not fit the GPU"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_a_cap_above_the_gpu_is_said(command):
    """The note is on standard error; at the memory of the GPU there is none."""
    code, out, noted = answer(*shlex.split(command), "--cap", "80.1GiB", "-q")
    assert code == 0, noted
    assert out
    assert f"--cap 80.1GiB {REMARK}" in noted
    code, out, noted = answer(*shlex.split(command), "--cap", "80GiB", "-q")
    assert code == 0, noted
    assert "is above" not in noted


def test_one_device_of_a_list_is_enough():
    """A list has one cap for each device, and the largest counts."""
    caps = "70GiB,70GiB,70GiB,200GiB"
    code, _, noted = answer("run", "1f1b", *JOB.split(), "--no-gantt", "--cap", caps)
    assert code == 1
    assert f"--cap {caps} {REMARK}" in noted


def test_the_largest_gpu_of_a_mixed_cluster_counts(tmp_path):
    """A cap below the memory of the largest GPU is in use, so nothing is said of it."""
    file = tmp_path / "mixed.toml"
    nodes = "".join(f'[[nodes]]\ngpu = "{gpu}"\ncount = 1\n' for gpu in ("h200", "a100-40gb"))
    links = '[intra]\nlink = "nvlink4"\n[inter]\nlink = "ib-400"\n'
    file.write_text(f'schema = "ppsim.cluster/1"\ndevices_per_node = 4\n{links}{nodes}')
    words = PLAN.replace("dgx-h100 --gpus 8", f"{file} --gpus 8")
    _, _, noted = answer(*words.split(), "--cap", "100GiB", "-q")
    assert "is above" not in noted
    _, _, noted = answer(*words.split(), "--cap", "150GiB", "-q")
    assert "--cap 150GiB is above the 141 GiB of a GPU" in noted


def test_python_warns():
    """Python has the note as a warning."""
    with pytest.warns(UserWarning, match="--cap 200GiB is above the 80 GiB"):
        pp.compare(
            ["1f1b", "zb-1p"],
            devices=4,
            microbatches=8,
            model="llama3-8b",
            cluster="dgx-h100",
            cap="200GiB",
        )


def test_without_a_gpu_nothing_is_said():
    """The bytes of a model alone name no GPU."""
    _, out, noted = answer(*f"memory 1f1b {SHAPE} --model llama3-8b --cap 900GiB".split())
    assert "above" not in out + noted
