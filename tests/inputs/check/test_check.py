"""check accepts what runs, and refuses what does not, at the right cell."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.draft import Draft
from ppsim.engine.lowering.lower import lower
from ppsim.errors import InputError
from ppsim.inputs.check.checks import check
from ppsim.inputs.check.deadlock import MODES
from ppsim.inputs.check.faults import Fault
from ppsim.inputs.drafts.read import read
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import generate
from tests.cases import PLAIN, schedules

DATA = Path(__file__).parents[2] / "data"
RECORDS = json.loads((DATA / "torch" / "comms.json").read_text())
any_schedule = st.sampled_from(PLAIN).flatmap(schedules)
Grid = list[list[str]]


def faults_of(text: str, *modes: str, runtime: str = "") -> list[Fault]:
    return check(parse(text, "x.csv"), modes or MODES, runtime).faults


def only_fault(text: str, *modes: str, runtime: str = "") -> Fault:
    (fault,) = faults_of(text, *modes, runtime=runtime)
    return fault


def text_of(grid: Grid) -> str:
    return "\n".join(",".join(row) for row in grid)


def places(fault: Fault) -> set[tuple[int | None, int | None]]:
    return {(fault.row, fault.cell), *fault.other_ops}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "record", RECORDS, ids=[f"{r['source'].split('.')[-2]}-{r['P']}-{r['M']}" for r in RECORDS]
)
def test_what_torch_lowers_to_is_valid_in_every_mode_and_for_torch(record):
    assert faults_of("\n".join(record["comms"]), runtime="torch-2.13") == []
    assert faults_of("\n".join(record["comms_2_15"]), runtime="torch-2.15") == []
    assert faults_of("\n".join(record["compute"]), runtime="torch-2.13") == []


@given(any_schedule)
def test_every_schedule_of_ours_is_valid(schedule):
    assert check(Draft.from_schedule(schedule)).faults == []


@pytest.mark.parametrize("path", sorted((DATA / "torch").glob("*.csv")), ids=lambda path: path.stem)
def test_schedules_of_torchs_own_tests_are_valid(path):
    """Today's letters with pairs, and the older letters with and without comm ops."""
    draft = read(str(path))
    assert check(draft).faults == []
    assert draft.older == path.stem.startswith("zb1p")


# Mutations of what torch lowers to: each returns the grid and the cells (row and cell, counted from
# 1) to blame.


def is_kind(cell: str, *kinds: str) -> bool:
    return any(cell.lstrip("0123456789").startswith(kind) for kind in kinds)


def places_of(grid: Grid, *kinds: str) -> list[tuple[int, int]]:
    return [
        (r, c) for r, row in enumerate(grid) for c, cell in enumerate(row) if is_kind(cell, *kinds)
    ]


def user_of(receive: str) -> list[str]:
    """The ops that a receive can belong to: 2RECV_B3 to 2B3 or 2I3."""
    stage, kind, microbatch = (
        receive.partition("RECV_")[0],
        receive.split("_")[1][0],
        receive.split("_")[1][1:],
    )
    return [f"{stage}{k}{microbatch}" for k in ("F" if kind == "F" else "BI")]


def users_of(receive: str, row: list[str]) -> list[int]:
    """Where in a row the ops stand that need what a receive brings, by itself or in a pair."""
    names = user_of(receive)
    return [
        c
        for c, cell in enumerate(row)
        if set(cell.strip("(").replace(")", ";").split(";")) & set(names)
    ]


def swap_sends(grid: Grid, rng: random.Random) -> set[tuple[int, int]] | None:
    """Two sends of one kind and stage, so of one link, trade places."""
    first = rng.choice(places_of(grid, "SEND"))
    cell = grid[first[0]][first[1]]
    alike = [p for p in places_of(grid, "SEND") if p[0] == first[0] and p != first]
    alike = [p for p in alike if grid[p[0]][p[1]].rstrip("0123456789") == cell.rstrip("0123456789")]
    if not alike:
        return None
    second = rng.choice(alike)
    grid[first[0]][first[1]], grid[second[0]][second[1]] = grid[second[0]][second[1]], cell
    return {(first[0] + 1, first[1] + 1), (second[0] + 1, second[1] + 1)}


def lose_receive(grid: Grid, rng: random.Random) -> set[tuple[int, int]]:
    """A receive is not there; the op that needs its data is."""
    row, place = rng.choice(places_of(grid, "RECV"))
    receive = grid[row].pop(place)
    return {(row + 1, users_of(receive, grid[row])[0] + 1)}


