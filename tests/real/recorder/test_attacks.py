"""Hostile situations, one a row: the training goes on, says at most one thing, and harms no file
but its recording.
"""

from __future__ import annotations

import errno
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ppsim
from ppsim.errors import InputError
from ppsim.real.recorder import file as ops_file
from ppsim.real.recorder import guard, notes, writer
from ppsim.real.runs import streams
from ppsim.record import op, record
from tests.commands import SOURCE
from tests.recording import NAME, WHOLE, settled, train, warned

SUFFIX = ".ops.jsonl"


@pytest.fixture(autouse=True)
def alone(tmp_path_factory, monkeypatch):
    """A current folder of its own, no rank of a launcher, and ops written as they end."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    monkeypatch.setattr(notes, "EVERY_S", -1.0)
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)


def recordings(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob(f"*{SUFFIX}") if path.is_file() and not path.is_symlink()
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a recording, each line of which is an object."""
    header, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["schema"] == "ppsim.ops/1"
    assert path.read_text().endswith("}\n")
    return rows


class Hostile:
    """A value that nothing can be done with."""

    def __index__(self) -> int:
        raise ZeroDivisionError("index")

    def __repr__(self) -> str:
        raise ZeroDivisionError("repr")

    def __bool__(self) -> bool:
        raise ZeroDivisionError("bool")

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError("eq")

    __hash__ = None  # type: ignore[assignment]


class Text(str):
    """A text whose methods are broken."""

    def __str__(self) -> str:
        raise ZeroDivisionError("str")

    def __repr__(self) -> str:
        raise ZeroDivisionError("repr")


# How the last op of a training is marked, and whether it can be recorded.
MARKS: list[tuple[Any, Any, Any, bool]] = [
    ("F", None, 0, False),
    ("F", "0", 0, False),
    ("F", '0, "kind": "B"', 0, False),
    ("F", 1.0, 0, False),
    ("F", float("nan"), 0, False),
    ("F", Fraction(1, 2), 0, False),
    ("F", [0], 0, False),
    ("F", object(), 0, False),
    ("F", Hostile(), 0, False),
    ("F", np.float32(1), 0, False),
    ("F", np.int64(0), 1, True),
    ("F", np.uint8(0), np.int32(1), True),
    ("F", True, 1, True),
    ("F", 0, None, False),
    ("F", 0, "1", False),
    ("F", 0, 1e3, False),
    ("F", 0, Hostile(), False),
    ("F", 0, 10**30, True),
    ("F", -(10**30), 0, True),
    ("F", 0, 10**5000, False),  # more digits than Python writes
    (None, 0, 0, False),
    (3, 0, 0, False),
    (b"F", 0, 0, False),
    (["F"], 0, 0, False),
    (Hostile(), 0, 0, False),
    (Text("F"), 0, 1, True),
    ("", 0, 0, True),
    ("\x1b[31mred\x07\n\r\u2028\0", 0, 0, True),
    ("\ud800", 0, 0, True),
    ("F" * 1_000_000, 0, 0, True),
    ('F", "stage": 7, "x": "', 0, 0, True),
]


@pytest.mark.parametrize("mark", MARKS, ids=range(len(MARKS)))
def test_an_op_marked_with_anything(mark, tmp_path):
    """What cannot be written ends the recording, with what ran before; no line is broken."""
    kind, stage, microbatch, whole = mark
    with warned() as said, record(tmp_path, device=0):
        done = train()
        with op(kind, stage, microbatch):
            done.append(7)
        done += train()
    assert done == [*WHOLE, 7, *WHOLE]
    assert len(said) == (0 if whole else 1)
    (made,) = recordings(tmp_path)
    assert len(rows_of(made)) == (2 * len(WHOLE) + 1 if whole else len(WHOLE))


