"""Recompute as ops: where R runs, what it costs, what it holds, and which files and runtimes know
it.
"""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.draft import Draft
from ppsim.core.ops import BACKWARDS, Kind
from ppsim.core.recompute import add_recompute, parse_rules
from ppsim.core.schedule import Schedule
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.memory.usage import curves, in_flight
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import InputError, InvalidSchedule
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts.read import parse, read
from ppsim.schedules import generate, schedule_from
from ppsim.show.files.convert import convert
from ppsim.show.files.document import Document, save
from ppsim.workload.cost.memory import memory_model
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel
from tests.cases import PLAIN

NAMES = PLAIN
COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")
each_schedule = pytest.mark.parametrize("name", NAMES)


def cells(schedule: Schedule) -> list[list[str]]:
    return list(Draft.from_schedule(schedule).cells())


@each_schedule
def test_each_backward_recomputes_right_before_it_runs(name):
    """Without the R the queues are as they were; each R is followed by its backward, or the pair
    that holds it.
    """
    plain = generate(name, devices=4, microbatches=8)
    schedule = add_recompute(plain)
    kept = schedule.kind != Kind.R
    assert [
        [cell for cell in row if "R" not in cell.split("O")[0]] for row in cells(schedule)
    ] == cells(plain)
    assert (~kept).sum() == np.isin(plain.kind, BACKWARDS).sum()
    for op in np.flatnonzero(~kept).tolist():
        found = [
            (int(schedule.stage[m]), int(schedule.microbatch[m]))
            for m in schedule.members(op + 1)
            if schedule.kind[m] in BACKWARDS
        ]
        assert (int(schedule.stage[op]), int(schedule.microbatch[op])) in found


def test_a_recompute_that_a_schedule_runs_earlier_stays_there():
    """Only backwards without an R get one."""
    rows = ["0F0,0F1,0R0,0B0,0B1", "1F0,1B0,1F1,1R1,1B1"]
    draft = parse("\n".join(rows), "x.csv")
    assert check(draft).valid
    got = cells(add_recompute(draft.schedule()))
    assert got == [
        ["0F0", "0F1", "0R0", "0B0", "0R1", "0B1"],
        ["1F0", "1R0", "1B0", "1F1", "1R1", "1B1"],
    ]


@pytest.mark.parametrize(("devices", "microbatches"), [(1, 5), (2, 2), (4, 8), (8, 24)])
@pytest.mark.parametrize("again", [0.5, 1, 3])
def test_1f1b_with_recompute_takes_the_closed_form(devices, microbatches, again):
    """(P-1)(tf + tb) + M (tf + tr + tb): an R waits for no gradient, so that it fills the wait for
    the first one.

    Inside the backward, where it waits for the gradient, it is a longer tb: (P-1 + M)(tf + tr +
    tb).
    """
    plain = generate("1f1b", devices=devices, microbatches=microbatches)
    schedule = add_recompute(plain)
    ops = simulate(schedule, costs_for(schedule, tf=2, tb=4, tr=again)).makespan
    assert ops == (devices - 1) * 6 + microbatches * (6 + again)
    inside = simulate(plain, costs_for(plain, tf=2, tb=4 + again)).makespan
    assert inside == (devices - 1 + microbatches) * (6 + again)


def again(schedule: Schedule, device: int) -> list[int]:
    own = schedule.queue(device)
    return schedule.microbatch[own][schedule.kind[own] == Kind.R].tolist()


@pytest.mark.parametrize("kept", range(6))
@pytest.mark.parametrize(("devices", "microbatches"), [(1, 3), (4, 12), (4, 2), (3, 7)])
def test_windows_keep_what_megatron_keeps(kept, devices, microbatches):
    """Megatron's forward_backward_pipelining: microbatch i runs again where i % (warm-up + 1)
    >= N.
    """
    schedule = add_recompute(
        generate("1f1b", devices=devices, microbatches=microbatches), f"window:{kept}"
    )
    peaks = measure(simulate(schedule, costs_for(schedule))).peak_activations.tolist()
    for device in range(devices):
        window = min(devices - device - 1, microbatches) + 1
        assert again(schedule, device) == [i for i in range(microbatches) if i % window >= kept]
        assert peaks[device] <= min(kept + 1, devices - device, microbatches)
        if microbatches >= 2 * devices:
            assert peaks[device] == min(kept + 1, devices - device)


