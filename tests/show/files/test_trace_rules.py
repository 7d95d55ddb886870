"""Traces keep the rules of the trace event format that Perfetto's importer states."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import Any

import pytest
from click.testing import CliRunner

from ppsim.analysis.idle import CAUSES
from ppsim.cli import group
from ppsim.show.files.writers.trace import COMPUTE_THREAD

RUNS = {
    "split": ["zb-1p", "--stages", "4", "--mb", "6"],
    "pairs": ["dualpipe-v", "--devices", "3", "--mb", "6", "--tfb", "2.5"],
    "many in flight": ["1f1b", "--stages", "3", "--mb", "4", "--comm", "2.5"],
    "streams": ["vocab-1", "--devices", "4", "--mb", "8", "--comm", "3"],
    "copies": ["bpipe", "--devices", "4", "--mb", "8", "--comm", "3"],
    "fed back": ["decode", "--devices", "3", "--mb", "3", "--steps", "2", "--comm", "0.5"],
    "loop": ["interleaved", "--devices", "2", "--chunks", "3", "--mb", "4", "--comm", "0.25"],
    "messages": ["1f1b", "--stages", "3", "--mb", "4", "--p2p", "overlap", "--comm", "0.5"],
    "blocking": [
        "1f1b",
        "--stages",
        "3",
        "--mb",
        "4",
        "--p2p",
        "blocking",
        "--comm",
        "0.5",
        "--unit",
        "us",
    ],
}


@pytest.fixture(params=RUNS, scope="module")
def events(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "x.trace.json.gz"
    result = CliRunner().invoke(group, ["run", *RUNS[request.param], "-q", "-o", str(path)])
    assert result.exit_code == 0, result.output
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


# By phase: fields that an event must have, and those that it may have besides, of the trace event
# format (complete events, metadata, counters, flow events).
FIELDS = {
    "X": ({"name", "cat", "pid", "tid", "ts", "dur"}, {"args"}),
    "M": ({"name", "pid", "args"}, {"tid"}),
    "C": ({"name", "pid", "ts", "args"}, set()),
    "s": ({"name", "cat", "id", "pid", "tid", "ts"}, set()),
    "t": ({"name", "cat", "id", "pid", "tid", "ts"}, set()),
    "f": ({"name", "cat", "id", "pid", "tid", "ts"}, {"bp"}),
}
# Of metadata: the field of its argument, its type, and whether it is of a thread.
METADATA: dict[str, tuple[str, type, bool]] = {
    "process_name": ("name", str, False),
    "process_sort_index": ("sort_index", int, False),
    "thread_name": ("name", str, True),
    "thread_sort_index": ("sort_index", int, True),
}
LARGEST = 2**53  # integers that a reader in JavaScript takes exactly


def faults_of(trace: Any) -> list[str]:
    """Return where a trace breaks the documented format; empty if nowhere."""
    faults = [f"unknown field {name}" for name in {*trace} - TOP]
    if trace.get("displayTimeUnit") not in ("ms", "ns"):
        faults.append("displayTimeUnit is neither ms nor ns")
    named, flows = set[tuple[Any, ...]](), defaultdict[Any, list[str]](list)
    for place, event in enumerate(trace["traceEvents"]):
        phase = event.get("ph")
        if phase not in FIELDS:
            faults.append(f"event {place}: phase {phase!r}")
            continue
        must, may = FIELDS[phase]
        given = {*event} - {"ph"}
        faults += [f"event {place}: no {name}" for name in must - given]
        faults += [f"event {place}: field {name}" for name in given - must - may]
        for name in given & {"pid", "tid", "id"}:
            if type(event[name]) is not int or not 0 <= event[name] < LARGEST:
                faults.append(f"event {place}: {name} {event[name]!r}")
        for name in given & {"ts", "dur"}:
            value = event[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                faults.append(f"event {place}: {name} {value!r}")
        for name in given & {"name", "cat"}:
            if not isinstance(event[name], str) or not event[name]:
                faults.append(f"event {place}: {name} {event[name]!r}")
        if phase == "M":
            field, kind, of_thread = METADATA.get(event["name"], ("", str, False))
            if not field or type(event["args"].get(field)) is not kind:
                faults.append(f"event {place}: metadata {event}")
            if of_thread != ("tid" in event):
                faults.append(f"event {place}: {event['name']} and a thread")
            subject = (event["name"], event["pid"], event.get("tid"))
            faults += [f"event {place}: {subject} twice"] * (subject in named)
            named.add(subject)
        if phase == "C" and not all(
            isinstance(held, int | float) for held in event["args"].values()
        ):
            faults.append(f"event {place}: counter {event['args']}")
        if phase in "stf":
            flows[event["cat"], event["name"], event["id"]].append(phase)
        if phase == "f" and event.get("bp") != "e":
            faults.append(f"event {place}: ends at the next slice, not at the enclosing one")
    for key, phases in flows.items():
        if "".join(phases) not in ("sf", "stf"):
            faults.append(f"flow {key}: {phases}")
    return faults


TOP = {"traceEvents", "displayTimeUnit", "otherData"}
FILES = {
    "one": "run zb-v --devices 4 --mb 8 --comm 0.5",
    "several": "compare 1f1b zb-1p dualpipe --devices 4 --mb 8 --comm 0.3",
    "executed": "run 1f1b --devices 4 --mb 8 --comm 0.5 --p2p blocking",
    "steps": "run 1f1b --devices 2 --mb 4 --steps 3 --t-optimizer 1",
    "memory": "memory 1f1b --devices 4 --mb 8 --model llama3-8b",
    "causes": "explain 1f1b --devices 4 --mb 8 --comm 0.3",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FILES)
def test_a_trace_keeps_the_documented_format(name, tmp_path):
    path = tmp_path / "x.trace.json"
    ran = CliRunner().invoke(group, [*FILES[name].split(), "-q", "-o", str(path)])
    assert ran.exit_code == 0, ran.output
    text = path.read_bytes()
    text.decode("utf-8")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    trace = json.loads(text, parse_constant=refuse)
    assert faults_of(trace) == []
    assert {"X", "M", "C"} <= {event["ph"] for event in trace["traceEvents"]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ph": "Q"}, "phase 'Q'"),
        ({"dur": -1.0}, "dur -1.0"),
        ({"ts": float("nan")}, "ts nan"),
        ({"tid": "0"}, "tid '0'"),
        ({"extra": 1}, "field extra"),
        ({"name": ""}, "name ''"),
        ({"ph": "f", "id": 7, "cat": "c"}, "ends at the next slice"),
        ({"ph": "M", "args": {}}, "metadata"),
        ({"pid": 2**60}, "pid"),
    ],
)
def test_the_check_of_the_format_finds_faults(change, said):
    event = {"ph": "X", "name": "a", "cat": "b", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1.0}
    trace = {"displayTimeUnit": "ms", "traceEvents": [event]}
    assert faults_of(trace) == []
    trace["traceEvents"] = [event | change]
    assert any(said in fault for fault in faults_of(trace)), faults_of(trace)


def test_slices_of_a_thread_nest(events):
    """A slice lies inside the one that is open, or starts after its end: others are dropped by the
    importer.
    """
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert threads
    for slices in threads.values():
        for (_, end), (start, _) in zip(sorted(slices), sorted(slices)[1:], strict=False):
            assert start >= end - 1e-9


def test_idle_slices_have_a_cause_and_fill_what_compute_leaves(events):
    """Of each device, up to the end of the last op; the op that waits begins where its idle time
    ends.
    """
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and (event["cat"] == "idle" or event["tid"] == COMPUTE_THREAD):
            rows[event["pid"]].append((event["ts"], event["ts"] + event["dur"]))
    last = max(end for slices in rows.values() for _, end in slices)
    for slices in rows.values():
        starts, ends = zip(*sorted(slices), strict=True)
        assert [*starts, last] == pytest.approx([0, *ends], abs=1e-6)
    assert {event["name"] for event in events if event.get("cat") == "idle"} <= {
        f"idle: {name}" for name in CAUSES
    }


def test_threads_and_processes_have_names(events):
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert used <= {
        (e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"
    }
    assert {pid for pid, _ in used} <= {
        e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"
    }


def test_arrows_start_and_end_once_inside_a_slice(events):
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            arrows[event["id"]].append(event)
            inside = slices[event["pid"], event["tid"]]
            assert any(start <= event["ts"] <= end for start, end in inside)
    assert arrows
    for stops in arrows.values():
        assert [stop["ph"] for stop in stops] in (["s", "f"], ["s", "t", "f"])
        assert [stop["ts"] for stop in stops] == sorted(stop["ts"] for stop in stops)
        assert stops[-1]["bp"] == "e"


LATENT = ["run", "1f1b", "--stages", "3", "--mb", "4"]


def trace_of(path, *words):
    ran = CliRunner().invoke(group, [*LATENT, *words, "-q", "-o", str(path)])
    assert ran.exit_code == 0, ran.output
    return json.loads(path.read_text())["traceEvents"]


def test_latencies_have_the_lanes_of_an_execution(tmp_path):
    """Both models draw the same messages on the same lanes; a latency begins where its op ends."""
    drawn = []
    for words, category in ([], "latency"), (["--p2p", "overlap"], "p2p"):
        events = trace_of(tmp_path / f"{category}.trace.json", "--comm", "0.5", *words)
        slices = [e for e in events if e["ph"] == "X" and e["cat"] == category]
        lanes = {(e["pid"], e["tid"]) for e in slices}
        names = {
            (e["pid"], e["tid"], e["args"]["name"])
            for e in events
            if e["name"] == "thread_name" and (e["pid"], e["tid"]) in lanes
        }
        drawn.append((sorted((e["name"], e["pid"], e["tid"]) for e in slices), names))
        if category == "latency":
            ends = {(e["pid"], e["name"]): e["ts"] + e["dur"] for e in events if e["ph"] == "X"}
            for sent in slices:
                made = ends[sent["pid"], sent["name"].replace("SEND_", "")]
                assert (sent["ts"], sent["dur"]) == pytest.approx((made, 500))
    assert drawn[0] == drawn[1]
    assert len(drawn[0][0]) == 2 * 2 * 4  # boundaries, directions, microbatches
    assert {name for _, _, name in drawn[0][1]} == {f"to device {device}" for device in range(3)}


def test_messages_without_time_have_no_lane(tmp_path):
    events = trace_of(tmp_path / "x.trace.json")
    assert not [e for e in events if e.get("cat") == "latency"]
    assert {e["ph"] for e in events if e.get("name") == "message"} == {"s", "f"}


def test_a_trace_with_latencies_converts_without_loss(tmp_path):
    """Their slices follow from the ops, unlike the messages of an execution."""
    trace_of(tmp_path / "x.trace.json", "--comm", "0.5")
    words = ["convert", str(tmp_path / "x.trace.json"), "-o", str(tmp_path / "x.json")]
    ran = CliRunner().invoke(group, words)
    assert ran.exit_code == 0, ran.output


def test_counters_go_forward_and_end_at_nothing(events):
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["pid"], event["name"]].append((event["ts"], event["args"]["held"]))
    assert counters
    for points in counters.values():
        assert [time for time, _ in points] == sorted(time for time, _ in points)
        assert points[-1][1] == 0


def test_ops_of_steps_name_the_step_and_number_its_own_microbatches(tmp_path):
    """What runs once a step has no microbatch; without steps nothing names one."""
    words = ["run", "1f1b", "--devices", "2", "--mb", "3", "--t-optimizer", "1", "-q"]
    found = {}
    for steps in ("1", "2"):
        path = tmp_path / f"{steps}.trace.json"
        ran = CliRunner().invoke(group, [*words, "--steps", steps, "-o", str(path)])
        assert ran.exit_code == 0, ran.output
        events = json.loads(path.read_text())["traceEvents"]
        own = [event for event in events if event["ph"] == "X" and event["cat"] != "idle"]
        found[steps] = {event["name"]: event["args"] for event in own}
    which = ("step", "microbatch")
    assert {name: found["2"]["1F4"].get(name) for name in which} == {"step": 1, "microbatch": 1}
    assert {name: found["2"]["OPT5"].get(name) for name in which} == {"step": 1, "microbatch": None}
    assert {name: found["1"]["1F1"].get(name) for name in which} == {"step": None, "microbatch": 1}
    assert "microbatch" not in found["1"]["OPT2"]
