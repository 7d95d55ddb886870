"""Profiles from Kineto traces: two real runs of torch's runtime over gloo, and made-up traces with
known times.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base.source import read_text
from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.inputs.profile.costs import costs_from
from ppsim.inputs.profile.profile import read
from ppsim.real.traces.read import read_run, shows_run
from ppsim.real.traces.readers import kineto
from ppsim.real.traces.torch_trace import parse_trace, profile_of
from ppsim.schedules import generate
from tests.commands import invoke

DATA = Path(__file__).parents[2] / "data" / "traces"
DIMS = {"Input Dims": [[4, 8]], "Input type": ["float"]}


def profile_from(paths: list[str], command: str):
    """The profile of all traces, whole steps or not."""
    return profile_of(
        [parse_trace(read_text(path, ""), path, rank) for rank, path in enumerate(paths)], command
    )


def span(
    name: str, start: float, ms: float, cat: str = "user_annotation", args: object = None
) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": start * 1e3,
        "dur": ms * 1e3,
        "pid": 1,
        "tid": 1,
        "args": args or {},
    }


def trace(path: Path, rank: int, *events: dict[str, object], **top: object) -> str:
    path.write_text(
        json.dumps(
            {"distributedInfo": {"rank": rank}, "host_name": "h", "traceEvents": events, **top}
        )
    )
    return str(path)


def test_a_real_zero_bubble_run_gives_every_stage_its_times_and_its_messages():
    profile = profile_from([str(DATA / f"izb-rank{r}.json.gz") for r in (0, 1)], "ppsim")
    assert {(op.stage, op.kind) for op in profile.op} == {(s, k) for s in range(4) for k in "FIW"}
    assert {m.bytes for m in profile.message} == {2 * 64 * 256 * 4}
    first = next(op for op in profile.op if (op.stage, op.kind) == (0, "I"))
    assert first.median_ms < 1, "torch's runtime does nothing for I on stage 0"
    costs = costs_from(profile, generate("zb-1p", stages=4, microbatches=4))
    by_stage = {(op.stage, op.kind): op.median_ms for op in profile.op}
    np.testing.assert_allclose(costs.time[Kind.W], [by_stage[s, "W"] for s in range(4)])


def test_a_real_gpipe_run_gives_each_rank_its_stage():
    profile = profile_from([str(DATA / f"gpipe-rank{r}.json.gz") for r in (0, 1)], "ppsim")
    assert {(op.stage, op.kind) for op in profile.op} == {(s, k) for s in (0, 1) for k in "FB"}
    assert profile.message == ()


def test_waiting_for_a_message_is_not_computing(tmp_path):
    sender = trace(tmp_path / "0", 0, span("PP:0F0", 0, 10), span("PP:0SEND_F0", 10, 1))
    receiver = trace(
        tmp_path / "1",
        1,
        span("PP:1RECV_F0", 0, 1),
        span("gloo:recv", 0.5, 12.5, args=DIMS),
        span("PP:1F0", 1, 17),
    )
    profile = profile_from([sender, receiver], "ppsim")
    assert [(op.stage, op.median_ms) for op in profile.op] == [(0, 10), (1, pytest.approx(5))]


def test_messages_are_timed_on_the_host_s_clock_from_the_second_step_on(tmp_path):
    """The receiver's file counts from an epoch 1000 ms later."""
    sender = trace(
        tmp_path / "0",
        0,
        *(
            e
            for t in (0, 100, 200)
            for e in (span("PP:0F0", t + 1000, 10), span("PP:0SEND_F0", t + 1010, 1))
        ),
    )
    arrivals = {0: 90.0, 100: 3.0, 200: 3.0}  # the first step builds the connection
    receiver = trace(
        tmp_path / "1",
        1,
        *(
            e
            for t, ms in arrivals.items()
            for e in (
                span("PP:1RECV_F0", t + 5, 1),
                span("gloo:recv", t + 5.5, ms + 4.5, args=DIMS),
                span("PP:1F0", t + 6, 10 + ms),
            )
        ),
        baseTimeNanoseconds=1_000_000_000,
    )
    (message,) = profile_from([sender, receiver], "ppsim").message
    assert (message.pattern, message.bytes, message.n) == ("early", 128, 2)
    assert message.median_ms == pytest.approx(3)


