"""Files made to break a reader: each is read or refused, in words that fit a terminal, in time
linear in its size.
"""

import json

import pytest

from ppsim.errors import InputError
from ppsim.inputs.check.checks import MOST_FAULTS, check
from ppsim.inputs.drafts.read import parse, read

NAMED = '{"ph":"M","name":"process_name","pid":0,"args":{"name":"device 0"}}'
SLICE = '{"ph":"X","name":"0F0","pid":0,"ts":%s,"dur":1}'
GANTT = "gantt\n title x, time in ms%s\n section device 0\n 0F0 :a, 0, 1\n 0B0 :b, 1, %s\n"


def ops(
    kind: str, more: str = "", *, stage: str = "[0,0]", before: str = "", after: str = ""
) -> str:
    """A schedule in JSON from the text of its parts."""
    columns = f'"kind":{kind},"device":[0,0],"stage":{stage},"microbatch":[0,0]{more}'
    return "{" + before + '"ops":{' + columns + "}" + after + "}"


def events(*each: str) -> str:
    return '{"traceEvents":[' + ",".join(each) + "]}"


FB = '["F","B"]'


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.json", '{"a":' * 50_000 + "1" + "}" * 50_000, "nested too deeply"),
        ("x.json", "[" * 100_000, "nested too deeply|not JSON|expected an object"),
        ("x.json", ops('[[],"B"]'), r"ops\.kind\[0\]: expected text, got a list"),
        ("x.json", ops('["F","Q"]'), "ops.kind must be a list of F, B.* and has 'Q'"),
        ("x.json", ops(FB, f',"start":[{"9" * 400},1],"end":[1,2]'), "out of range"),
        ("x.json", ops(FB, ',"start":[1e101,1],"end":[1,2]'), "ops.start has a value beyond"),
        ("x.json", ops(FB, ',"start":[NaN,1],"end":[1,2]'), "not JSON"),
        (
            "x.json",
            ops(FB, ',"start":[0,1],"end":[1,2]', after=',"makespan":1'),
            "before the end of the last op",
        ),
        ("x.json", ops(FB, stage=f"[{'9' * 30},0]"), "ops.stage has a number that is too large"),
        ("x.json", ops(FB, stage="[2147483648,0]"), "ops.stage has 2147483648"),
        ("x.json", ops(FB, after=',"ops":{}'), "ops.device is missing"),
        ("x.json", ops(FB, after=',"unit":"a","unit":"b"'), "an object has 'unit' twice"),
        ("x.json", ops(FB, ',"kind":["F","F"]'), "an object has 'kind' twice"),
        ("x.json", ops(FB, ',"k\\u0069nd":["F","F"]'), "an object has 'kind' twice"),
        ("x.json", ops(FB, before='"schedule":"\\ud800",'), "not JSON"),
        (
            "x.trace.json",
            events('{"ph":"M","name":"process_name","pid":[]}'),
            r"\[0\]\.pid: expected",
        ),
        (
            "x.trace.json",
            events('{"ph":"M","name":"process_name","pid":{}}'),
            r"\[0\]\.pid: expected",
        ),
        ("x.trace.json", events(NAMED, SLICE % ("9" * 400)), "out of range"),
        ("x.trace.json", events(NAMED, SLICE % "1e200"), "an impossible ts or dur"),
        ("x.trace.json", events(NAMED, SLICE % '"1"'), "0F0 has no ts"),
        ("x.trace.json", events(SLICE % "1"), "which has no name 'device N'"),
        ("x.mmd", GANTT % ("", "9" * 400), "line 5: start and end are not plain numbers"),
        (
            "x.mmd",
            GANTT % (" / " + "9" * 18, "1" * 40 + "." + "1" * 41),
            "line 5: start and end are not plain numbers",
        ),
        ("x.mmd", "gantt\nsection device 0\na" + " " * 100_000 + "b", "line 3: not a bar"),
        ("x.mmd", "gantt\n" + "x" * 1_000_000, "line 2: not a bar"),
        ("x.csv", "x" * 1_000_000, "line 1, cell 1: not an action: 'xxx"),
        ("x.csv", "0F0," + "," * 11_000_000, "most of them empty"),
        ("x.csv", ",".join(["0F0"] * 20_000) + ",x", "line 1, cell 20001: not an action: 'x'"),
        ("x.csv", "0F0,0B0\x1b]0;x\x07", "not an action: '0B0\ufffd]0;x\ufffd'"),
        ("standard input", "\n" * 100_000, "is empty"),
        ("standard input", "1" * 1_000_000, "no schedule in a known format"),
    ],
)
def test_it_is_refused_in_words_that_fit_a_terminal(name, text, says):
    with pytest.raises(InputError, match=says) as caught:
        parse(text, name)
    message = str(caught.value)
    assert max(map(len, message.splitlines())) < 400
    assert message.replace("\n", "").isprintable()


@pytest.mark.parametrize("name", ["a\x1b]0;x\x07", "a\nb", "a\u202eb", "a" * 10_000])
def test_a_name_or_unit_from_a_file_is_one_line_without_control_characters(name):
    draft = parse(
        json.dumps({"schedule": name, "unit": name, "ops": {"kind": ["F", "B"]} | columns()}),
        "x.json",
    )
    for text in (draft.name, draft.unit):
        assert text.isprintable()
        assert len(text) <= 200


def columns() -> dict[str, list[int]]:
    return {"device": [0, 0], "stage": [0, 0], "microbatch": [0, 0]}


def test_a_scale_of_nothing_belongs_to_the_unit():
    draft = parse(GANTT % (" / 0", "2"), "x.mmd")
    assert draft.start is not None
    assert (draft.unit, draft.start.tolist()) == ("ms / 0", [0, 1])


def test_many_faults_of_one_long_line_are_shown_without_reading_it_again(tmp_path):
    """The place of a cell is looked up, not counted from the start of the line each time."""
    draft = parse(",".join(["0F0"] * 10_002), "x.csv")
    faults = check(draft).faults
    assert len(faults) == MOST_FAULTS
    excerpts = [draft.excerpt(fault.row, fault.cell or 1) for fault in faults if fault.row]
    assert [carets.count("^") for _, carets in excerpts] == [3] * MOST_FAULTS


def test_many_devices_need_no_table_of_stages_by_devices():
    """20,000 devices would be 3.4 GB."""
    draft = parse("".join(f"{d}F0,{d}B0\n" for d in range(20_000)), "x.csv")
    assert draft.placement.devices.tolist() == [list(range(20_000))]


def test_gzipped_files_are_read_by_the_suffix_within(tmp_path):
    import gzip

    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"0F0,0B0\n"))
    draft = read(str(tmp_path / "x.csv.gz"))
    assert (draft.name, list(draft.cells())) == ("x", [["0F0", "0B0"]])