def lose_send(grid: Grid, rng: random.Random) -> set[tuple[int, int]]:
    """A send is not there; the op whose result it would carry is."""
    row, place = rng.choice(places_of(grid, "SEND"))
    grid[row].pop(place)
    back = next(c for c in range(place - 1, -1, -1) if not is_kind(grid[row][c], "SEND", "RECV"))
    return {(row + 1, back + 1)}


def receive_behind_its_op(grid: Grid, rng: random.Random) -> set[tuple[int, int]]:
    """A receive stands right behind the op that needs it."""
    row, place = rng.choice(places_of(grid, "RECV"))
    receive = grid[row].pop(place)
    user = users_of(receive, grid[row])[0]
    grid[row].insert(user + 1, receive)
    return {(row + 1, user + 2)}


def post_twice(grid: Grid, rng: random.Random) -> set[tuple[int, int]]:
    """An op stands twice in its queue."""
    row, place = rng.choice(places_of(grid, "F", "B", "I", "W", "SEND", "RECV"))
    grid[row].append(grid[row][place])
    return {(row + 1, len(grid[row]))}


def stray(grid: Grid, rng: random.Random) -> set[tuple[int, int]]:
    """A send stands on another rank."""
    row, place = rng.choice(places_of(grid, "SEND", "RECV"))
    other = rng.choice([r for r in range(len(grid)) if r != row])
    grid[other].append(grid[row].pop(place))
    return {(other + 1, len(grid[other]))}


MUTATIONS = (swap_sends, lose_receive, lose_send, receive_behind_its_op, post_twice, stray)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda f: f.__name__)
@given(st.sampled_from([r for r in RECORDS if r["P"] > 1]), st.randoms(use_true_random=False))
def test_a_mutated_order_is_refused_at_the_mutated_cell(mutate, record, rng):
    """One mutation of torch's own lowered order: some fault names the cell to blame as its own."""
    grid = [row.split(",") for row in record["comms"]]
    blamed = mutate(grid, rng)
    if blamed is None:
        return
    faults = faults_of(text_of(grid))
    assert faults
    assert any((fault.row, fault.cell) in blamed for fault in faults), [f.message for f in faults]


@given(any_schedule, st.randoms(use_true_random=False))
def test_a_lost_op_is_named(schedule, rng):
    """Any compute op taken out of any schedule of ours: one fault, which names it."""
    grid = list(Draft.from_schedule(schedule).cells())
    row, place = rng.choice(places_of(grid, "F", "B", "I", "W"))
    cell = grid[row].pop(place)
    kept = [r for r in grid if r]
    forwards_of_one_stage = schedule.n_stages == 1 and not places_of(kept, "B", "I", "W")
    if len(kept) < len(grid) or forwards_of_one_stage:  # a smaller schedule
        return
    found = faults_of(text_of(grid))
    assert found
    stage, microbatch = cell.translate(str.maketrans("FBIW", "    ")).split()
    gone = [f for f in found if f.kind == "missing"]
    assert (
        gone
        or microbatch == str(schedule.n_microbatches - 1)
        or stage == str(schedule.n_stages - 1)
    )
    for fault in gone:
        assert f"stage {stage}" in fault.message or schedule.n_microbatches == 1


def test_hand_drawn_gantt_is_refused_with_each_of_its_seven_faults():
    """Four overlaps on a device, three backwards before or during their own forward, and nothing
    else.
    """
    faults = check(read(str(DATA / "schedules" / "fill_drain_drawn_by_hand.mmd"))).faults
    assert [(f.kind, f.device, f.message.split(" runs ", 1)[1].split(",")[0]) for f in faults] == [
        ("overlap", 2, "2B3 [5"),
        ("overlap", 3, "3B3 [4"),
        ("overlap", 3, "3B2 [5"),
        ("overlap", 3, "3B1 [6"),
        ("early", 2, "2B3 [5"),
        ("early", 3, "3B3 [4"),
        ("early", 3, "3B2 [5"),
    ]
    assert faults[0].message == "device 2 runs 2B3 [5, 6] while it runs 2F3 [5, 6]"
    assert faults[5].message == "device 3 runs 3B3 [4, 5] before 3F3 [6, 7], which it needs"
    assert [f.row for f in faults] == [31, 41, 42, 43, 31, 41, 42]


TWO_SENDS = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1"
)


