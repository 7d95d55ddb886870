"""I and W merged into B and B split into I and W: which ops change, which stay, and that the way
back is the same.
"""

import pytest

from ppsim.core.draft import Draft
from ppsim.core.split_backward import merge_backwards, split_backwards
from ppsim.engine.lowering.lower import lower
from ppsim.errors import InputError
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import families, generate
from tests.commands import invoke, refused

FULL = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
SPLIT = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n"


def text(schedule) -> str:
    return "".join(",".join(cells) + "\n" for cells in Draft.from_schedule(schedule).cells())


def test_each_op_that_is_split_or_merged_is_where_it_was():
    full, split = (parse(rows, "x.csv").schedule() for rows in (FULL, SPLIT))
    assert text(split_backwards(full)) == SPLIT
    assert text(merge_backwards(split)) == FULL


SCHEDULES = {
    family.name: generate(family.name, devices=4, microbatches=8)
    for family in families()
    if not family.lanes
}
FULL_ONLY = [
    name
    for name, made in SCHEDULES.items()
    if (made.pair < 0).all() and "B" in text(made) and "I" not in text(made)
]


@pytest.mark.parametrize("name", FULL_ONLY)
def test_what_is_split_can_be_merged_again(name):
    """Every family without pairs and with full backwards only comes back as it was, lowered or
    not.
    """
    schedule = SCHEDULES[name]
    for made in (schedule, lower(schedule).schedule):
        split = split_backwards(made)
        assert "B" not in text(split).replace("_B", "")
        assert text(merge_backwards(split)) == text(made)
        assert check(parse(text(split), "x.csv"), ("overlap",)).faults == []


@pytest.mark.parametrize(
    ("row", "merged"),
    [
        ("0F0,0F1,0I0,0I1,0W0,0W1", None),
        ("0F0,0F1,0I0,0I1,0W1,0W0", "0F0,0F1,0I0,0B1,0W0\n"),
        ("0F0,1F0,1I0,0I0,0W0,1W0", "0F0,1F0,1I0,0B0,1W0\n"),
        ("0F0,0F1,0B0,0I1,0W1", "0F0,0F1,0B0,0B1\n"),
    ],
)
def test_only_a_w_right_after_its_own_i_is_merged(row, merged):
    schedule = parse(row, "x.csv").schedule()
    if merged is None:
        with pytest.raises(InputError, match="no I is followed by its W"):
            merge_backwards(schedule)
    else:
        assert text(merge_backwards(schedule)) == merged


def test_a_send_between_i_and_w_keeps_them_apart():
    """Merging would hold the gradient back until W is done."""
    draft = parse("0F0,0SEND_F0,0RECV_B0,0I0,0W0\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\n", "x.csv")
    assert text(merge_backwards(draft.whole_schedule())).splitlines() == [
        "0F0,0SEND_F0,0RECV_B0,0B0",
        "1RECV_F0,1F0,1I0,1SEND_B0,1W0",
    ]


def test_a_backward_of_a_pair_is_neither_split_nor_merged():
    with pytest.raises(InputError, match="in a pair"):
        split_backwards(generate("dualpipe-v", devices=2, microbatches=6))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_merged_and_split_by_convert(folder):
    (folder / "full.csv").write_text(FULL)
    assert invoke("convert", "full.csv", "--split-bw", "-o", "split.csv").exit_code == 0
    assert (folder / "split.csv").read_text() == SPLIT
    assert invoke("convert", "split.csv", "--merge-bw", "-o", "again.csv").exit_code == 0
    assert (folder / "again.csv").read_text() == FULL
    for name in ("split.csv", "again.csv"):
        assert invoke("check", name, "--for", "torch-2.13").exit_code == 0


def test_a_file_with_times_is_refused_unless_lossy(folder):
    assert invoke("run", "1f1b", "--devices", "2", "--mb", "2", "-q", "-o", "x.json").exit_code == 0
    error = refused("convert", "x.json", "--split-bw", "-o", "y.csv")
    assert str(error) == "x.json has times, and the ops that --split-bw makes have none"
    assert not (folder / "y.csv").exists()
    assert invoke("convert", "x.json", "--split-bw", "-o", "y.csv", "--lossy").exit_code == 0
    assert "0I0,0W0" in (folder / "y.csv").read_text()


@pytest.mark.parametrize("words", [("--lowered",), ()])
def test_a_run_is_written_merged_and_torch_accepts_it(folder, words):
    run = ["run", "zb-1p", "--devices", "4", "--mb", "8", "-q", "--merge-bw", *words]
    assert invoke(*run, "-o", "x.csv").exit_code == 0
    assert "0B7" in (folder / "x.csv").read_text()
    assert invoke("check", "x.csv", "--for", "torch-2.13").exit_code == 0
    assert "has nothing to merge: it has no I" in str(
        refused("run", "1f1b", "--devices", "2", "--mb", "2", "--merge-bw")
    )
