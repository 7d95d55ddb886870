"""What goes on beside the ops: threads of a trace, the lane of a figure and of a page, JSON's
transfers.
"""

import json
import re
from collections import defaultdict
from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, PathPatch

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import MODES, Collectives, Host, Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.inputs.drafts.read import read_timeline
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from ppsim.show.drawing.gantt.figure import STYLES, plot
from ppsim.show.drawing.lanes import (
    ACTIVATION,
    COLLECTIVE,
    GRADIENT,
    assign_tracks,
    card_use,
    find_producers,
    lane_of,
)
from ppsim.show.drawing.look import Look
from ppsim.show.drawing.palette import COLLECTIVE as COLLECTIVE_FILL
from ppsim.show.drawing.palette import COMM_LANE, DEFAULT
from ppsim.show.files.document import Document, save
from ppsim.show.files.writers import html, trace
from ppsim.show.files.writers import json as json_format
from tests.browser import opened, shown
from tests.commands import invoke
from tests.pages import texts

NAMES = ("1f1b", "zb-1p", "interleaved", "dualpipe")


def executed(
    name="1f1b",
    devices=4,
    microbatches=8,
    mode="overlap",
    alpha=0.4,
    order="early",
    fsdp=False,
    **network,
):
    schedule = generate(name, devices=devices, microbatches=microbatches)
    lowered = lower(schedule, order, batch=mode == "batched", unshard=3 * fsdp, reduce_grad=fsdp)
    collectives = Collectives(unshard=0.5, reduce_grad=1.5)
    return execute(
        lowered, costs_for(schedule), Network(mode, alpha=alpha, collectives=collectives, **network)
    )


def document(*executions, **more):
    timelines = tuple(execution.compute for execution in executions)
    return Document(
        timelines, tuple(t.schedule.name for t in timelines), executions=executions, **more
    )


def written(module, made, suffix):
    out = BytesIO()
    module.write(made, out, suffix)
    return out.getvalue()


def events(made):
    return json.loads(written(trace, made, ".trace.json"))["traceEvents"]


def slices(made, category="p2p"):
    return [event for event in events(made) if event["ph"] == "X" and event["cat"] == category]


spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 6)), max_size=40)


@given(spans)
def test_tracks_keep_what_overlaps_apart_and_are_as_few_as_can_be(entries):
    keys, left, length = np.array(entries, np.int64).reshape(-1, 3).T
    right = (left + length).astype(np.float64)
    track = assign_tracks(keys, left.astype(np.float64), right)
    for key in set(keys):
        own = np.flatnonzero(keys == key)
        for a in own:
            for b in own[own > a]:
                apart = right[a] <= left[b] or right[b] <= left[a]
                assert apart or track[a] != track[b]
        most = max((np.sum((left[own] <= t) & (t < right[own])) for t in left[own]), default=0)
        assert track[own].max() + 1 <= max(most, 1) + (length[own] == 0).any()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_a_message_carries_the_result_of_its_producer(name, mode):
    execution = executed(name, mode=mode)
    messages, lowered, compute = (
        execution.messages,
        execution.lowered.schedule,
        execution.compute.schedule,
    )
    op = find_producers(execution)
    np.testing.assert_array_equal(compute.stage[op], lowered.stage[messages.send])
    np.testing.assert_array_equal(compute.microbatch[op], lowered.microbatch[messages.send])
    np.testing.assert_array_equal(
        compute.kind[op] == Kind.F, lowered.kind[messages.send] == Kind.SEND_F
    )
    assert (execution.compute.end[op] <= messages.leave + 1e-9).all()


@pytest.mark.parametrize("order", ["early", "torch", "prefetch:1"])
@pytest.mark.parametrize("mode", ["latency", "overlap"])
@pytest.mark.parametrize("name", NAMES)
def test_what_bound_an_op_is_over_when_it_starts(name, mode, order):
    """A receive that was only posted ahead of an op, and comes later than the op starts, did not
    bind it.
    """
    timeline = executed(name, mode=mode, order=order, host=Host(gap=0.1)).compute
    some = timeline.bound >= 0
    assert (timeline.end[timeline.bound[some]] <= timeline.start[some] + 1e-9).all()