def test_steady_1f1b_with_both_sends_first_deadlocks_only_where_sends_block():
    """The circle names rank, line and cell of both sends, and the hint is a move that works."""
    fault = only_fault(TWO_SENDS)
    assert fault.circle == ("0SEND_F1", "1RECV_F1", "1SEND_B0", "0RECV_B0", "0SEND_F1")
    assert "; ".join(fault.waits) in fault.message
    assert fault.kind == "deadlock"
    assert places(fault) == {(1, 4), (2, 5), (2, 4), (1, 5)}
    assert fault.message == "deadlock by blocking sends and receives: " + "; ".join(
        [
            "0SEND_F1 (device 0, line 1, cell 4) waits for 1RECV_F1 (device 1, line 2, cell 5), "
            "which is after 1SEND_B0 (line 2, cell 4)",
            "1SEND_B0 (device 1, line 2, cell 4) waits for 0RECV_B0 (device 0, line 1, cell 5), "
            "which is after 0SEND_F1 (line 1, cell 4)",
        ]
    )
    assert fault.hint == "move 1RECV_F1 before 1SEND_B0 on device 1"
    assert faults_of(TWO_SENDS.replace("1SEND_B0,1RECV_F1", "1RECV_F1,1SEND_B0")) == []
    assert faults_of(TWO_SENDS, "overlap", "batched") == []


def test_a_receive_that_waits_for_what_its_own_batch_holds_back_deadlocks_batched_too():
    text = "0RECV_B0,0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0"
    assert faults_of(text, "overlap") == []
    fault = only_fault(text)
    assert fault.message.startswith(
        "deadlock by batched sends and receives, and so by blocking ones: 0RECV_B0"
    )
    assert fault.hint == "move 0RECV_B0 before 0B0 on device 0"


def test_a_circle_in_the_order_of_compute_is_a_deadlock_in_every_mode():
    fault = only_fault("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0")
    assert fault.kind == "deadlock"
    assert "deadlock by the order of ops" in fault.message
    assert places(fault) == {(1, 2), (2, 4), (2, 1), (1, 3)}


@given(any_schedule, st.sampled_from(["prefetch:0", "prefetch:1", "prefetch:3", "deferred"]))
def test_what_runs_in_a_stricter_mode_runs_in_the_laxer_ones(schedule, order):
    draft = Draft.from_schedule(lower(schedule, order).schedule)
    stuck = [
        bool([f for f in check(draft, (mode,)).faults if f.kind == "deadlock"]) for mode in MODES
    ]
    assert stuck == sorted(stuck)
    assert bool([f for f in check(draft).faults if f.kind == "deadlock"]) == stuck[-1]


@pytest.mark.parametrize(
    ("text", "kind", "place", "words"),
    [
        (
            "0F0,0B0,0F0",
            "duplicate",
            (1, 3),
            "0F0 runs a second time, after device 0, line 1, cell 1",
        ),
        (
            "0F0,0B0,0F1",
            "missing",
            (None, None),
            "device 0 runs no B, nor I of stage 0 for microbatch 1",
        ),
        ("0F0,0I0", "missing", (None, None), "device 0 runs no W of stage 0 for microbatch 0"),
        ("0F0,0B0,0W0,0I0", "duplicate", (1, 4), "0I0 runs as well as 0B0, which includes it"),
        ("0B0,0F0", "order", (1, 1), "0B0 runs before 0F0"),
        ("0F0,0W0,0I0", "order", (1, 2), "0W0 runs before 0I0"),
        ("(0F0;0B0)OVERLAP_F_B", "order", (1, 1), "0B0 runs in one pair with 0F0"),
        (
            "0F0,0F1,0B0\n0B1",
            "placement",
            (2, 1),
            "0B1 runs on device 1, stage 0 belongs to device 0",
        ),
        ("0F0,0B0,2F0,2B0", "missing", (None, None), "no device runs stage 1"),
        (
            "0F0,0B0,0SEND_F0",
            "message",
            (1, 3),
            "0SEND_F0 belongs to no message: there is no stage 1",
        ),
        (
            "0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0",
            "message",
            (1, 2),
            "0SEND_F0 belongs to no message: stages 0 and 1 are on one device, 0",
        ),
        ("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD", "fsdp", (1, 4), "0REDUCE_GRAD comes a second time"),
        (
            "0F0,0REDUCE_GRAD,0B0",
            "fsdp",
            (1, 2),
            "before 0B0 (device 0, line 1, cell 3), whose gradients it misses",
        ),
        (
            "0UNSHARD,0F0,0RESHARD,0B0",
            "fsdp",
            (1, 4),
            "0B0 runs on stage 0, whose parameters are not gathered",
        ),
        (
            "0UNSHARD,0UNSHARD,0F0,0B0,0RESHARD",
            "fsdp",
            (1, 2),
            "0UNSHARD gathers parameters that are already gathered",
        ),
        (
            "0UNSHARD,0F0,0B0,0RESHARD,0RESHARD",
            "fsdp",
            (1, 5),
            "0RESHARD frees parameters that are not gathered",
        ),
    ],
)
def test_each_fault_is_told_once_in_plain_words(text, kind, place, words):
    found = faults_of(text)
    assert [(f.kind, (f.row, f.cell)) for f in found if words in f.message] == [(kind, place)], [
        f.message for f in found
    ]
    assert all(f.hint for f in found)


