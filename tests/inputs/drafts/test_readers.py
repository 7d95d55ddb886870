"""Reading schedules: what each format holds comes back, and what it does not hold is refused at its
place.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import costs_for
from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError, InvalidSchedule
from ppsim.inputs.drafts.read import parse, read, read_timeline, readable, require_sound
from ppsim.schedules import generate
from ppsim.show.files.document import Document, save
from ppsim.show.files.writers import csv
from tests.cases import PLAIN, schedules

any_schedule = st.sampled_from(PLAIN).flatmap(schedules)
COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")


def same(one: Schedule | Draft, other: Schedule | Draft) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in COLUMNS)


@given(any_schedule, st.booleans())
def test_csv_holds_every_schedule_and_every_lowered_one(schedule, lowered):
    stated = lower(schedule, unshard=3, reduce_grad=True).schedule if lowered else schedule
    draft = parse(csv.text(stated), "x.csv")
    assert same(draft, stated)
    assert same(draft.schedule(), schedule)
    if schedule.n_microbatches > 1:
        assert np.array_equal(draft.placement.devices, schedule.placement.devices)
    back = Draft.from_schedule(stated)
    assert np.array_equal(draft.row, back.row)
    assert np.array_equal(draft.cell, back.cell)


@pytest.mark.parametrize("suffix", [".json", ".trace.json", ".mmd"])
@pytest.mark.parametrize(
    "name", ["1f1b", "zb-1p", "interleaved", "dualpipe", "dualpipe-v", "looped-bfs"]
)
def test_files_with_times_come_back_with_their_times(name, suffix, tmp_path):
    schedule = generate(name, devices=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule, tf=1.25, comm=0.5, unit="ms"))
    path = str(tmp_path / f"x{suffix}")
    save(Document((timeline,), (name,), {"costs": {"unit": "ms"}}), path)
    back = read_timeline(path)
    assert back is not None
    assert same(back.schedule, schedule)
    assert back.schedule.placement.name == schedule.placement.name
    assert back.unit == "ms"
    np.testing.assert_allclose(back.start, timeline.start, atol=1e-9)
    np.testing.assert_allclose(back.end, timeline.end, atol=1e-9)


def test_json_without_times_is_a_schedule_without_times(tmp_path):
    path = tmp_path / "x.json"
    ops = {
        "device": [1, 0, 0, 1],
        "kind": ["F", "F", "B", "B"],
        "stage": [1, 0, 0, 1],
        "microbatch": [0, 0, 0, 0],
    }
    path.write_text(json.dumps({"ops": ops}))
    assert read_timeline(str(path)) is None
    schedule = require_sound(read(str(path))).schedule()
    assert [schedule.label(op) for op in range(4)] == ["0F0", "0B0", "1F0", "1B0"]
    assert schedule.name == "x"


def test_a_makespan_before_the_last_op_is_refused(tmp_path):
    """One after it leaves time for what ops do not show."""
    path = tmp_path / "x.json"
    ops = {
        "device": [0, 0],
        "kind": ["F", "B"],
        "stage": [0, 0],
        "microbatch": [0, 0],
        "start": [0, 1],
        "end": [1, 3],
    }
    path.write_text(json.dumps({"ops": ops, "makespan": 2}))
    with pytest.raises(InputError, match="the makespan, 2, is before the end of the last op"):
        read_timeline(str(path))
    path.write_text(json.dumps({"ops": ops, "makespan": 4}))
    assert read_timeline(str(path)) is not None


def test_a_lowered_csv_is_read_with_its_sends_and_receives(tmp_path):
    lowered = lower(generate("1f1b", devices=4, microbatches=6), "torch", reduce_grad=True)
    path = tmp_path / "x.csv"
    path.write_text(csv.text(lowered.schedule))
    back = require_sound(read(str(path))).lowered()
    assert back is not None
    assert same(back.schedule, lowered.schedule)
    assert same(back.compute, lowered.compute)
    assert same(require_sound(read(str(path))).schedule(), lowered.compute)


def test_spaces_quotes_empty_cells_and_line_ends_of_any_kind_do_not_matter():
    draft = parse('\ufeff 0F0 ,, "0B0" ,\r\n1F0,1B0\r\n'.removeprefix("\ufeff"), "x.csv")
    assert list(draft.cells()) == [["0F0", "0B0"], ["1F0", "1B0"]]
    assert draft.idle.tolist() == [[1, 2], [1, 4]]
    assert draft.cell.tolist() == [1, 3, 1, 2]


def test_the_older_letters_are_read_as_todays():
    """Older B is I, older BW is B; a file of B and W only is older when each B has its W."""
    assert list(parse("0F0,0B0,0W0,0F1,0BW1", "x").cells()) == [["0F0", "0I0", "0W0", "0F1", "0B1"]]
    assert list(parse("0F0,0B0,0W0", "x").cells()) == [["0F0", "0I0", "0W0"]]
    assert list(parse("0F0,0B0", "x").cells()) == [["0F0", "0B0"]]
    with pytest.raises(InputError, match="mixes"):
        parse("0F0,0I0,0W0,0F1,0BW1", "x.csv")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("0F0,0F1,0FORWARD1", "line 1, cell 3", "not an action: '0FORWARD1'"),
        ("0F0\n1F0xyz", "line 2, cell 1", "not an action: '1F0xyz'"),
        ("0F0,0f1", "line 1, cell 2", "not an action: '0f1'"),
        ("F0,B0", "line 1, cell 1", "'F0' lacks its stage"),
        ("0F0,0F", "line 1, cell 2", "'0F' lacks its microbatch"),
        ("0F0,0UNSHARD0", "line 1, cell 2", "'0UNSHARD0' has a microbatch"),
        ("0F0,0S0", "line 1, cell 2", "'0S0' has a stage"),
        ("0F0,(0F1;0B0;0B1)OVERLAP_F_B", "line 1, cell 2", "a pair of 3 ops"),
        ("0F0,(0F1;0SEND_F0)OVERLAP_F_B", "line 1, cell 2", "'0SEND_F0' in a pair"),
        ("0F0,-1OVERLAP_F_B", "line 1, cell 2", "not an action: '-1OVERLAP_F_B'"),
        ("0F0,\uff11F0", "line 1, cell 2", "not an action"),
        ("0F0,9999999999F0", "line 1, cell 2", "not an action"),
        ("0F0,0B0\n\n1F0,1B0", "line 2", "empty"),
        ("0F0,999F0", "line 1, cell 2", "stage 999 in a file of 2 ops"),
    ],
)
def test_a_cell_that_is_no_action_is_named_with_a_caret_below(text, place, words):
    """Stricter than torch's own parser, which takes junk behind an action for nothing."""
    with pytest.raises(InputError) as caught:
        parse(text, "x.csv")
    message = str(caught.value)
    assert message.startswith(f"x.csv, {place}")
    assert words in message
    assert caught.value.hint
    lines = message.splitlines()
    if len(lines) == 3:
        start = lines[2].index("^") - 2
        marked = lines[1][2:][start : start + lines[2].count("^")]
        assert marked == text.splitlines()[-1].split(",")[int(place[-1]) - 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "no schedule in a known format"),
        ("{", "not JSON"),
        ("{}", "has no ops"),
        ('{"runs": [{}, {}]}', "contains 2 runs"),
        ('{"ops": {"device": [0], "kind": ["F"], "stage": [0]}}', "ops.microbatch"),
        ('{"ops": {"device": [0], "kind": ["X"], "stage": [0], "microbatch": [0]}}', "ops.kind"),
        ('{"ops": {"device": [0], "kind": ["F"], "stage": [0.5], "microbatch": [0]}}', "ops.stage"),
        (
            '{"ops": {"device": [true], "kind": ["F"], "stage": [0], "microbatch": [0]}}',
            "ops.device",
        ),
        (
            '{"ops": {"device": [-1], "kind": ["F"], "stage": [0], "microbatch": [0]}}',
            "ops.device has -1",
        ),
        (
            '{"ops": {"device": [0, 0], "kind": ["F"], "stage": [0], "microbatch": [0]}}',
            "differ in length",
        ),
        (
            '{"ops": {"device": [0], "kind": ["F"], "stage": [0], "microbatch": [0], '
            '"start": [0]}}',
            "one of start",
        ),
        (
            '{"ops": {"device": [0], "kind": ["F"], "stage": [0], "microbatch": [0], "pair": [0]}}',
            "a pair",
        ),
        (
            '{"ops": {"device": [0], "kind": ["F"], "stage": [0], "microbatch": [0], "pair": [7]}}',
            "both ways",
        ),
        ('{"ops": {"device": [], "kind": [], "stage": [], "microbatch": []}}', "has no ops"),
        (
            '{"traceEvents": [{"ph": "X", "name": "0F0", "pid": 0, "ts": 0, "dur": 1}]}',
            "has no name 'device N'",
        ),
        ('{"traceEvents": []}', "no slices"),
        ("gantt\n  F0 :a, 0, 1", "line 2: a bar outside any section"),
        (
            "gantt\nsection 0\n  F0 :a, 2024-01-01, 3d",
            "line 3: start and end are not plain numbers",
        ),
        ("gantt\nsection 0\n  F0 :a, 3, 2", "line 3: it ends before it starts"),
        ("gantt\nsection 0\n  Optimizer :a, 0, 1", "not the name of an op"),
        ("gantt\nsection 0\n  F0 0 1", "not a bar"),
        ("hello", "no schedule in a known format"),
        ("", "is empty"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_reason(text, words):
    with pytest.raises(InputError, match="text") as caught:
        parse(text, "text")
    assert words in str(caught.value)


def test_files_that_cannot_be_read_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read(str(tmp_path / "none.csv"))
    with pytest.raises(InputError, match="Is a directory"):
        read(str(tmp_path))
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        read(str(tmp_path / "x.csv"))


def test_an_invalid_file_is_no_schedule_and_the_first_fault_says_why(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("0B0,0F0,0F0\n")
    with pytest.raises(
        InvalidSchedule, match=r"x\.csv, line 1, cell 3: 0F0 runs a second time.*1 more fault"
    ) as caught:
        require_sound(read(str(path))).schedule()
    assert caught.value.exit_code == 1


def test_every_format_that_is_read_is_also_written():
    from ppsim.show.files.document import formats

    assert set(readable()) <= set(formats())


@given(st.text(st.sampled_from('01289FBIWSENDRCV_UHAG,;() \n"BWOVERLAP'), max_size=60))
def test_any_text_is_either_read_or_refused_in_words(text):
    """No text makes the parser fail in any other way."""
    try:
        kinds = set(parse(text, "x.csv").kind)
    except InputError as error:
        kinds = set() if error.args[0] else {None}
    assert kinds <= set(Kind)