def test_a_gpu_s_own_spans_come_before_the_host_s(tmp_path):
    events = [span("PP:0F0", 0, 1), span("PP:0F0", 5, 20, cat="gpu_user_annotation")]
    path = trace(tmp_path / "0", 0, *events, deviceProperties=[{"name": "some GPU"}])
    profile = profile_from([path], "ppsim")
    assert profile.provenance.device == "some GPU"
    assert [op.median_ms for op in profile.op] == [20]


def launched(number: int, launch: float, start: float, ms: float) -> list[dict[str, object]]:
    """The launch of a kernel by the host, and the kernel on the GPU."""
    args = {"correlation": number}
    call = span("cudaLaunchKernel", launch, 0.01, cat="cuda_runtime", args=args)
    return [call, span("gemm", start, ms, cat="kernel", args=args)]


def test_a_backward_on_a_gpu_lasts_as_its_kernels_do(tmp_path):
    """Autograd launches them from a thread of its own, so that the GPU's spans show one kernel of
    it, or none.
    """
    events = [
        span("PP:0F0", 0, 1),
        *launched(1, 0.2, 5, 3),
        *launched(2, 0.4, 8, 2),
        span("PP:0F0", 5, 5, cat="gpu_user_annotation"),
        span("PP:0B0", 1, 1),
        *launched(3, 1.1, 10, 4),
        *launched(4, 1.5, 14, 8),
        *launched(6, 2.5, 90, 8),  # of nothing that the pipeline names
        span("PP:0B0", 10, 0.5, cat="gpu_user_annotation"),
        span("PP:0W0", 3, 1),  # launches nothing
    ]
    profile = profile_from([trace(tmp_path / "0", 0, *events)], "ppsim")
    assert {op.kind: op.median_ms for op in profile.op} == {"F": 5, "B": 12, "W": 0}


def test_the_first_step_is_left_out_and_a_pair_is_a_pair(tmp_path):
    pairs = [span("PP:(0F3;1B0)OVERLAP_F_B", t, ms) for t, ms in ((0, 50), (100, 20), (200, 22))]
    (op,) = profile_from([trace(tmp_path / "0", 0, *pairs)], "ppsim").op
    assert (op.kind, op.stage, op.median_ms, op.n) == ("FB", 0, 21, 2)


def test_each_step_begins_at_zero(tmp_path):
    """Ops end as long after their step's first as they do in the trace."""
    ops = [
        span(f"PP:0{kind}{m}", 100 * step + 10 * at, 5)
        for step in range(3)
        for at, (kind, m) in enumerate((("F", 0), ("F", 1), ("B", 0), ("B", 1)))
    ]
    run = read_run([trace(tmp_path / "0", 0, *ops)])
    assert run.start.min(axis=1).tolist() == [0] * len(run.start)
    np.testing.assert_allclose(run.end.max(axis=1), 35)
    np.testing.assert_allclose(run.end - run.start, 5)


ONE = b'{"traceEvents": [{"ph": "X", "name": "PP:0F0", "dur": 1, "ts": %b}]'


def test_a_pair_does_not_count_its_wait(tmp_path):
    """Its forward's input comes at 6, its backward's at 8: of the span 1 to 12, 4 ms are work."""
    later = span("PP:(1F1;1B0)OVERLAP_F_B", 1, 11)
    events = [
        span("PP:1RECV_F1", 0, 0.1),
        span("gloo:recv", 0.05, 5.95, args=DIMS),
        span("PP:1RECV_B0", 0.5, 0.1),
        span("gloo:recv", 0.55, 7.45, args=DIMS),
    ]
    first = trace(tmp_path / "0", 0, span("PP:0F0", 0, 1))
    for wanted, shown in ((4, events), (6, events[:2])):
        path = trace(tmp_path / "1", 1, *shown, later)
        (op,) = (op for op in profile_from([first, path], "ppsim").op if op.kind == "FB")
        assert op.median_ms == pytest.approx(wanted)