@pytest.mark.parametrize("first", range(9))
def test_the_last_stage_pays_for_each_microbatch_that_runs_again(first):
    """On one device every R adds its time: M (tf + tb) + N tr; the first N run again and the others
    do not.
    """
    schedule = add_recompute(generate("1f1b", devices=1, microbatches=8), f"first:{first}")
    assert again(schedule, 0) == list(range(first))
    assert simulate(schedule, costs_for(schedule, tf=2, tb=4, tr=3)).makespan == 8 * 6 + first * 3


@pytest.mark.sampled(4)
@each_schedule
@pytest.mark.parametrize(
    ("rules", "same"), [("first:8", "full"), ("window:0", "full"), ("window:99", "none")]
)
def test_rules_end_where_all_or_none_are_run_again(name, rules, same):
    plain = generate(name, devices=4, microbatches=8)
    assert cells(add_recompute(plain, rules)) == cells(add_recompute(plain, same))
    assert cells(add_recompute(plain, "none")) == cells(plain)


@pytest.mark.sampled(4)
@each_schedule
def test_each_stage_may_have_its_own_rule(name):
    """A stage runs again what the rule alone would run again there."""
    plain = generate(name, devices=4, microbatches=8)
    S = plain.n_stages
    mixed = add_recompute(plain, f"first:3,window:2,full,none*{S - 3}" if S > 3 else "full")
    for stage, rule in enumerate(("first:3", "window:2", "full", "none")[:S]):
        alone = add_recompute(plain, rule)
        found, wanted = (
            sorted(each.microbatch[(each.kind == Kind.R) & (each.stage == stage)].tolist())
            for each in (mixed, alone)
        )
        assert found == wanted


def test_slices_run_again_with_their_microbatch():
    schedule = add_recompute(generate("seq1f1b", devices=2, microbatches=4, slices=2), "first:1")
    assert {*schedule.microbatch[schedule.kind == Kind.R].tolist()} == {0, 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first",
        "first:",
        "window:x",
        "layers:",
        "modules:",
        "modules:a,",
        "full,a",
        "full,",
        "full*0",
        "none*999999",
    ],
)
def test_what_says_nothing_of_recompute_is_refused(text):
    with pytest.raises(InputError, match="not a rule of recompute"):
        parse_rules(text)


def test_as_many_rules_as_stages():
    with pytest.raises(InputError, match="3 rules of recompute, and 1f1b has 4 stages"):
        add_recompute(generate("1f1b", devices=4, microbatches=8), "full*3")


@each_schedule
def test_recompute_without_a_cost_changes_no_time(name):
    """With tr = 0 every other op runs when it ran before."""
    plain = generate(name, devices=4, microbatches=8)
    schedule = add_recompute(plain)
    costs = costs_for(schedule, tf=2, ti=3, tw=1, tr=0, comm=0.5)
    before, after = simulate(plain, costs), simulate(schedule, costs)
    kept = schedule.kind != Kind.R
    assert after.start[kept].tolist() == before.start.tolist()


def test_recompute_costs_a_forward_by_default():
    """Also in costs of four rows, as they were before there was an R."""
    schedule = add_recompute(generate("1f1b", devices=2, microbatches=2))
    costs = costs_for(schedule, tf=[1, 3], ti=2)
    assert costs.time[Kind.R].tolist() == [1, 3]
    assert costs_for(schedule, tf=[1, 3], tr=5).time[Kind.R].tolist() == [5, 5]


@pytest.mark.sampled(4)
@each_schedule
@pytest.mark.parametrize("order", ["early", "torch"])
def test_the_detailed_model_runs_it_as_the_simple_one(name, order):
    """Sends and receives as ops that take no time change nothing; messages are as many as without
    recompute.
    """
    plain = generate(name, devices=4, microbatches=8)
    schedule = add_recompute(plain)
    costs = costs_for(schedule, comm=0.25)
    lowered = lower(schedule, order, unshard=2, reduce_grad=True)
    ran = execute(lowered, costs, Network(mode="latency", alpha=0.25))
    assert ran.compute.start.tolist() == simulate(schedule, costs).start.tolist()
    assert len(ran.messages) == plain.crosses.sum() == schedule.crosses.sum()