OPTIONS: list[dict[str, Any]] = [
    *({name: Hostile()} for name in ("steps", "device", "replica", "clock")),
    {"clock": np.array(["cpu", "cuda"])},
    {"clock": b"cpu"},
    {"steps": -(10**30)},
    {"steps": float("inf")},
    {"device": np.float64(0)},
    {"device": "\x1b[31m"},
    {"replica": [0]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_options_of_any_type(options, tmp_path):
    with warned() as said, record(tmp_path, **options):
        assert train() == WHOLE
    assert len(said) == 1
    assert said[0].isprintable()
    assert recordings(tmp_path) == []


def test_whole_numbers_of_any_type_are_options(tmp_path):
    numbers: dict[str, Any] = {"device": np.int64(3), "replica": np.uint8(1), "steps": np.int32(5)}
    with warned() as said, record(tmp_path, **numbers):
        train()
    assert said == []
    (made,) = recordings(tmp_path)
    header = json.loads(made.read_text().splitlines()[0])
    assert (header["device"], header["replica"]) == (3, 1)


RANKS = [
    "",
    "-1",
    "x",
    "1.5",
    "9" * 5000,
    "1" * 300,
    "²",
    "٣",
    "1\n",
    "../../x",
    "0x1",
    "\udc80",
    " ",
]


@pytest.mark.parametrize("rank", RANKS, ids=range(len(RANKS)))
def test_a_launcher_that_tells_any_rank(rank, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with warned() as said, record(tmp_path / "in", device=0):
        assert train() == WHOLE
    assert len(said) <= 1
    assert len(recordings(tmp_path / "in")) == 1 - len(said)
    assert all(path == tmp_path / "in" for path in tmp_path.iterdir())


def swap_for_link(made: Path) -> None:
    made.unlink()
    made.symlink_to(made.parent / "victim")


def swap_for_pipe(made: Path) -> None:
    made.unlink()
    os.mkfifo(made)


def swap_for_folder(made: Path) -> None:
    made.unlink()
    made.mkdir()


def swap_for_file(made: Path) -> None:
    made.rename(made.with_suffix(".moved"))
    made.write_text("of somebody else")


def swap_for_hard_link(made: Path) -> None:
    made.unlink()
    made.hardlink_to(made.parent / "victim")


def append_to(made: Path) -> None:
    with made.open("a") as out:
        out.write("of somebody else\n")


def cut(made: Path) -> None:
    os.truncate(made, 10)


def lose_folder(made: Path) -> None:
    made.parent.rename(made.parent.with_name("moved"))


def lose_folder_for_link(made: Path) -> None:
    made.parent.rename(made.parent.with_name("moved"))
    made.parent.symlink_to(made.parent.with_name("moved2"))


MISDEEDS: list[Callable[[Path], None]] = [
    Path.unlink,
    swap_for_link,
    swap_for_pipe,
    swap_for_folder,
    swap_for_file,
    swap_for_hard_link,
    append_to,
    cut,
    lose_folder,
    lose_folder_for_link,
]


@pytest.mark.parametrize("misdeed", MISDEEDS, ids=lambda each: each.__name__)
def test_a_file_that_is_tampered_with_while_it_is_recorded(misdeed, tmp_path):
    """The recording ends with one warning; what took the file's place has not changed in any
    byte.
    """
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "victim").write_text("precious")
    with warned() as said, record(folder, device=0) as recording:
        done = train()
        settled(recording)
        misdeed(folder / NAME)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        done += train()
    assert done == 2 * WHOLE
    assert len(said) == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def where_a_link_leads(here: Path) -> Path:
    (here / "real").mkdir()
    (here / "link").symlink_to(here / "real")
    return here / "link"


def loop_of_links(here: Path) -> Path:
    (here / "a").symlink_to(here / "b")
    (here / "b").symlink_to(here / "a")
    return here / "a"


def dangling(here: Path) -> Path:
    (here / "a").symlink_to(here / "nowhere" / "below")
    return here / "a"


def pipe(here: Path) -> Path:
    os.mkfifo(here / "pipe")
    return here / "pipe"


def many_taken(here: Path) -> Path:
    for number in range(1, writer.MOST_NAMES + 1):
        (here / f"replica0.device0{'' if number == 1 else f'-{number}'}{SUFFIX}").write_text("")
    return here


# Where to record, whether that works, and what the folder held.
FOLDERS: list[tuple[Callable[[Path], Any], bool]] = [
    (where_a_link_leads, True),
    (loop_of_links, False),
    (dangling, False),
    (pipe, False),
    (many_taken, False),
    (lambda here: "/dev/full", False),
    (lambda here: "/dev/null/run", False),
    (lambda here: "/proc/1/run", False),
    (lambda here: "/sys/run", False),
    (lambda here: b"bytes", True),
    (lambda here: "\udc80", True),
    (lambda here: "", True),
    (lambda here: "\x1b[31m" * 60, False),
    (lambda here: Hostile(), False),
    (lambda here: here / ("long" * 20) / ("y" * 240) / ("z" * 240), True),
    (lambda here: "/".join(["x" * 200] * 30), False),
    (lambda here: io.StringIO(), False),
]


@pytest.mark.parametrize(("make", "works"), FOLDERS, ids=range(len(FOLDERS)))
def test_a_folder_of_any_kind(make, works, tmp_path):
    where = make(tmp_path)
    before = {path: path.lstat().st_size for path in tmp_path.rglob("*") if not path.is_dir()}
    with warned() as said, record(where, device=0):
        assert train() == WHOLE
    assert len(said) == (0 if works else 1), said
    assert all(text.isprintable() for text in said)
    assert {path: path.lstat().st_size for path in before} == before
    assert works or {path for path in tmp_path.rglob(f"*{SUFFIX}") if path not in before} == set()


def test_a_program_that_changes_its_folder(tmp_path, monkeypatch):
    """A relative path is of the folder in which the recording began."""
    monkeypatch.chdir(tmp_path)
    with warned() as said, record("run", device=0):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        train()
    assert said == []
    assert [path.parent for path in recordings(tmp_path)] == [tmp_path / "run"]


def test_a_program_whose_folder_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with warned() as said, record("run", device=0):
        assert train() == WHOLE
    assert len(said) == 1
    monkeypatch.chdir(tmp_path)


# torch as it may be found: half imported, of another version, or another library of that name.


def stub(name: str, **parts: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(parts)
    return module


def boom(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, "a library is broken")


def no_cuda() -> SimpleNamespace:
    return SimpleNamespace(is_available=lambda: False)


TORCHES: list[Any] = [
    None,
    stub("torch"),
    stub("torch", distributed=None, cuda=None),
    stub("torch", distributed=SimpleNamespace(is_available=boom), cuda=no_cuda(), __version__="9"),
    stub("torch", distributed=no_cuda(), cuda=SimpleNamespace(is_available=boom), __version__="9"),
    stub("torch", distributed=no_cuda(), cuda=no_cuda()),
    stub("torch", distributed=no_cuda(), cuda=no_cuda(), __version__=object()),
    stub("torch", distributed=no_cuda(), cuda=no_cuda(), __version__=Text("2")),
    stub(
        "torch",
        distributed=SimpleNamespace(is_available=lambda: True),
        cuda=no_cuda(),
        __version__="9",
    ),
    Hostile(),
]


@pytest.mark.parametrize("torch", TORCHES, ids=range(len(TORCHES)))
def test_a_torch_of_any_kind(torch, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with warned() as said, record(tmp_path, device=0):
        assert train() == WHOLE
    assert len(said) <= 1
    assert record.active is None
    for made in recordings(tmp_path):
        assert len(rows_of(made)) == len(WHOLE)


class Stage:
    """A stage of a pipeline, in parts as torch's."""

    stage_index, is_last, group_rank, group_size = 0, True, 0, 1

    def forward_one_chunk(self, *given: Any, **named: Any) -> Any:
        return "forward", given, named

    def backward_one_chunk(self, *given: Any, **named: Any) -> Any:
        return "backward", given, named

    def backward_weight_one_chunk(self, *given: Any, **named: Any) -> Any:
        return "weight", given, named

    def get_fwd_send_ops(self, *given: Any, **named: Any) -> Any:
        return (each for each in (1, 2, 3))


class Schedule:
    """A schedule that runs one microbatch."""

    _has_backward, _loss_fn = True, None

    def __init__(self, **named: Any) -> None:
        self._stage, self.named = Stage(), named

    def step(self) -> Any:
        stage = self._stage
        return (
            stage.forward_one_chunk(**self.named),
            stage.backward_one_chunk(0, None, False),
            stage.backward_weight_one_chunk(0),
            list(stage.get_fwd_send_ops(0)),
        )


class Single(Schedule):
    """The step that others inherit."""


def pipelines(stage: Any = Stage, schedule: Any = Schedule, **parts: Any) -> Any:
    """Modules of torch's pipelines with these parts."""
    schedules = stub(
        "torch.distributed.pipelining.schedules",
        _PipelineSchedule=schedule,
        PipelineScheduleSingle=Single,
        PipelineScheduleMulti=schedule,
        **parts,
    )
    stages = stub("torch.distributed.pipelining.stage", _PipelineStageBase=stage)
    return stub("torch.distributed.pipelining", schedules=schedules, stage=stages)


def install(pipelining: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch be one with these pipelines."""
    distributed = stub("torch.distributed", is_available=lambda: True, is_initialized=lambda: False)
    distributed.get_process_group_ranks = lambda group: [0]  # type: ignore[attr-defined]
    distributed.group = SimpleNamespace(WORLD=None)  # type: ignore[attr-defined]
    torch = stub("torch", distributed=distributed, cuda=no_cuda(), __version__="9")
    distributed.pipelining = pipelining  # type: ignore[attr-defined]
    for module in (torch, distributed, pipelining, pipelining.schedules, pipelining.stage):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Stage, "group", None, raising=False)


def test_a_torch_that_names_its_arguments_otherwise(tmp_path, monkeypatch):
    """The step's results are those without a recording, each call made once."""
    install(pipelines(), monkeypatch)
    for named in ({"microbatch": 0}, {"fwd_chunk_id": 0, "more": 1}):
        plain = Schedule(**named).step()
        with warned() as said, record(tmp_path):
            assert Schedule(**named).step() == plain
        assert len(said) == (0 if "microbatch" in named else 1)
    assert "step" not in vars(Single)
    assert vars(Stage)["forward_one_chunk"].__qualname__ == "Stage.forward_one_chunk"
    assert isinstance(vars(Stage)["forward_one_chunk"], FunctionType)


class StaticStage(Stage):
    """A version that computes without its object."""

    @staticmethod
    def forward_one_chunk(*given: Any, **named: Any) -> Any:
        return "forward", given, named


class PropertyStage(Stage):
    """A version that hands out what computes."""

    @property
    def backward_one_chunk(self) -> Any:
        return lambda *given, **named: ("backward", given, named)


class SlottedStage:
    """A version without what is called today."""

    __slots__ = ()


@pytest.mark.parametrize("stage", [StaticStage, PropertyStage, SlottedStage, None, int, boom])
def test_a_torch_that_computes_otherwise(stage, tmp_path, monkeypatch):
    """Its pipelines are not recorded, marked ops are; nothing of it is left changed."""
    install(pipelines(stage), monkeypatch)
    before = dict(vars(stage)) if isinstance(stage, type) else {}
    with warned() as said, record(tmp_path):
        assert train() == WHOLE
        if isinstance(stage, type) and issubclass(stage, Stage):
            assert stage().forward_one_chunk(3, x=4) == ("forward", (3,), {"x": 4})
            assert stage().backward_one_chunk(3, x=4) == ("backward", (3,), {"x": 4})
    assert len(said) == 1
    assert "only marked ops" in said[0]
    assert len(rows_of(recordings(tmp_path)[0])) == len(WHOLE)
    assert not isinstance(stage, type) or dict(vars(stage)) == before


def test_what_another_tool_put_there_meanwhile_stays(tmp_path, monkeypatch):
    install(pipelines(), monkeypatch)
    plain = Schedule.__dict__["step"]
    try:
        with warned(), record(tmp_path):
            ours = Schedule.__dict__["step"]

            def theirs(schedule: Any) -> Any:
                return ours(schedule)

            setattr(Schedule, "step", theirs)  # noqa: B010
        assert Schedule.__dict__["step"] is theirs
        assert Schedule(microbatch=0).step()[0] == ("forward", (), {"microbatch": 0})
        assert len(recordings(tmp_path)) == 0
    finally:
        setattr(Schedule, "step", plain)  # noqa: B010


def test_a_recording_that_failed_within_a_step_holds_no_tensor(tmp_path, monkeypatch):
    """Nor does one that has ended: what hooks know of messages is let go."""
    from ppsim.real.recorder.torch_hooks import _Hooks

    with warned(), record(tmp_path) as recording:
        hooks = _Hooks(recording)
        hooks._identify = lambda schedule: None  # type: ignore[method-assign]

        def step(schedule: Any) -> None:
            hooks.messages[1] = object(), ("SEND_F", 0, 0)
            hooks.pending[1] = object(), [], 0
            recording.give_up(ValueError("within"))

        hooks.on_step(step)(Schedule())
        assert (hooks.messages, hooks.pending, hooks.in_step) == ({}, {}, False)


@pytest.mark.parametrize(
    "name", ["PP:0UNSHARD", "PP:" + "9" * 5000 + "RESHARD", "PP:٣UNSHARD", "UNSHARD", 7, None]
)
def test_a_span_of_the_profiler_with_any_name(name, tmp_path):
    """It is entered and left as without a recording, and may swallow an error or raise."""
    from ppsim.real.recorder.torch_hooks import _Hooks

    class Span:
        entered = left = 0

        def __init__(self, *given: Any) -> None:
            self.given = given

        def __enter__(self) -> str:
            self.entered += 1
            return "value"

        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            self.left += 1
            return kind is ZeroDivisionError

    with warned() as said, record(tmp_path, device=0) as recording:
        train(1)
        hooks = _Hooks(recording)
        hooks.in_step = True
        span = hooks.on_shard(Span)(name)
        with span as value:
            assert value == "value"
        with span:
            _ = 1 / 0
        with pytest.raises(StopIteration), span:
            raise StopIteration
        assert (span.entered, span.left, span.given) == (3, 3, (name,))
    assert len(said) <= 1


# Warnings that cannot be given.


@pytest.mark.parametrize("stderr", [None, io.StringIO(), "closed", object()])
def test_standard_error_of_any_kind(stderr, tmp_path, monkeypatch, capsys):
    if stderr == "closed":
        stderr = io.StringIO()
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record("/dev/null", device=0):
            assert train() == WHOLE
    assert capsys.readouterr().out == ""
    assert (
        not isinstance(stderr, io.StringIO)
        or stderr.closed
        or stderr.getvalue().count("ppsim.record") == 1
    )


def test_a_program_that_shows_warnings_in_its_own_way(tmp_path, monkeypatch):
    monkeypatch.setattr(warnings, "showwarning", boom)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with record("/dev/null", device=0):
            assert train() == WHOLE


@pytest.mark.parametrize(
    "error", [Exception(), OSError(), OSError(5, None), OSError(5, "I/O", "a\x1b[31m\nb"), Text]
)
def test_an_error_of_any_kind_is_described_in_one_line(error):
    raised = ValueError(Text("x")) if error is Text else error
    assert guard.describe(raised).isprintable()
    assert guard.describe(raised)


# Threads, and exceptions from outside.


def test_ops_of_many_threads_are_recorded_once(tmp_path, monkeypatch):
    """None is lost and none written twice, whichever thread writes."""
    monkeypatch.setattr(sys, "getswitchinterval", sys.getswitchinterval)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with warned() as said, record(tmp_path, device=0):

            def work(number: int) -> None:
                for microbatch in range(300):
                    with op("F", number, microbatch):
                        pass

            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert said == []
    rows = rows_of(recordings(tmp_path)[0])
    assert sorted((row["stage"], row["microbatch"]) for row in rows) == [
        (s, m) for s in range(6) for m in range(300)
    ]
    assert {row["iteration"] for row in rows} == {0}


def test_a_pair_is_not_torn_by_a_write(tmp_path):
    """The inner op ends first; both are written with the times of the two."""
    with record(tmp_path, device=0):
        for microbatch in range(3):
            with op("B", 1, microbatch), op("F", 0, microbatch):
                pass
    rows = rows_of(recordings(tmp_path)[0])
    assert all(
        a["start"] == b["start"] and a["end"] == b["end"]
        for a, b in zip(rows[::2], rows[1::2], strict=True)
    )


class Handler:
    """A handler of a signal that raises what a program's own time limit would."""

    def raise_it(self, number: int, frame: Any) -> None:
        raise TimeoutError("theirs")

    def __call__(self, number: int, frame: Any) -> None:
        self.raise_it(number, frame)


def raise_named(text: str, number: int, frame: Any) -> None:
    raise TimeoutError(text)


@pytest.mark.parametrize(
    "handler", [Handler().raise_it, Handler(), partial(raise_named, "theirs")], ids=range(3)
)
@pytest.mark.parametrize("within", ["mark", "write", "end"])
def test_a_time_limit_of_the_program_that_strikes_within_the_recorder_passes(
    handler, within, tmp_path, monkeypatch
):
    """A signal's handler raises an ordinary exception while the recorder is at work: it is the
    program's.
    """
    owner = streams.Wall if within == "mark" else writer.Writer
    name = {"mark": "mark", "write": "append", "end": "close"}[within]
    plain = getattr(owner, name)

    def struck(*given: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return plain(*given)

    before = signal.signal(signal.SIGUSR1, handler)
    monkeypatch.setattr(owner, name, struck)
    try:
        with pytest.raises(TimeoutError, match="theirs"), warned(), record(tmp_path, device=0):
            train()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert record.active is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("place", ["begin", "mark", "write", "end", "hook"])
def test_an_interrupt_within_the_recorder_passes_and_leaves_nothing(
    error, place, tmp_path, monkeypatch
):
    owner, name = {
        "begin": (ops_file, "_epoch"),
        "mark": (streams.Wall, "mark"),
        "write": (writer.Writer, "append"),
        "end": (writer.Writer, "close"),
        "hook": (record, "_hook"),
    }[place]

    def interrupt(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(owner, name, interrupt)
    with pytest.raises(error), record(tmp_path, device=0):
        train()
    assert record.active is None


def test_one_recorder_records_twice(tmp_path):
    """The second time into a file of its own."""
    recording = record(tmp_path, device=0)
    with warned() as said:
        for _ in range(2):
            with recording:
                train()
    assert said == []
    assert [len(rows_of(path)) for path in recordings(tmp_path)] == [len(WHOLE)] * 2


def test_an_op_that_is_left_without_being_entered(tmp_path):
    with warned() as said, record(tmp_path, device=0):
        op("F", 0, 0).__exit__(None, None, None)
        train()
    assert said == []
    assert len(rows_of(recordings(tmp_path)[0])) == len(WHOLE)


def test_no_thread_to_be_had(tmp_path, monkeypatch):
    """The ops are written when the recording ends."""

    def refuse(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with warned() as said, record(tmp_path, device=0):
        assert train() == WHOLE
    assert said == []
    assert len(rows_of(recordings(tmp_path)[0])) == len(WHOLE)


def test_microbatches_that_never_come_again_fill_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(ops_file, "MOST_OPS", 50)
    with warned() as said, record(tmp_path, device=0) as recording:
        for microbatch in range(200):
            with op("F", 0, microbatch):
                pass
        assert len(recording.file._seen) <= 51
        assert recording.rows == []
    assert ["count from 0 in each step" in text for text in said] == [True]


def test_a_step_that_never_ends_is_written(tmp_path, monkeypatch):
    """Hooks write at the end of a step; one with many ops is written before."""
    monkeypatch.setattr(notes, "MANY_ROWS", 20)
    with record(tmp_path, device=0) as recording:
        for number in range(200):
            recording.note("F", 0, number, recording.mark(), recording.mark())
            assert len(recording.rows) <= 21


class Gpu(streams.Events):
    """A GPU that is behind its host: of n marks it has reached the first half, and times no
    other.
    """

    made = 0

    def sync(self) -> None:
        pass

    def mark(self) -> int:
        self.made += 1
        return self.made

    def is_reached(self, mark: int) -> bool:
        return 2 * mark <= self.made or self.made == self.last

    last = -1

    def ns(self, mark: int) -> int:
        if not self.is_reached(mark):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return mark * 1_000_000

    def rebase(self, mark: int) -> None:
        pass


@pytest.fixture
def gpu(monkeypatch):
    clock = Gpu()
    cuda = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)
    cuda.is_current_stream_capturing = lambda: False
    monkeypatch.setitem(
        sys.modules, "torch", stub("torch", cuda=cuda, distributed=no_cuda(), __version__="9")
    )
    monkeypatch.setattr(notes, "clock", lambda name: clock)
    return clock


def test_a_gpu_that_is_behind_is_recorded_as_it_goes(gpu, tmp_path):
    """Only what it has reached is timed; the rest follows."""
    with warned() as said, record(tmp_path, device=0) as recording:
        train(20)
        settled(recording)
        assert len(rows_of(recordings(tmp_path)[0])) > 10
        gpu.last = gpu.made
    assert said == []
    assert len(rows_of(recordings(tmp_path)[0])) == 40


def test_ops_of_a_gpu_without_a_pause_between_them_are_written_as_it_goes(gpu, tmp_path):
    """One that begins at the end of the one before does not overlap it."""
    with record(tmp_path, device=0) as recording:
        moment = recording.mark()
        for microbatch in range(40):
            before, moment = moment, recording.mark()
            recording.note("F", 0, microbatch, before, moment)
        recording.write_due()
        settled(recording)
        assert len(rows_of(recordings(tmp_path)[0])) > 10
        gpu.last = gpu.made
    assert len(rows_of(recordings(tmp_path)[0])) == 40


def test_nothing_is_asked_of_a_gpu_while_a_graph_is_captured(gpu, tmp_path, monkeypatch):
    """A question would end the capture; ops within it are not noted."""
    capturing = False
    sys.modules["torch"].cuda.is_current_stream_capturing = lambda: capturing
    asked = []
    for name in ("sync", "mark", "is_reached", "ns", "rebase"):
        plain = getattr(Gpu, name)

        def noted(*given: Any, plain: Any = plain, name: str = name) -> Any:
            asked.append((name, capturing))
            return plain(*given)

        monkeypatch.setattr(Gpu, name, noted)
    with warned() as said, record(tmp_path, device=0):
        capturing = True
        train()
        capturing = False
        train()
        capturing = True
        train()
        capturing = False
        gpu.last = gpu.made
    assert said == []
    assert not any(captured for _, captured in asked)
    assert len(rows_of(recordings(tmp_path)[0])) == len(WHOLE)


def test_a_recording_that_ends_while_a_graph_is_captured_asks_nothing(gpu, tmp_path, monkeypatch):
    capturing = False
    sys.modules["torch"].cuda.is_current_stream_capturing = lambda: capturing
    monkeypatch.setattr(notes, "EVERY_S", 100.0)
    with warned() as said, record(tmp_path, device=0):
        train()
        capturing = True
        monkeypatch.setattr(Gpu, "is_reached", boom)
    assert ["while a CUDA graph was captured" in text for text in said] == [True]


# Processes: what no fake can show.

LOOP = """
import atexit, os, resource, signal, subprocess, sys, threading, time, warnings
from ppsim.real.recorder import notes
from ppsim.record import op, record
notes.EVERY_S = -1.0
def train(count=40):
    for microbatch in range(count):
        with op("F", 0, microbatch):
            pass
        time.sleep(0.001)
def written():
    for thread in threading.enumerate():
        if thread.name == "ppsim.record":
            thread.join()
def limit(name, value):
    resource.setrlimit(getattr(resource, name), (value, value))
folder = sys.argv[1]
"""
RECORD = "with record(folder, device=0):\n    train()\n"
# What a process does, how many warnings it prints, and how many rows it leaves (None: any number).
PROCESSES = {
    "a limit of files' sizes whose signal kills": (
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nlimit('RLIMIT_FSIZE', 2000)\n" + RECORD,
        1,
        None,
    ),
    "a limit of files' sizes whose signal has a handler": (
        "signal.signal(signal.SIGXFSZ, lambda *_: os._exit(9))\nlimit('RLIMIT_FSIZE', 2000)\n"
        + RECORD,
        1,
        None,
    ),
    "a limit of no bytes": ("limit('RLIMIT_FSIZE', 0)\n" + RECORD, 1, 0),
    "a limit within the header": ("limit('RLIMIT_FSIZE', 50)\n" + RECORD, 1, 0),
    "no descriptors left": (
        "with record(folder, device=0):\n    limit('RLIMIT_NOFILE', 3)\n    train()\n",
        1,
        0,
    ),
    "all descriptors closed": (
        "with record(folder, device=0):\n    train(20)\n    written()\n"
        "    os.closerange(3, 1000)\n    train(20)\n",
        0,
        40,
    ),
    "standard streams closed": ("os.closerange(0, 3)\n" + RECORD + "os._exit(0)\n", 0, 40),
    "standard error closed, and a fault": ("os.close(2)\nfolder = '/dev/null'\n" + RECORD, 0, 0),
    "warnings as errors, and a fault": (
        "warnings.simplefilter('error')\nfolder = '/dev/null'\n" + RECORD,
        1,
        0,
    ),
    "a recording that nobody ends": (
        "r = record(folder, device=0)\nr.__enter__()\ntrain()\n",
        0,
        None,
    ),
    "a recording ended as Python ends": (
        "r = record(folder, device=0)\nr.__enter__()\natexit.register(r.__exit__, None, None, "
        "None)\ntrain()\n",
        0,
        40,
    ),
    "a recording in a generator that is never closed": (
        "def steps():\n    with record(folder, device=0):\n        yield train()\ng = "
        "steps()\nnext(g)\n",
        0,
        None,
    ),
    "an exit within": ("with record(folder, device=0):\n    train()\n    sys.exit(0)\n", 0, 40),
    "a sudden exit within": (
        "with record(folder, device=0):\n    train()\n    os._exit(0)\n",
        0,
        None,
    ),
    "forks that mark ops": (
        "with record(folder, device=0):\n    train(20)\n    child = os.fork()\n    train(20)\n"
        "    if not child: sys.exit(0)\n    os.waitpid(child, 0)\n",
        0,
        40,
    ),
    "a fork that records itself": (
        "with record(folder, device=0):\n    child = os.fork()\n    if not child:\n"
        "        with record(folder + '/child', device=0): train()\n        os._exit(0)\n"
        "    os.waitpid(child, 0)\n    train()\n",
        0,
        80,
    ),
    "a fork in a recording that its parent ends first": (
        "with record(folder, device=0):\n    train()\n    child = os.fork()\n    if not child:\n"
        "        time.sleep(0.05)\n        sys.exit(0)\nos.waitpid(child, 0)\n",
        0,
        40,
    ),
    "a thread that trains": (
        "with record(folder, device=0):\n    t = threading.Thread(target=train)\n    t.start()\n   "
        " t.join()\n",
        0,
        40,
    ),
    "a signal that ends the program": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nwith record(folder, device=0):\n   "
        " train()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(30)\n",
        0,
        40,
    ),
    "deep recursion": (
        "sys.setrecursionlimit(150)\ndef deep(n):\n    try:\n        with op('F', 0, 0):\n         "
        "   deep(n + 1)\n"
        "    except RecursionError:\n        pass\nwith record(folder, device=0):\n    deep(0)\n",
        None,
        None,
    ),
    "a full disk": ("with record('/tmp/ppsim-full', device=0):\n    train(200)\n", 1, None),
    "a disk that fills": (
        "with record('/tmp/ppsim-full', device=0):\n    train(10)\n"
        "    try:\n        open('/tmp/ppsim-full/x', 'w').write('x' * 100000)\n    except "
        "OSError:\n        pass\n"
        "    train(2000)\n",
        1,
        None,
    ),
    "a disk that is taken away": (
        "with record('/tmp/ppsim-full', device=0):\n    train(10)\n"
        "    subprocess.run(['umount', '-l', '/tmp/ppsim-full'], check=True)\n    train(10)\n",
        1,
        None,
    ),
    "a disk that turns read-only": (
        "with record('/tmp/ppsim-full', device=0):\n    train(10)\n    time.sleep(0.05)\n"
        "    subprocess.run(['mount', '-o', 'remount,ro', '/tmp/ppsim-full'], check=True)\n    "
        "train(10)\n",
        1,
        None,
    ),
}
SILENT = {
    "standard streams closed",
    "an exit within",
    "a sudden exit within",
    "a signal that ends the program",
}
MOUNT = "mkdir -p /tmp/ppsim-full && mount -t tmpfs -o size=16k none /tmp/ppsim-full && "


def may_mount() -> bool:
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", MOUNT + "true"], capture_output=True, check=False
    )
    return tried.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_goes_on(name, tmp_path):
    script, warned, rows = PROCESSES[name]
    words = [sys.executable, "-c", f"{LOOP}{script}print('trained')", str(tmp_path)]
    if "ppsim-full" in script:
        if not may_mount():
            pytest.skip("mounts nothing")
        words = ["unshare", "-m", "sh", "-c", f'{MOUNT}exec "$@"', "sh", *words]
    ran = subprocess.run(words, env=SOURCE, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "" if name in SILENT else "trained\n"
    assert "Traceback" not in ran.stderr
    if warned is not None:
        assert ran.stderr.count("ppsim.record") == warned, ran.stderr
    if rows is not None:
        assert sum(len(rows_of(path)) for path in recordings(tmp_path)) == rows
    for path in recordings(tmp_path):
        rows_of(path)


# A mixture of two processes is refused, and the message says so.


def test_a_file_of_two_processes_is_refused(tmp_path):
    for _ in range(2):
        with record(tmp_path / "run", device=0):
            train()
    first, second = recordings(tmp_path)
    mixed = tmp_path / f"mixed{SUFFIX}"
    mixed.write_text(second.read_text() + first.read_text())
    with pytest.raises(InputError, match="line 8 begins another recording") as caught:
        ppsim.read(str(mixed))
    assert "each process" in caught.value.hint


def test_two_recordings_of_one_device_are_refused_by_name(tmp_path):
    for _ in range(2):
        with record(tmp_path, device=0):
            train()
    with pytest.raises(InputError, match="both record device 0") as caught:
        ppsim.read(str(tmp_path))
    assert "device=" in caught.value.hint


def test_lines_of_two_processes_woven_into_one_file_are_refused(tmp_path):
    """As two processes leave it that write at one place: the rows of both, in one file, under one
    header.
    """
    for _ in range(2):
        with record(tmp_path / "run", device=0):
            train()
    lines = [path.read_text().splitlines(keepends=True) for path in recordings(tmp_path)]
    order = [0] * len(WHOLE) + [1] * len(WHOLE)
    random.Random(1).shuffle(order)
    rows = [iter(each[1:]) for each in lines]
    mixed = tmp_path / f"mixed{SUFFIX}"
    mixed.write_text(lines[0][0] + "".join(next(rows[which]) for which in order))
    with pytest.raises(InputError, match="two rows for 0F0"):
        ppsim.read(str(mixed))