def test_a_lane_has_every_message_by_its_direction_and_every_collective():
    execution = executed("zb-1p", fsdp=True)
    lane, kind = lane_of(execution), execution.lowered.schedule.kind
    for band, kinds in ((ACTIVATION, [Kind.SEND_F]), (GRADIENT, [Kind.SEND_B])):
        assert (lane.band == band).sum() == np.isin(kind, kinds).sum() == 24
    gathered = lane.band == COLLECTIVE
    assert sorted(np.round(lane.right - lane.left, 9)[gathered]) == [0.5] * 4 + [1.5] * 4
    np.testing.assert_allclose((lane.right - lane.left)[~gathered], 0.4)


def test_what_takes_no_time_is_not_in_a_lane():
    assert len(lane_of(executed(alpha=0.0))) == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_slices_of_a_thread_never_overlap(name, mode):
    """Even where a message travels for longer than it takes to make the next one."""
    threads = defaultdict(list)
    for event in events(document(executed(name, mode=mode, alpha=3.0, fsdp=True))):
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for held in threads.values():
        held.sort()
        assert all(before[1] <= after[0] + 1e-6 for before, after in pairwise(held))


def test_threads_are_named_after_where_messages_go_and_more_than_one_where_they_overlap():
    made = events(document(executed(mode="latency", alpha=3.0, fsdp=True)))
    names = defaultdict(set)
    for event in made:
        if event["name"] == "thread_name":
            names[event["pid"]].add(event["args"]["name"])
    assert {"compute", "collectives", "to device 0", "to device 2"} <= names[1]
    assert {name for name in names[0] if name.startswith("to")} == {
        f"to device 1{n}" for n in ("", " (2)", " (3)")
    }
    processes = {event["pid"] for event in made}
    assert not processes & {event["tid"] for event in made if event.get("tid")}


def test_a_message_is_a_slice_with_torchs_name_from_leave_to_arrive():
    execution = executed("interleaved", message=2**20, beta=2**22)
    messages, found = execution.messages, slices(document(execution))
    assert [s["name"] for s in found] == [
        execution.lowered.schedule.label(int(send)) for send in messages.send
    ]
    assert [s["pid"] for s in found] == messages.source.tolist()
    np.testing.assert_allclose([s["ts"] for s in found], 1000 * messages.leave)
    np.testing.assert_allclose([s["ts"] + s["dur"] for s in found], 1000 * messages.arrive)
    for key, column in (("send_posted", messages.posted), ("receive_posted", messages.awaited)):
        assert [s["args"][key] for s in found] == column.tolist()
    assert {s["args"]["bytes"] for s in found} == {2**20}
    assert not [s for s in slices(document(executed())) if "bytes" in s["args"]]


def test_each_boundary_has_messages_of_its_own_size():
    execution = executed(message=np.array([1.0, 2.0, 3.0]))
    sides = zip(
        execution.messages.source, execution.messages.target, execution.messages.size, strict=True
    )
    assert {(min(s, t), size) for s, t, size in sides} == {(0, 1.0), (1, 2.0), (2, 3.0)}


def test_collectives_have_a_thread():
    found = slices(document(executed("interleaved", fsdp=True)), "reduce_gradients")
    assert sorted(s["name"] for s in found) == sorted(f"{stage}REDUCE_GRAD" for stage in range(8))
    np.testing.assert_allclose([s["dur"] for s in found], 1500)


@pytest.mark.parametrize("name", NAMES)
def test_arrows_go_from_op_to_message_to_op(name):
    execution = executed(name)
    schedule, made = execution.compute.schedule, events(document(execution))
    inside = defaultdict(list)
    for event in made:
        if event["ph"] == "X":
            inside[event["pid"], event["tid"]].append(event)
    arrows = defaultdict(list)
    for event in made:
        if event["ph"] in "stf":
            arrows[event["id"]].append(event)
    assert len(arrows) == schedule.crosses.sum() == len(execution.messages)
    for arrow in arrows.values():
        assert [end["ph"] for end in arrow] == ["s", "t", "f"]
        assert arrow[0]["ts"] < arrow[1]["ts"] < arrow[2]["ts"]
        names = []
        for end in arrow:
            at = [
                s
                for s in inside[end["pid"], end["tid"]]
                if s["ts"] - 1e-6 <= end["ts"] < s["ts"] + s["dur"] - 1e-6
            ]
            assert len(at) == 1
            names.append(at[0]["name"])
        message = re.fullmatch(r"(\d+)SEND_([FB])(\d+)", names[1])
        assert message
        stage, way, microbatch = message.groups()
        made_by = {"F": "F", "B": "[BI]"}[way]
        taken_by = int(stage) + (1 if way == "F" else -1)
        assert re.search(rf"\b{stage}{made_by}{microbatch}\b", names[0])
        assert re.search(rf"\b{taken_by}{made_by}{microbatch}\b", names[2])