def test_messages_out_of_order_blame_the_side_that_strays_from_its_own_compute():
    """Messages are matched by their place on the wire; whoever keeps to its own order of ops is not
    to blame.
    """
    sender = (
        "0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1"
    )
    fault = only_fault(sender)
    assert (fault.kind, fault.row, fault.cell, fault.other_ops) == ("fifo", 1, 3, ((2, 1),))
    receiver = sender.replace("0SEND_F1,0SEND_F0", "0SEND_F0,0SEND_F1").replace(
        "1RECV_F0,1RECV_F1", "1RECV_F1,1RECV_F0"
    )
    fault = only_fault(receiver)
    assert (fault.kind, fault.row, fault.cell, fault.other_ops) == ("fifo", 2, 1, ((1, 3),))


class TestTorch:
    """The limits of torch 2.13's runtime."""

    def faults(self, text: str) -> list[Fault]:
        return faults_of(text, runtime="torch-2.13")

    def test_losses_out_of_order_would_give_wrong_gradients_without_an_error(self):
        text = "0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0".replace("0B0,0B1", "0B1,0B0")
        assert faults_of(text) == []
        (fault,) = self.faults(text)
        assert (fault.kind, fault.row, fault.cell) == ("runtime", 2, 3)

    def test_slices_of_sequences_are_refused(self):
        made = generate("seq1f1b", devices=2, microbatches=4, slices=2)
        (fault,) = check(Draft.from_schedule(made), runtime="torch-2.13").faults
        assert (fault.kind, "no slices of sequences" in fault.message) == ("runtime", True)

    def test_two_replicas_are_refused(self):
        faults = check(
            Draft.from_schedule(generate("dualpipe", devices=4, microbatches=8)),
            runtime="torch-2.13",
        ).faults
        assert [f.kind for f in faults] == ["runtime"]
        assert "one device" in faults[0].message

    def test_empty_cells_among_comm_ops_and_missing_reductions_are_refused(self):
        text = "0F0,,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD"
        assert faults_of(text) == []
        assert [(f.row, f.cell, f.message.split(":")[0]) for f in self.faults(text)] == [
            (1, 2, "torch accepts no empty cell in compute_comms"),
            (None, None, "no REDUCE_GRAD of stage 0"),
        ]

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                ("0WAIT_SEND_F0,", ""),
                "nothing waits for 0SEND_F0, and torch 2.15 requires a WAIT_SEND_F for each",
            ),
            (
                ("0SEND_F0,", "0WAIT_SEND_F0,0SEND_F0,"),
                "0WAIT_SEND_F0 waits for no SEND_F before it",
            ),
            (
                ("0WAIT_REDUCE_GRAD", "0WAIT_REDUCE_GRAD,0WAIT_REDUCE_GRAD"),
                "waits for no REDUCE_GRAD before it",
            ),
        ],
    )
    def test_torch_2_15_wants_a_wait_behind_every_send_and_reduction(self, change, words):
        text = (
            "0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0"
        )
        assert faults_of(text, runtime="torch-2.15") == []
        assert "has no waits" in only_fault(text, runtime="torch-2.13").message
        assert any(
            words in fault.message
            for fault in faults_of(text.replace(*change), runtime="torch-2.15")
        )

    def test_torch_2_15_takes_one_reduction_at_a_time(self):
        text = "0F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD,0WAIT_REDUCE_GRAD,1WAIT_REDUCE_GRAD"
        assert (
            "1REDUCE_GRAD starts while 0REDUCE_GRAD"
            in only_fault(text, runtime="torch-2.15").message
        )

    def test_a_wait_ahead_of_what_the_receiver_needs_first_is_a_deadlock(self):
        """Waiting for a send is waiting for its receive, and that may stand behind what the sender
        has yet to send.
        """
        text = "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0WAIT_SEND_F1\n"
        fine = (
            text + "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1"
        )
        assert faults_of(fine, "overlap") == []
        stuck = "0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0WAIT_SEND_F0\n"
        stuck += "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B1"
        fault = only_fault(stuck, "overlap")
        assert fault.kind == "deadlock"
        assert fault.message.startswith("deadlock by overlapped sends and receives: 0WAIT_SEND_F1")

    def test_the_older_letters_are_refused(self):
        (fault,) = self.faults("0F0,0BW0")
        assert "older letters" in fault.message

    @pytest.mark.parametrize(
        ("name", "devices", "microbatches", "breaks"),
        [
            ("dualpipe-v", 4, 8, True),
            ("dualpipe-v", 2, 4, False),
            ("interleaved", 2, 4, False),
            ("interleaved", 4, 8, False),
            ("1f1b", 4, 8, False),
        ],
    )
    def test_deferred_receives_are_warned_of_where_they_break_the_order(
        self, name, devices, microbatches, breaks
    ):
        """The outcomes are those of real runs with defer_pp_recv=True."""
        report = check(
            Draft.from_schedule(generate(name, devices=devices, microbatches=microbatches)),
            runtime="torch-2.13",
        )
        assert report.valid
        assert bool(report.warnings) == breaks

    def test_deferred_receives_break_torchs_own_zero_bubble_schedules(self):
        """ZBV at P = 2 and interleaved zero bubble at P = 2, with two stages each, as in real
        runs.
        """
        for cls in ("ScheduleZBVZeroBubble", "ScheduleInterleavedZeroBubble"):
            (record,) = [
                r
                for r in RECORDS
                if cls in r["source"] and (r["P"], r["M"]) == (2, 4) and "3F0" in str(r)
            ]
            report = check(parse("\n".join(record["compute"]), "x"), runtime="torch-2.13")
            assert report.valid
            assert report.warnings


