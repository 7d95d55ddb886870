"""What a refusal's hint names works, or is refused for another reason than before."""

from __future__ import annotations

import shutil

import pytest

from tests.cases import PLAIN
from tests.cli.hint_fuzz import faults, faults_of
from tests.commands import ROOT

LINES = [
    "run 1f1b --devices 4 --stages 6 --mb 8",
    "run interleaved --devices 4 --chunks 2 --mb 6 --rule torch --group-size 3",
    "run 1f1b --devices 4 --mb 8 --slices 2",
    "run 1f1b --devices 4 --mb 8 --style paper",
    "run 1f1b --devices 4 --mb 8 --lowered",
    "run 1f1b --devices 4 --mb 8 --palette mono -f json -o x.svg -q",
    "run 1f1b --devices 4 --mb 8 --reorder",
    "run 1f1b --devices 4 --mb 8 --channel pair --p2p blocking",
    "run 1f1b --devices 4 --mb 8 --layout Et|t|t|t",
    "run 1f1b --devices 3 --mb 8 --layout Et|t|t|tL",
    "run 1f1b:3 --devices 4 --mb 8",
    "run 1f1b --devices 4 --mb 1000000000",
    "optimize --devices 100000000 --mb 8 --time-limit 1",
    "sweep 1f1b --devices 4 --mb 8 --style paper",
    "sweep zb-1p:3 --devices 4 --mb 8",
    "compare 1f1b interleaved --stages 8 --mb 8",
    "compare 1f1b zb-1p --devices 4 --mb 16 --fold",
    "check lowered.csv --chunks 2",
    "check plain.csv --queues pair",
    "check record.json.gz",
    "read record.json.gz",
    "convert record.json.gz -o x.json",
    "layout Et|t|tL --devices 2",
    "layout Et|mt|tL",
    "memory 1f1b --devices 4 --mb 8 --cap 1",
    "partition 1f1b --devices 4 --mb 8 --num-layers 14 --cap 3",
    "partition 1f1b --devices 4 --mb 8 --num-layers 3 --min-layers 1",
    "optimize --devices 2 --mb 2 --cap 0.5 --time-limit 2",
    "optimize --devices 2 --mb 2 --placement linear --chunks 2 --time-limit 2",
    "model llama3-8b --seq 2147483648",
    "model deepseek-v3 --layout Et*3|(tt|)*29,m|L --pp 8 --vp 2",
]


@pytest.mark.sampled(13)
@pytest.mark.parametrize("line", LINES)
def test_what_a_hint_names_is_not_refused_for_the_same_reason(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.csv").write_text("0F0,0B0\n1F0,1B0\n")
    (tmp_path / "lowered.csv").write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    shutil.copy(
        ROOT / "tests" / "data" / "records" / "timed-p2.json.gz", tmp_path / "record.json.gz"
    )
    tried = list[int]()
    assert list(faults_of(line.split(), tried)) == []
    assert tried, "no hint of it can be followed"


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", PLAIN)
def test_the_nearest_numbers_that_a_schedules_rules_name_work(name):
    """Odd and few numbers break every rule that there is; what takes them all has no hint."""
    tried = list[int]()
    for shape in (
        "--devices 3 --mb 1",
        "--devices 5 --chunks 3 --mb 7",
        "--stages 7 --mb 5",
        "--devices 4 --mb 3",
    ):
        assert list(faults_of(["run", name, *shape.split(), "-q"], tried)) == []


@pytest.mark.slow
def test_no_hint_of_random_command_lines_leads_to_the_same_refusal():
    """More of them: ``python -m tests.cli.hint_fuzz SEED COUNT``."""
    tried = list[int]()
    assert (
        list(faults(3, 150, ("jitter", "plan", "optimize", "validate", "calibrate"), tried)) == []
    )
    assert len(tried) > 20