def test_an_execution_adds_events_to_a_trace_and_changes_none():
    execution = executed("dualpipe")
    plain = events(Document((execution.compute,), ("DualPipe",)))
    whole = events(document(execution))
    assert [event for event in whole if event in plain] == plain
    assert len(whole) > len(plain)
    assert 0 not in {e["tid"] for e in whole if e not in plain}


def test_a_trace_with_messages_is_read_back_as_its_ops(tmp_path):
    execution = executed("zb-1p", fsdp=True)
    save(document(execution, inputs={"costs": {"unit": "t_F"}}), str(tmp_path / "x.trace.json"))
    back = read_timeline(str(tmp_path / "x.trace.json"))
    assert back is not None
    np.testing.assert_array_equal(back.schedule.kind, execution.compute.schedule.kind)
    np.testing.assert_allclose(back.start, execution.compute.start, atol=1e-9)


def patches(figure, colour):
    return [
        patch
        for axes in figure.axes
        for patch in axes.patches
        if isinstance(patch, PathPatch) and to_hex(patch.get_facecolor()).upper() == colour
    ]


def boxes(patch):
    """Left, top, right and bottom of every rectangle."""
    corners = patch.get_path().vertices.reshape(-1, 5, 2)
    return np.concatenate([corners[:, 0], corners[:, 2]], axis=1)


@pytest.mark.parametrize("style", STYLES)
def test_a_figure_shows_each_message_below_the_device_it_leaves(style):
    execution = executed()
    messages = execution.messages
    figure = plot(execution.compute, executions=(execution,), style=style)
    drawn = np.concatenate([boxes(patch) for patch in patches(figure, COMM_LANE)])
    assert sorted(zip(drawn[:, 1].astype(int), drawn[:, 0], drawn[:, 2], strict=True)) == sorted(
        zip(messages.source, messages.leave, messages.arrive, strict=True)
    )
    (cells,) = (boxes(patch) for patch in patches(figure, DEFAULT.fill(Kind.F)[0]))
    assert drawn[:, 1].min() % 1 >= cells[:, 3].max() % 1 - 1e-9
    assert (np.floor(drawn[:, 3]) == np.floor(drawn[:, 1])).all()


@pytest.mark.slow
def test_activations_stand_above_gradients_above_collectives():
    execution = executed("interleaved", fsdp=True)
    figure = plot(execution.compute, executions=(execution,))
    activations, gradients = (boxes(patch)[:, 1] % 1 for patch in patches(figure, COMM_LANE))
    (collectives,) = (boxes(patch)[:, 1] % 1 for patch in patches(figure, COLLECTIVE_FILL))
    assert activations.max() < gradients.min() < gradients.max() < collectives.min()
    kind = execution.lowered.schedule.kind
    assert [len(activations), len(gradients)] == [
        (kind == k).sum() for k in (Kind.SEND_F, Kind.SEND_B)
    ]


@pytest.mark.slow
def test_a_lane_makes_the_figure_higher_and_replaces_arrows():
    execution = executed()
    without, with_lane = plot(execution.compute), plot(execution.compute, executions=(execution,))

    def arrows(figure):
        return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]

    assert arrows(without)
    assert not arrows(with_lane)
    idle = executed(alpha=0.0)
    plain, empty = plot(idle.compute), plot(idle.compute, executions=(idle,))
    assert with_lane.get_figheight() > plain.get_figheight() == empty.get_figheight()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_legend_and_every_kind_of_figure_have_the_lane(suffix, tmp_path):
    execution = executed(fsdp=True)
    save(document(execution), str(tmp_path / f"x{suffix}"))
    save(Document((execution.compute,), ("1f1b",)), str(tmp_path / f"y{suffix}"))
    data = (tmp_path / f"x{suffix}").read_bytes()
    assert data != (tmp_path / f"y{suffix}").read_bytes()
    if suffix == ".svg":
        assert {
            "Message (activation above gradient)",
            "Parameters (FSDP)",
            "Gradients (FSDP)",
        } <= set(texts(data))
        assert not [text for text in texts((tmp_path / "y.svg").read_bytes()) if "Message" in text]