def test_memory_keeps_the_input_and_allocates_the_rest_at_r():
    """Three microbatches of 1F1B on one of two devices: inputs from F on, the rest from R on,
    nothing after B.
    """
    schedule = add_recompute(generate("1f1b", devices=2, microbatches=3))
    timeline = simulate(schedule, costs_for(schedule))
    gpt = Model(hidden=64, heads=4, layers=2, seq=32, vocab=0, biases=True)
    parallel = Parallel(pp=2, microbatches=3, flash=False, kernels="eager")
    model = memory_model(gpt, parallel, schedule.placement.devices)
    layer, stored = int(model.activations[0]), int(model.stored[0])
    assert (layer, stored) == (34 * 32 * 64 + 5 * 4 * 32 * 32, 2 * 32 * 64)
    nothing = 0 * model.work_b
    held = curves(timeline, replace(model, work_b=nothing, work_i=nothing))
    static = held.value[0] - stored
    rows = list(
        zip(
            held.time[: held.offsets[1]].tolist(),
            (held.value[: held.offsets[1]] - static).tolist(),
            strict=True,
        )
    )
    wanted = [
        (0, stored),
        (1, 2 * stored),
        (2, layer + stored),
        (7, 2 * stored),
        (8, layer + stored),
        (11, layer),
        (15, 0),
    ]
    assert rows == wanted
    assert measure(timeline).peak_activations.tolist() == [1, 1]
    assert in_flight(timeline).peak.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("row", "op"),
    [("0F0,0B0,0R0", "0R0"), ("0R0,0F0,0B0", "0R0"), ("0F0,(0R0;0B0)OVERLAP_F_B", "0B0")],
)
def test_check_reports_an_r_that_is_out_of_place(row, op):
    """After its backward, before its forward, or in one pair with its backward."""
    found = check(parse(row, "x.csv"))
    assert [fault.kind for fault in found.faults] == ["order"]
    assert {"0R0", "0B0", "0F0"} & {*found.faults[0].message.split()}


def test_queues_with_a_late_r_are_refused_when_they_are_made():
    """No dependency tells a backward of its R, so the order of the queue is proved at once."""
    schedule = add_recompute(generate("gpipe", devices=1, microbatches=1))
    late = schedule.kind[[0, 2, 1]]
    with pytest.raises(InvalidSchedule, match="0R0 does not run before the backward"):
        Schedule(
            "x",
            schedule.placement,
            1,
            schedule.offsets,
            late,
            schedule.stage,
            schedule.microbatch,
            schedule.pair,
        )


@pytest.mark.parametrize("suffix", [".json", ".trace.json", ".mmd"])
def test_files_keep_r(tmp_path, suffix):
    """What is written is read back op by op."""
    schedule = add_recompute(generate("dualpipe-v", devices=2, microbatches=4))
    path = tmp_path / f"x{suffix}"
    save(Document((simulate(schedule, costs_for(schedule)),), ("x",)), str(path))
    back = read(str(path)).schedule()
    assert all(
        np.array_equal(getattr(back, column), getattr(schedule, column)) for column in COLUMNS
    )


def test_torch_has_no_r(tmp_path):
    """Its CSV is refused, and check with its limits says so; a CSV that states R is read."""
    schedule = add_recompute(generate("1f1b", devices=2, microbatches=2))
    draft = Draft.from_schedule(schedule)
    with pytest.raises(InputError, match="torch's CSV has no such action"):
        convert(draft, str(tmp_path / "x.csv"), ".csv", title="x", costs=costs_for(schedule))
    assert check(draft).valid
    assert [fault.kind for fault in check(draft, runtime="torch-2.15").faults] == ["runtime"]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(",".join(row) for row in cells(schedule)))
    assert cells(schedule_from(str(path))) == cells(schedule)