def message_events(
    steps: int, *, without: int = -1
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Each step sends at 10 what arrives 3 + its number later; the receive of one step may be
    missing.
    """
    sends = [
        e
        for t in range(steps)
        for e in (span("PP:0F0", 100 * t, 10), span("PP:0SEND_F0", 100 * t + 10, 1))
    ]
    receives = [
        e
        for t in range(steps)
        for e in (
            span("PP:1RECV_F0", 100 * t + 5, 1),
            span("gloo:recv", 100 * t + 5.5, 7.5 + t, args=DIMS),
            span("PP:1F0", 100 * t + 6, 20),
        )
        if t != without or e["name"] == "PP:1F0"
    ]
    return sends, receives


def test_one_step_has_messages_and_says_so(tmp_path):
    """It had none, so that messages cost nothing."""
    sends, receives = message_events(1)
    profile = profile_from(
        [trace(tmp_path / "0", 0, *sends), trace(tmp_path / "1", 1, *receives)], "ppsim"
    )
    (message,) = profile.message
    assert message.n == 1
    assert message.median_ms == pytest.approx(3)
    assert "one step only" in profile.provenance.note


def test_a_receive_that_a_trace_lacks_leaves_out_its_step_only(tmp_path):
    """Later sends are not matched with earlier arrivals."""
    sends, receives = message_events(5, without=2)
    profile = profile_from(
        [trace(tmp_path / "0", 0, *sends), trace(tmp_path / "1", 1, *receives)], "ppsim"
    )
    (message,) = profile.message
    assert message.n == 3
    assert [message.p10_ms, message.p90_ms] == pytest.approx([4.4, 6.8])
    assert "one step only" not in profile.provenance.note


def test_messages_between_gpus_take_their_size_from_the_host_s_spans(tmp_path):
    """A GPU's own spans show none; without any size the profile says that messages cost nothing."""
    for sizes in (DIMS, None):
        paths = []
        for rank, events in enumerate(message_events(2)):
            gpu = [{**e, "cat": "gpu_user_annotation", "args": {}} for e in events]
            host = [{**e, "args": sizes or {}} for e in events if e["name"] == "gloo:recv"]
            paths.append(trace(tmp_path / str(rank), rank, *gpu, *host))
        profile = profile_from(paths, "ppsim")
        assert [m.bytes for m in profile.message] == ([128] if sizes else [])
        assert ("messages cost nothing" in profile.provenance.note) == (sizes is None)


@pytest.mark.parametrize("told", ["recv", "coalesced", "", None])
def test_receives_that_show_as_kernels_of_nccl_alone_are_found(told, tmp_path):
    """By what the kernel says, else by the span of the receive that it lies in; a send's kernel is
    no receive.
    """
    paths = []
    for rank, events in enumerate(message_events(3)):
        gpu = [{**e, "cat": "gpu_user_annotation"} for e in events if e["name"] != "gloo:recv"]
        args = {"In msg nelems": "32", "dtype": "Float", "Src Rank": 0, "Dst Rank": 1}
        args |= {} if told is None else {"Collective name": told}
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        kernels = [
            {**e, "name": name, "cat": "kernel", "args": args}
            for e in events
            if e["name"] == "gloo:recv"
        ]
        sent = [
            {
                **e,
                "name": name,
                "cat": "kernel",
                "args": args | ({"Collective name": "send"} if told == "recv" else {}),
            }
            for e in events
            if "SEND" in str(e["name"])
        ]
        paths.append(trace(tmp_path / f"{rank}.json", rank, *gpu, *kernels, *sent))
    (message,) = profile_from(paths, "ppsim").message
    (shown,) = profile_from(
        [trace(tmp_path / str(r), r, *e) for r, e in enumerate(message_events(3))], "x"
    ).message
    assert (message.bytes, message.n, message.median_ms) == (128, shown.n, shown.median_ms)
    assert any("NCCL's receiving kernels" in note for note in read_run(paths).notes)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not whole or not JSON"),
        (b'{"traceEvents": [', "not whole or not JSON"),
        (b"[]", "expected an object, got a list"),
        (b"{}", "traceEvents is missing"),
        (b'{"traceEvents": []}', "no span of a pipeline"),
        (b'{"traceEvents": [{"ph": "X", "name": "PP:0F0"}]}', "PP:0F0 has no ts and dur"),
        (b'{"traceEvents": [7]}', r"traceEvents\[0\]: expected an object, got a whole number"),
        (b"\xff\xfe", "not a text file"),
        ((ONE % b"0" + b"}").replace(b'"dur": 1', b'"dur": -1'), "has no ts and dur"),
        (ONE % b"NaN" + b"}", "not JSON"),
        (ONE % (b"9" * 400) + b"}", "out of range"),
        (
            ONE % b"1" + b', "baseTimeNanoseconds": "x"}',
            "baseTimeNanoseconds: expected a number, got text",
        ),
        (ONE % b"1" + b', "baseTimeNanoseconds": 1e30}', "not a time since 1970"),
        (ONE % b"1" + b', "deviceProperties": 1}', "deviceProperties: expected a list"),
        (ONE % b"1" + b', "host_name": "\\ud800"}', "not JSON"),
        (ONE % b"1" + b', "traceEvents": []}', "has 'traceEvents' twice"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested too deeply"),
        (
            (ONE % b"0" + b"}").replace(b"0F0", b"99999999F0"),
            "(?m)no op of stage 0, 1, 2, 3, 4, 5, 6, 7$",
        ),
        ((ONE % b"0" + b"}").replace(b"0F0", b"0SEND_F0"), "messages, but no op"),
    ],
)
def test_a_file_that_is_no_trace_says_why(content, says, tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        profile_from([str(path)], "ppsim")


def test_a_rank_left_out_is_noticed():
    with pytest.raises(InputError, match="no op of stage 1"):
        profile_from([str(DATA / "izb-rank0.json.gz")], "ppsim")


def test_a_cut_gz_and_a_missing_file_are_input_errors(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}')[:20])
    for name, why in ((str(path), "incomplete"), (str(tmp_path / "absent.json"), "cannot read")):
        with pytest.raises(InputError, match=why):
            profile_from([name], "ppsim")


def test_the_command_line_takes_many_traces_and_no_measuring_option(tmp_path):
    files = [str(DATA / f"izb-rank{r}.json.gz") for r in (0, 1)]
    target = str(tmp_path / "p.toml")
    result = invoke("calibrate", "--from-trace", *files, "-o", target)
    assert result.exit_code == 0, result.output
    assert len(read(target).op) == 12
    result = invoke("calibrate", "--from-trace", *files, "-o", target, "-F", "--hidden", "8")
    assert "--hidden" in str(result.exception)
    assert "stray.json" in str(invoke("calibrate", "stray.json", "-o", target).exception)


def test_a_profile_without_a_pipelines_marks_says_which_have_them_and_the_way_out(tmp_path):
    """torch.profiler of Schedule1F1B, in a folder or alone: not that it is no trace, but what it
    lacks.
    """
    path = tmp_path / "rank0.json"
    spans = [{"ph": "X", "cat": "user_annotation", "name": "gloo:send", "ts": 1.0, "dur": 2.0}]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": spans}))
    for source in (tmp_path, path):
        with pytest.raises(
            InputError, match=r"without ops of a pipeline: .*not those of Schedule1F1B"
        ) as raised:
            read_run([str(source)])
        assert shows_run(str(path))
        assert "ppsim.record" in raised.value.hint


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.lists(st.integers(-3, 12), min_size=1, max_size=8),
)
def test_the_nearest_step_is_the_first_of_those_that_begin_as_near(begins, times):
    begins, times = np.array(begins) / 2, np.array(times) / 2
    assert (
        kineto._nearest(begins, times).tolist()
        == np.abs(begins[:, None] - times).argmin(axis=0).tolist()
    )