@pytest.mark.slow
def test_ops_too_many_for_cells_have_no_lane():
    execution = executed(devices=16, microbatches=512)
    figure = plot(execution.compute, executions=(execution,))
    assert figure.axes[0].images
    assert not patches(figure, COMM_LANE)


@pytest.mark.slow
def test_many_devices_with_lanes_stay_on_a_page():
    execution = executed(devices=64, microbatches=8, fsdp=True)
    figure = plot(execution.compute, executions=(execution,))
    assert len(figure.axes[0].images) >= 3 * 63  # strips, as the messages are too short for boxes
    assert figure.get_figheight() < 9


def test_json_lists_what_travelled_only_where_messages_are_known():
    execution = executed("dualpipe")
    result = json.loads(written(json_format, document(execution), ".json"))
    plain = json.loads(written(json_format, Document((execution.compute,), ("DualPipe",)), ".json"))
    transfers = result.pop("transfers")
    assert result == plain
    assert list(transfers) == ["source", "target", "op", "leave", "arrive"]
    for column in ("source", "target", "leave", "arrive"):
        assert transfers[column] == getattr(execution.messages, column).tolist()
    assert [result["ops"]["device"][op] for op in transfers["op"]] == transfers["source"]
    assert sorted(transfers["op"]) == sorted(set(transfers["op"]))


@pytest.mark.slow
def test_the_command_line_brings_messages_into_its_files(tmp_path, monkeypatch):
    """Traces have lanes of messages always, the other files with an execution of messages."""
    monkeypatch.chdir(tmp_path)
    words = ["run", "-s", "1f1b", "--stages", "4", "--mb", "8", "--comm", "0.4"]
    outputs = [
        word for suffix in ("trace.json", "json", "svg", "html") for word in ("-o", f"x.{suffix}")
    ]
    for extra, there in (([], False), (["--p2p", "overlap"], True)):
        assert invoke(*words, *outputs, *extra).exit_code == 0
        assert '"to device 1"' in (tmp_path / "x.trace.json").read_text()
        assert ("transfers" in json.loads((tmp_path / "x.json").read_text())) is there
        assert ("Message" in (tmp_path / "x.svg").read_text()) is there
        assert ('"lane":{"device":' in (tmp_path / "x.html").read_text()) is there
        printed = invoke(*words, "--json", *extra)
        assert ("transfers" in json.loads(printed.stdout)) is there


@pytest.mark.browser
def test_a_browser_draws_the_lane_and_its_legend(tmp_path):
    """With a number for each op still, and messages and collectives in their colours."""
    target = tmp_path / "page.html"
    target.write_bytes(written(html, document(executed(fsdp=True)), ".html"))
    dom = shown(target.as_uri(), tmp_path)
    assert re.search(r'<html[^>]* data-state="drawn"', dom)
    assert re.search(r'<p id="fault"[^>]*></p>', dom)
    assert len(re.findall(r'<text x="[\d.-]+" y="[\d.-]+">\d+</text>', dom)) == 64
    for colour in (COMM_LANE, COLLECTIVE_FILL):
        assert re.search(f'<path[^>]* fill="{colour}"', dom)
    assert re.search(r'<li class="lane">', dom)


def test_the_use_of_a_card_counts_messages_from_and_to_its_device():
    """At every moment as many as leave or reach the device then; none at the end."""
    execution = executed("interleaved", alpha=1.3)
    messages, curve = execution.messages, card_use(execution)
    for device in range(4):
        own = slice(curve.offsets[device], curve.offsets[device + 1])
        times = (curve.time[own][:-1] + curve.time[own][1:]) / 2
        ends = (messages.source == device) | (messages.target == device)
        under_way = (messages.leave[ends] <= times[:, None]) & (
            times[:, None] < messages.arrive[ends]
        )
        assert curve.value[own][:-1].tolist() == under_way.sum(axis=1).tolist()
        assert curve.value[own][-1] == 0
    assert curve.peak.max() > 1