def test_timed_input_may_hold_ops_in_any_order_of_lines():
    draft = read(str(DATA / "schedules" / "fill_drain_drawn_by_hand.mmd"))
    assert draft.start is not None
    assert (np.diff(draft.start[draft.device == 0]) > 0).all()


def test_a_number_far_beyond_the_rest_is_one_fault_not_a_flood():
    many = ",".join(f"0F{m},0B{m}" for m in range(2000))
    (fault,) = faults_of(many + ",0F3999,1999F0,1999B0")
    assert fault.kind == "missing"
    assert (fault.row, fault.cell) == (1, 4001)


RUNTIME = ("", "torch-2.13", "torch-2.15", "megatron")


@pytest.mark.parametrize("runtime", RUNTIME)
def test_an_op_that_runs_twice_is_the_only_fault_in_every_runtime(runtime):
    """A runtime's own limits are looked at by lowering, which needs every op once."""
    fault = only_fault("0F0,0F1,0B0,0B1,0B1\n1F0,1B0,1F1,1B1\n", runtime=runtime)
    assert fault.message == "0B1 runs a second time, after device 0, line 1, cell 4"


@given(
    st.sampled_from([r for r in RECORDS if r["P"] > 1]),
    st.sampled_from(["compute", "comms"]),
    st.randoms(use_true_random=False),
)
def test_a_broken_order_is_judged_in_every_runtime_and_queue(record, form, rng):
    """Cells lost, doubled, exchanged, moved to other devices or renumbered: faults, never an error
    of ours.
    """
    grid = [row.split(",") for row in record[form]]
    for _ in range(rng.choice([1, 2, 5])):
        row, other = rng.choice(grid), rng.choice(grid)
        cell = row.pop(rng.randrange(len(row))) if len(row) > 1 else row[0]
        change = rng.choice(
            [
                [],
                [cell, cell],
                [cell.replace("0", "1")],
                [cell.translate(str.maketrans("FB", "BI"))],
            ]
        )
        at = rng.randrange(len(other) + 1)
        other[at:at] = change or [cell]
    try:
        draft = parse(text_of(grid), "x.csv")
    except InputError:
        return
    for runtime in RUNTIME:
        for queues in ("", "edge", "pair", "rank"):
            check(draft, MODES, runtime, queues)