def test_gathered_parameters_and_reduced_gradients_look_different():
    """Gradients are hatched, one box for each reduction, and long collectives are boxes where
    messages are strips.
    """
    execution = executed("interleaved", alpha=0.001, fsdp=True)
    figure = plot(execution.compute, executions=(execution,))
    kind = execution.lowered.schedule.kind
    hatched = [patch for patch in figure.axes[0].patches if patch.get_hatch()]
    assert [len(boxes(patch)) for patch in hatched] == [(kind == Kind.REDUCE_GRAD).sum()]
    assert {"Parameters (FSDP)", "Gradients (FSDP)"} <= {text.get_text() for text in figure.texts}
    assert figure.axes[0].images


@pytest.mark.parametrize(("name", "kind"), [("1f1b-plus", Kind.GF), ("vocab-2", Kind.REDUCE_S)])
def test_what_all_devices_run_together_is_one_bar_over_their_rows(name, kind):
    """From above the first row to below the last; a window cuts it as it cuts cells."""
    schedule = generate(name, devices=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule, others={kind: 1.0}))
    own = np.flatnonzero((schedule.kind == kind) & (schedule.device == 0))
    for until in (timeline.makespan / 2, timeline.makespan):
        starts = timeline.start[own][timeline.start[own] < until]
        (axes,) = plot(timeline, look=Look(window=(0.0, until))).axes
        paths = [patch for patch in axes.patches if isinstance(patch, PathPatch)]
        tall = [patch for patch in paths if np.ptp(boxes(patch)[0, 1::2]) > 3]
        outlines = [patch for patch in tall if not patch.get_fill()]
        edges = np.concatenate([boxes(patch) for patch in outlines])
        assert sorted(edges[:, 0].tolist()) == pytest.approx(sorted(starts.tolist()))
        assert len(tall) - len(outlines) == (kind == Kind.GF)


def test_a_page_has_bars_over_rows_and_the_fullest_host():
    schedule = generate("1f1b-plus", devices=4, microbatches=4)
    timeline = simulate(schedule, costs_for(schedule, others={Kind.GF: 1.0, Kind.GB: 2.0}))
    (entry,) = html.contents(Document((timeline,), ("a",)), lambda column: column.tolist())[
        "timelines"
    ]
    assert sorted(entry["bars"]["kind"]) == sorted([Kind.GF, Kind.GB] * 4)
    assert "host" not in entry["curves"][0]
    vocabulary = generate("vocab-2", devices=4, microbatches=8)
    reduced = simulate(vocabulary, costs_for(vocabulary, others={Kind.REDUCE_S: 1.0}))
    (entry,) = html.contents(Document((reduced,), ("a",)), lambda column: column.tolist())[
        "timelines"
    ]
    assert entry["bars"]["kind"] == [-1] * 8
    base = generate("1f1b", devices=4, microbatches=8)
    copied = simulate(made := add_offload(base, costs_for(base), 1), costs_for(made))
    (entry,) = html.contents(Document((copied,), ("a",)), lambda column: column.tolist())[
        "timelines"
    ]
    assert max(entry["curves"][0]["host"]["value"]) > 0
    assert "bars" not in entry


@pytest.mark.browser
def test_a_browser_draws_bars_and_the_host(tmp_path):
    """Bars over rows, and the fullest host as a dashed line."""
    vocabulary = generate("vocab-2", devices=4, microbatches=8)
    base = generate("1f1b", devices=4, microbatches=8)
    made = add_offload(base, costs_for(base), 1)
    for schedule, kind, mark in (
        (vocabulary, Kind.REDUCE_S, 'stroke-width="0.6"'),
        (made, Kind.OFFLOAD, "on the host of device 0"),
    ):
        timeline = simulate(schedule, costs_for(schedule, others={kind: 1.0}))
        page = written(html, Document((timeline,), ("a",)), ".html").decode()
        assert mark in opened(page, tmp_path)
