"""The live page answers fields with reports, refuses what it must, and outlives whatever it is
asked.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import resource
import threading
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from ppsim.ask.options import list_options
from ppsim.base.deadline import check_time
from ppsim.cli import group
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError, PpsimError
from ppsim.questions.across.explain import explain
from ppsim.questions.across.view import (
    MOST_CELLS,
    MOST_SCHEDULES,
    ViewRequest,
    explain_first,
    plan_request,
    view,
)
from ppsim.questions.across.view_model import Planner
from ppsim.questions.timelines.memory import memory
from ppsim.schedules import generate
from ppsim.show.server.app import LARGEST_ASKED, LARGEST_DROP, MOST_DROPS, make_app
from ppsim.show.server.page import live_page
from ppsim.workload.cost.costs import stage_costs
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import Parallel
from tests.bombs import ops
from tests.clock import HANG_S
from tests.parquet_files import GZIP, parquet, text

HOST = "127.0.0.1:8765"


@pytest.fixture
def app(tmp_path):
    return make_app(b"<page>", view, tmp_path, frozenset({HOST}), explain=explain_first)


def asked(names: str, **values: object) -> dict[str, object]:
    """The fields of a request, with names of schedules between blanks."""
    return {"names": names.split(), **values}


def ask(*arguments, **named):
    """One request from beginning to end, see :func:`exchange`."""
    return asyncio.run(exchange(*arguments, **named))


async def exchange(
    app,
    path: str,
    method: str = "",
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    fields: object = None,
    **query: str,
):
    """One request: the status, the body, and the headers of the answer; ``fields`` are sent as
    JSON.
    """
    method = method or ("GET" if fields is None else "POST")
    body = body or (b"" if fields is None else json.dumps(fields).encode())
    given = {"host": HOST, **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(query).encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8765),
    }
    said = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        said.append(message)

    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in said[1:])
    return (
        said[0]["status"],
        content,
        {name.decode(): value.decode() for name, value in said[0]["headers"]},
    )


def test_a_drop_that_does_not_come_whole_leaves_no_file_and_no_traceback(app, tmp_path):
    said = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        said.append(message)

    query = {"query_string": b"name=a.csv", "headers": [(b"host", HOST.encode())]}
    scope = {"type": "http", "method": "POST", "path": "/drop", "root_path": "", **query}
    asyncio.run(app(scope, receive, send))
    assert (said[0]["status"], list(tmp_path.iterdir())) == (400, [])


def refusal(app, fields: object) -> str:
    status, body, _ = ask(app, "/view", fields=fields)
    assert status == 422, body
    return json.loads(body)["error"]


def test_fields_are_answered_with_their_report(app):
    status, body, _ = ask(
        app, "/view", fields=asked("1f1b zb-1p", devices=4, mb=8, comm=0.5, p2p="overlap")
    )
    report = json.loads(body)
    assert status == 200
    assert [timeline["title"] for timeline in report["timelines"]] == ["1F1B", "ZB-1P"]
    assert (
        report["inputs"]["command"]
        == "ppsim compare 1f1b zb-1p --devices 4 --mb 8 --comm 0.5 --p2p overlap"
    )
    assert all(timeline["waits"] for timeline in report["timelines"])
    single = json.loads(ask(app, "/view", fields=asked("gpipe", devices=2, mb=3))[1])
    assert single["inputs"]["command"] == "ppsim run gpipe --devices 2 --mb 3"
    assert single["timelines"][0]["makespan"] == 12


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("1f1b --devices 4 --mb 8", {"devices": 4, "mb": 8}),
        ("interleaved:2 --devices 2 --mb 4 --comm 0.25", {"devices": 2, "mb": 4, "comm": 0.25}),
        (
            "zb-1p --devices 2 --mb 4 --comm 0.25 --p2p overlap",
            {"devices": 2, "mb": 4, "comm": 0.25, "p2p": "overlap"},
        ),
        ("decode --devices 4 --mb 4 --steps 4", {"devices": 4, "mb": 4, "steps": 4}),
        ("1f1b zb-1p interleaved:2 --devices 4 --mb 8", {"devices": 4, "mb": 8}),
        ("dualpipe 1f1b --devices 2 --mb 3", {"devices": 2, "mb": 3}),
    ],
)
def test_the_verdict_is_that_of_the_command(app, words, fields):
    names = words.partition(" --")[0]
    report = json.loads(ask(app, "/view", fields=asked(names, **fields))[1])
    command = "compare" if " " in names else "run"
    ran = CliRunner().invoke(group, [command, *words.split(), "--json"])
    assert ran.exit_code == 0, ran.output
    assert report["verdict"] == json.loads(ran.stdout)["verdict"]


def test_a_gain_of_a_model_that_nothing_checks_is_said_to_be_unchecked(app):
    """As ``compare`` says it; costs given as numbers are exact."""
    shape, machine = {"devices": 4, "mb": 8}, {"model": "llama3-8b", "cluster": "dgx-h100"}
    for names, more, is_said in (
        ("1f1b seq1f1b", machine, True),
        ("1f1b zb-1p seq1f1b", machine, False),
        ("1f1b seq1f1b", {}, False),
        ("seq1f1b", machine, False),
    ):
        fields = asked(names, **shape, **more)
        verdict = json.loads(ask(app, "/view", fields=fields)[1])["verdict"]
        assert verdict.endswith("; this gain is predicted and unchecked") == is_said, verdict


def test_the_reasons_are_those_of_explain(app):
    """Of the first schedule that takes the shape."""
    fields = asked("dualpipe 1f1b:1 zb-1p", devices=2, mb=3, tf=2, slices=1)
    story = json.loads(ask(app, "/why", fields=fields)[1])
    found = explain("1f1b", devices=2, mb=3, tf=2)
    assert story["lead"] == found.advice
    assert story["bars"][-1]["to"] == found.explanation.timeline.makespan
    assert len(story["ghosts"]) == len(story["changes"]) > 2
    assert ask(app, "/why", fields=asked("dualpipe", devices=2, mb=3))[0] == 422


def test_reasons_of_a_dropped_run_are_of_its_own_times(app):
    run = ask(app, "/export", fields=asked("1f1b", devices=2, mb=4, tf=3, unit="ms"), form=".json")[
        1
    ]
    assert ask(app, "/drop", "POST", run, name="run.json")[0] == 200
    story = json.loads(ask(app, "/why", fields=asked("dropped:run.json gpipe", devices=2, mb=4))[1])
    assert story["bars"][-1]["to"] == json.loads(run)["makespan"]
    status, body, _ = ask(app, "/why", fields=asked("gpipe dropped:run.json", devices=2, mb=4))
    assert (status, "dropped file" in json.loads(body)["error"]) == (422, True)


def test_work_ends_when_who_asked_for_it_leaves(tmp_path):
    """Where it looks at the time, as searches do."""
    begun, ended = threading.Event(), threading.Event()

    def search(fields, folder):
        begun.set()
        try:
            while True:
                check_time()
        finally:
            ended.set()

    app = make_app(b"", search, tmp_path, frozenset({HOST}))
    sent: list[object] = []

    async def receive():
        if not sent:
            sent.append(0)
            return {"type": "http.request", "body": b"{}", "more_body": False}
        while not begun.is_set():
            await asyncio.sleep(0.001)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = {"method": "POST", "query_string": b"", "headers": [(b"host", HOST.encode())]}
    asyncio.run(app({"type": "http", "path": "/view", "root_path": "", **headers}, receive, send))
    assert begun.is_set()
    assert ended.is_set()


def test_the_bound_is_shown_and_changes_with_the_costs(app):
    """In numbers of each schedule and as a column of the page."""
    for forward, bounds in (("1", ["15 t_F", "13 t_F"]), ("2", ["20 t_F", "18 t_F"])):
        report = json.loads(
            ask(app, "/view", fields=asked("1f1b zb-h2", devices=2, mb=4, tf=forward))[1]
        )
        assert [timeline["numbers"]["bound"]["text"] for timeline in report["timelines"]] == bounds
        assert {"cards", "page"} <= set(
            next(c["places"] for c in report["columns"] if c["key"] == "bound")
        )


def test_dropped_ops_are_bounded_like_others(app, tmp_path, monkeypatch):
    monkeypatch.setattr("ppsim.show.server.app.LARGEST_READ", 1 << 20)
    monkeypatch.setattr("ppsim.questions.across.view.MOST_CELLS", 4000)
    rows = ",".join(f"0F{i},0B{i}" for i in range(4001))
    status, body, _ = ask(app, "/drop", "POST", rows.encode(), name="long.csv")
    assert status == 422
    assert "too much work" in json.loads(body)["error"]
    table = b"kind,start,end,microbatch,device\n" + b"F,0,1,0,0\n" * 20_000
    status, body, _ = ask(app, "/drop", "POST", table, name="long.csv")
    assert status == 422
    assert json.loads(body)["error"] == "'long.csv', in memory, is larger than 2 MiB"
    for bomb in (gzip.compress(bytes((1 << 20) + 1)), gzip.compress(bytes(1 << 20)) * 2):
        status, body, _ = ask(app, "/drop", "POST", bomb, name="x.trace.json.gz")
        assert status == 422
        assert json.loads(body)["error"] == "'x.trace.json.gz', decompressed, is larger than 1 MiB"
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_dropped_is_a_schedule(app, tmp_path):
    queues = b"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert ask(app, "/drop", "POST", queues, name="mine.csv")[:2] == (
        200,
        b'{"name":"mine.csv","devices":2,"mb":2}',
    )
    report = json.loads(
        ask(app, "/view", fields=asked("dropped:mine.csv 1f1b", devices=2, mb=2))[1]
    )
    assert len(report["timelines"]) == 2
    assert report["inputs"]["command"] == "ppsim compare mine.csv 1f1b --devices 2 --mb 2"
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.csv"]


def test_a_dropped_run_is_shown_with_its_own_times(app):
    """What is beside it takes their medians; where the fields have costs, all are simulated. The
    titles say so.
    """
    run = ask(
        app,
        "/export",
        fields=asked("zb-1p", devices=2, mb=4, tf=2, comm=0.5, unit="ms"),
        form=".json",
    )[1]
    assert ask(app, "/drop", "POST", run, name="run.json")[0] == 200

    def shown(names: str, **values):
        report = json.loads(ask(app, "/view", fields=asked(names, devices=2, mb=4, **values))[1])
        rows = [(each["title"], each["makespan"]) for each in report["timelines"]]
        return rows, report["unit"], report["inputs"].get("command")

    own = ("ZB-1P (times of run.json)", json.loads(run)["makespan"])
    borrowed = "ZB-1P (median times of run.json)"
    assert shown("dropped:run.json") == ([own], "ms", "ppsim explain run.json")
    assert shown("zb-1p dropped:run.json") == (
        [(borrowed, own[1]), own],
        "ms",
        "ppsim diff zb-1p run.json",
    )
    assert shown("zb-1p 1f1b dropped:run.json")[2] is None
    rows, unit, command = shown("dropped:run.json", tf=1)
    assert (rows, unit) == ([("ZB-1P (order of run.json)", 13)], "t_F")
    assert command == "ppsim run run.json --devices 2 --mb 4 --tf 1.0"
    assert (
        refusal(app, asked("dropped:run.json", devices=3, mb=4)) == "run.json has 2 devices, not 3"
    )


def test_every_format_can_be_downloaded(app):
    for suffix, begins in (
        (".csv", b"0F0,"),
        (".json", b'{"schema"'),
        (".html", b"<!doctype html"),
        (".mmd", b"---"),
    ):
        status, body, headers = ask(
            app, "/export", fields=asked("1f1b", devices=2, mb=2), form=suffix
        )
        assert (status, headers["content-disposition"]) == (
            200,
            f'attachment; filename="ppsim{suffix}"',
        )
        assert body.startswith(begins)
    assert ask(app, "/export", fields=asked("1f1b", devices=2, mb=2), form=".exe")[0] == 422


SMALL = {"devices": 4, "mb": 8}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (asked(""), "no schedule is named"),
        (asked("1f1b"), "number of"),
        (asked("1f1b", **SMALL, tf=-1), "-1"),
        (asked("1f1b", **SMALL, help=True), "there is no option 'help'"),
        (asked("zb-auto", **SMALL, limit="9" * 400), "limit"),
        (asked("1f1b", **SMALL, output="x.html"), "there is no option 'output'"),
        (asked("1f1b", devices=4, mb=MOST_CELLS), "too much work"),
        (asked("1f1b", devices=16384, mb=4), "16,384 stages are too much work"),
        (asked("interleaved:64", devices=64, mb=256), "too much work"),
        (asked("seq1f1b", devices=64, mb=256, slices=64), "too much work"),
        (
            asked("zb-auto", devices=32, mb=256),
            "zb-auto: 8,192 stages x microbatches are too much work",
        ),
        (asked("1f1b " * (MOST_SCHEDULES + 1), **SMALL), "too many"),
        (asked("1f1b", **SMALL, profile="gallery/profile-cpu.toml"), "a page may not set"),
        (asked("1f1b", **SMALL, cluster="gallery/cluster.toml"), "which may be a file"),
        (asked("1f1b", **SMALL, costs="x"), "a page may not set"),
        (asked("1f1b", **SMALL, model="model.toml", cluster="dgx-h100"), "which may be a file"),
        (asked("1f1b", **SMALL, model="config.json", cluster="dgx-h100"), "which may be a file"),
        (asked("1f1b", **SMALL, model="llama3-8b", cluster="../c.toml"), "which may be a file"),
        (asked("1f1b", **SMALL, model="llama3-8b"), "need a cluster"),
        (asked("1f1b", **SMALL, tp=2), "--tp need a model"),
        (asked("1f1b", **SMALL, ep=2, dp=2), "--ep, --dp need a model"),
        (
            asked("1f1b", **SMALL, model="llama3-8b", cluster="dgx-h100", tf=2),
            "no effect with a model",
        ),
        (
            asked("1f1b", devices=64, mb=8, model="llama3-8b", cluster="dgx-h100"),
            "32 layers for 64 stages",
        ),
        (asked("tests/data/mine.csv", **SMALL), "which may be a file"),
        (asked("/etc/passwd", **SMALL), "which may be a file"),
        ({**SMALL, "schedule": "/etc/passwd"}, "which may be a file"),
        (asked("dropped:../app.py", **SMALL), "was dropped"),
        (asked("dropped:none.csv", **SMALL), "was dropped"),
        (asked("1f1b", **SMALL, mb_scale="dropped:none.csv"), "which may be a file"),
        (asked("1f1b", **SMALL, tf={"a": 1}), "tf: not a text, number"),
        (asked("1f1b", **SMALL, tf=[1, None]), "tf: not a text, number"),
        (asked("1f1b", **SMALL, link=[["0-1=2"]]), "link: not a text, number"),
        (asked("1f1b", devices=True, mb=8), "not a whole number"),
        (asked("1f1b", **SMALL, recompute="some"), "not a rule of recompute"),
        ([], "not a JSON object"),
        ("1f1b", "not a JSON object"),
        (float("nan"), "not a JSON object"),
    ],
)
def test_fields_are_refused_with_the_reason(app, fields, why):
    assert why in refusal(app, fields)


def test_a_model_on_a_cluster_gives_the_times_of_each_schedule(app):
    """Those of the stages that plan simulates, in ms; reasons are of the same run."""
    shape = {"devices": 2, "mb": 4, "tp": 2, "mbs": 4}
    fields = asked("1f1b interleaved:2", **shape, model="llama3-8b", cluster="dgx-h100")
    report = json.loads(ask(app, "/view", fields=fields)[1])
    model, machine = read_model("llama3-8b"), read_machine("dgx-h100")
    for timeline, (name, chunks) in zip(
        report["timelines"], (("1f1b", 1), ("interleaved", 2)), strict=True
    ):
        parallel = Parallel(tp=2, mbs=4, pp=2, vp=chunks, microbatches=4)
        costs = stage_costs(model, machine, parallel).costs
        schedule = generate(name, devices=2, chunks=chunks, microbatches=4)
        assert timeline["makespan"] == simulate(schedule, costs).makespan
    assert (report["unit"], report["inputs"]["cluster"]) == ("ms", "dgx-h100")
    assert "command" not in report["inputs"]
    story = json.loads(ask(app, "/why", fields=fields)[1])
    assert story["bars"][-1]["to"] == report["timelines"][0]["makespan"]
    assert "price" not in story["lead"]


@pytest.mark.parametrize("more", [{"tp": 2}, {"ep": 4, "dp": 4, "mbs": 2}])
def test_a_model_fills_the_devices_as_memory_says(app, more):
    """In GiB, under the memory of the cluster's GPU; sizes that do not divide are said."""
    fields = asked("1f1b zb-1p:1", **SMALL, model="mixtral-8x7b", cluster="dgx-h100", **more)
    report = json.loads(ask(app, "/view", fields=fields)[1])
    for timeline, name in zip(report["timelines"], ("1f1b", "zb-1p"), strict=True):
        peaks = memory(name, devices=4, microbatches=8, model="mixtral-8x7b", **more).peak
        curve = timeline["curves"][0]
        assert (curve["name"], curve["unit"]) == ("memory", "GiB")
        assert [round(peak * 2**30) for peak in curve["peak"]] == peaks
    assert report["cap"]["text"] == "cap 80 GiB"
    assert report["cap"]["over"][0] == [
        d for d, peak in enumerate(report["timelines"][0]["curves"][0]["peak"]) if peak > 80
    ]
    assert "--ep must divide dp x cp x tp = 4, got 3" in refusal(
        app, fields | {"dp": 4, "tp": 1, "ep": 3}
    )


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"model": "llama3-8b", "cluster": "dgx-h100", "gpus": "8"}, "a plan needs gbs"),
        (
            {"model": "x.toml", "cluster": "dgx-h100", "gpus": "8", "gbs": "8"},
            "which may be a file",
        ),
        (
            {"model": "llama3-8b", "cluster": "/etc/passwd", "gpus": "8", "gbs": "8"},
            "which may be a file",
        ),
        ({"model": "llama3-8b", "cluster": "dgx-h100", "gpus": "1e9", "gbs": "8"}, "gpus"),
        (
            {"model": "llama3-8b", "cluster": "dgx-h100", "gpus": "8", "gbs": "8", "output": "x"},
            "no option 'output'",
        ),
    ],
)
def test_a_page_of_plans_takes_names_and_numbers_only(tmp_path, query, why):
    def plan(fields):
        return Planner().page(plan_request(fields))

    status, body, _ = ask(
        make_app(b"", view, tmp_path, frozenset({HOST}), plan=plan), "/planned", **query
    )
    assert (status, why in json.loads(body)["error"]) == (422, True)


def test_values_may_be_texts_numbers_or_lists_of_them(app):
    """As many forms of the same give the same report."""
    forms: list[dict[str, object]] = [
        {"tf": "1,2", "mb": "8", "link": "0-1=2"},
        {"tf": [1, 2], "mb": 8, "link": ["0-1=2"]},
    ]
    forms.append({"tf": ["1", 2], "microbatches": 8, "link": "0-1=2", "comm": None})
    reports = {ask(app, "/view", fields=asked("gpipe", devices=2, **form))[1] for form in forms}
    assert len(reports) == 1
    assert json.loads(reports.pop())["timelines"][0]["makespan"] > 8


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 5000, b'{"names": "\\ud800"}', b"names=1f1b&devices=2"]
)
def test_what_is_no_json_is_refused(app, body):
    for path in ("/view", "/export?form=.json"):
        status, said, _ = ask(app, path.partition("?")[0], "POST", body, form=".json")
        assert (status, json.loads(said)["error"]) == (422, "the request is not a JSON object")


def test_a_request_is_bounded_in_size(app):
    for path in ("/view", "/export"):
        assert ask(app, path, "POST", b" " * (LARGEST_ASKED + 1), form=".json")[0] == 413


@pytest.mark.parametrize(
    "name", ["x.csv", "x.json", "x.trace.json", "x.trace.json.gz", "x.py", "x"]
)
@pytest.mark.parametrize(
    "content", [b"", b"<script>", bytes(range(256)) * 9, b"\x1f\x8b", b'{"a":1}']
)
def test_a_file_that_is_no_schedule_is_refused_and_not_kept(app, tmp_path, name, content):
    status, body, _ = ask(app, "/drop", "POST", content, name=name)
    assert status == 422
    assert json.loads(body)["error"]
    assert str(tmp_path) not in body.decode()
    assert not list(tmp_path.iterdir())


def test_a_message_names_a_dropped_file_without_its_folder(app, tmp_path):
    assert ask(app, "/drop", "POST", b"schema = 'no'", name="x.toml")[0] == 200
    assert refusal(app, asked("dropped:x.toml", devices=2, mb=2)).startswith("'x.toml', line 1")


@pytest.mark.sampled(15)
@pytest.mark.parametrize("declared", list_options(ViewRequest), ids=lambda declared: declared.name)
def test_no_value_of_a_field_reads_a_file_or_tells_whether_there_is_one(
    declared, tmp_path, monkeypatch
):
    """Every option by each of its names, with the path of a file and then of none."""
    monkeypatch.chdir(tmp_path)
    files = [tmp_path / name for name in ("a.csv", "b", "c.toml", "dropped:a.csv")]
    places = [
        f"{tmp_path}/a.csv",
        "a.csv",
        "b",
        "c.toml",
        "W=a.csv",
        "uniform:a.csv",
        "a.csv:2",
        "../b",
        "dropped:a.csv",
    ]
    values = [form for place in places for form in (place, [place], ["1f1b", place])]
    requests = [
        {"names": "1f1b", "devices": 2, "mb": 2} | {word: value}
        for word, value in product(declared.words, values)
    ]

    def said(fields) -> str:
        try:
            view(fields, tmp_path / "none")
        except PpsimError as error:
            return f"{error} {error.hint}"
        return "shown"

    for path in files:
        path.write_text("root:secret")
    with_files = [said(fields) for fields in requests]
    for path in files:
        path.unlink()
    assert with_files == [said(fields) for fields in requests]
    assert "secret" not in str(with_files)


def test_nothing_is_printed_for_a_client(app, capfd):
    """Neither help, nor what a dropped file states and a run does not use."""
    assert "--help" in refusal(app, asked("1f1b", **{"--help": True}))
    timed = ask(app, "/export", fields=asked("1f1b", devices=2, mb=2, p2p="overlap"), form=".json")[
        1
    ]
    assert ask(app, "/drop", "POST", timed, name="run.json")[0] == 200
    assert ask(app, "/view", fields=asked("dropped:run.json", tf=2))[0] == 200
    assert capfd.readouterr() == ("", "")


def test_who_is_gone_before_its_turn_costs_no_work(tmp_path):
    done, said = [], []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        said.append(message)

    def show(fields, folder):
        done.append(fields)
        return view(fields, folder)

    query = {"query_string": b"", "headers": [(b"host", HOST.encode())]}
    scope = {"type": "http", "method": "POST", "path": "/view", "root_path": "", **query}
    asyncio.run(make_app(b"", show, tmp_path, frozenset({HOST}))(scope, receive, send))
    assert not done


def test_a_request_that_takes_long_holds_no_other(tmp_path):
    """The first search ends only once a request that came after it has its answer."""
    answered = threading.Event()

    def show(fields, folder):
        if fields["names"] == ["v-auto"]:
            assert answered.wait(HANG_S)
        return view(fields | {"names": ["1f1b"]}, folder)

    app = make_app(b"", show, tmp_path, frozenset({HOST}))
    long, short = (asked(name, devices=2, mb=2) for name in ("v-auto", "1f1b"))

    async def both() -> list[int]:
        first = asyncio.create_task(exchange(app, "/view", fields=long))
        second = (await exchange(app, "/view", fields=short))[0]
        answered.set()
        return [second, (await first)[0]]

    assert asyncio.run(both()) == [200, 200]


def test_a_fault_of_ours_is_answered_in_words(tmp_path):
    def fail(fields, folder):
        raise ValueError("here")

    status, body, _ = ask(
        make_app(b"", fail, tmp_path, frozenset({HOST})), "/view", fields=asked("x")
    )
    assert (status, json.loads(body)["error"]) == (500, "internal error (a fault of ppsim)")


def test_a_broken_file_leaves_the_one_of_its_name_as_it_was(app, tmp_path):
    """Another tab, or the same one before, shows that one."""
    shown = asked("dropped:mine.csv")
    assert ask(app, "/drop", "POST", b"0F0,0B0\n", name="mine.csv")[0] == 200
    before = ask(app, "/view", fields=shown)[:2]
    assert ask(app, "/drop", "POST", b"nonsense", name="mine.csv")[0] == 422
    assert ask(app, "/view", fields=shown)[:2] == before
    assert [file.name for file in tmp_path.iterdir()] == ["mine.csv"]


def test_two_pages_that_drop_files_of_one_name_keep_theirs(app, tmp_path):
    """The second gets another name, unless it is the same file or the page replaces its own."""

    def dropped(content, **more):
        status, body, _ = ask(app, "/drop", "POST", content, name="mine.csv", **more)
        assert status == 200
        return json.loads(body)["name"]

    assert dropped(b"0F0,0B0\n") == "mine.csv"
    assert dropped(b"0F0,0F1,0B0,0B1\n") == "mine-2.csv"
    assert dropped(b"0F0,0B0\n") == "mine.csv"
    assert dropped(b"0F0,0F1,0B0,0B1\n") == "mine-2.csv"
    assert (tmp_path / "mine.csv").read_bytes() == b"0F0,0B0\n"
    assert dropped(b"0F0,0F1,0F2,0B0,0B1,0B2\n", replaces="true") == "mine.csv"
    shown = json.loads(ask(app, "/view", fields=asked("dropped:mine.csv dropped:mine-2.csv"))[1])
    assert [each["makespan"] for each in shown["timelines"]] == [9, 6]


def test_a_file_that_is_turned_away_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("ppsim.show.server.app.MOST_WAITING", 0)
    busy = make_app(b"", view, tmp_path, frozenset({HOST}))
    assert ask(busy, "/drop", "POST", b"0F0,0B0", name="a.csv")[0] == 503
    assert not list(tmp_path.iterdir())


def test_code_is_not_run(app, tmp_path):
    code = b"import os\nos.mkdir('made')\n"
    assert "is code" in json.loads(ask(app, "/drop", "POST", code, name="x.py")[1])["error"]
    (tmp_path / "x.py").write_bytes(code)
    assert "is code" in refusal(app, asked("dropped:x.py", devices=2, mb=2))


def test_dropped_files_are_bounded_in_size_name_and_number(app, tmp_path):
    assert ask(app, "/drop", "POST", b" " * (LARGEST_DROP + 1), name="x.csv")[0] == 413
    for name in ("", "../x.csv", "a/b", ".x", "é.csv", "x" * 101):
        assert ask(app, "/drop", "POST", b"", name=name)[0] == 422
    for number in range(MOST_DROPS):
        (tmp_path / f"{number}.csv").touch()
    assert ask(app, "/drop", "POST", b"", name="more.csv")[0] == 422
    assert not (tmp_path / "more.csv").exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "elsewhere.example"},
        {"host": "127.0.0.1:1"},
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"origin": f"https://{HOST}"},
        {"origin": f"file://{HOST}"},
        {"origin": HOST},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_other_names_and_other_sites_are_refused(app, headers):
    for path, method in (("/", "GET"), ("/view", "POST"), ("/export", "POST"), ("/drop", "POST")):
        assert (
            ask(
                app,
                path,
                method,
                headers=headers,
                fields=asked("1f1b", devices=2, mb=2),
                name="x.csv",
            )[0]
            == 403
        )


def test_a_server_of_every_address_is_asked_by_numbers(tmp_path):
    """Under any address in numbers, and under no name but its own."""
    app = make_app(b"<page>", view, tmp_path, frozenset({"here:8765"}), any_address=True)
    for host, status in (
        ("10.0.0.7:8765", 200),
        ("[fe80::1]:8765", 200),
        ("here:8765", 200),
        ("evil.example:8765", 403),
    ):
        assert ask(app, "/", headers={"host": host})[0] == status, host
    assert (
        ask(app, "/", headers={"host": "10.0.0.7:8765", "origin": "http://10.0.0.8:8765"})[0] == 403
    )
    assert (
        ask(app, "/", headers={"host": "10.0.0.7:8765", "origin": "http://10.0.0.7:8765"})[0] == 200
    )


def test_own_requests_are_answered_with_strict_headers(app):
    for headers in (
        {},
        {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ):
        status, body, answer = ask(app, "/", headers=headers)
        assert (status, body) == (200, b"<page>")
        assert "default-src 'none'" in answer["content-security-policy"]
        assert answer["cache-control"] == "no-store"
    assert ask(app, "/none")[0] == 404
    assert ask(app, "/view", "GET")[0] == 405


def test_the_page_asks_for_nothing_elsewhere():
    page = live_page(view(asked("1f1b", devices=2, mb=2), Path()), asked("1f1b"), ["1f1b"]).decode()
    assert "https://" not in page.replace("http://www.w3.org", "")
    assert 'id="controls"' in page


WORDS = [word for each in list_options(ViewRequest) for word in each.words] + [
    "devices",
    "mb",
    "names",
] * 9
TEXT = """1f1b zb-1p interleaved:3 overlap 4 8 -1 1e9 1,1,2,1 0-1=3 lognormal:1:1 nan
E|t*4|L ' " \x00 é dropped:x
dropped: 99999999999999999999 % &fields= __proto__ early /etc/passwd ../../etc/passwd
secret.toml ./secret.toml
dropped:../secret.toml llama3-8b llama3-8b dgx-h100 dgx-h100 dgx-h100.toml v-auto config.json"""
SECRET = "the words of a file that no page may read"
TEXTS = TEXT.split()
VALUES = [
    *TEXTS,
    2,
    4,
    0,
    -3,
    1e300,
    10**30,
    float("nan"),
    float("inf"),
    "9" * 4000,
    True,
    False,
    None,
    [],
    [1, 2],
    ["1f1b", "zb-1p"],
    [[1]],
    {},
    {"a": 1},
]


def fuzzed(count: int, app) -> None:
    """Ask random things; every answer is a page, a report or a refusal in words."""
    rng = random.Random(7)
    for _ in range(count):
        path = rng.choice(
            [
                "/view",
                "/view",
                "/view",
                "/view",
                "/why",
                "/why",
                "/plan",
                "/planned",
                "/export",
                "/drop",
                "/",
                "/x",
            ]
        )
        fields = asked("1f1b", devices=2, mb=4) if rng.random() < 0.5 else {}
        fields |= {
            rng.choice([*WORDS, *TEXTS]): rng.choice(VALUES) for _ in range(rng.randrange(6))
        }
        status, body, _ = ask(
            app,
            path,
            rng.choice(["GET", "POST", "POST", "POST", "PUT"]),
            rng.choice([b"", rng.randbytes(rng.randrange(60))]) if rng.random() < 0.2 else b"",
            fields=fields,
            name=rng.choice(TEXTS),
            form=rng.choice([".csv", ".json", ".mmd", "", "x"]),
            model=rng.choice(TEXTS),
            cluster=rng.choice(TEXTS),
            gpus=rng.choice(TEXTS),
        )
        assert SECRET.encode() not in body, (path, fields)
        assert b"Traceback" not in body, (path, fields)
        assert status in (200, 404, 405, 422), (path, fields, status, body[:300])
        if status == 422:
            assert json.loads(body)["error"]


@pytest.fixture
def whole_app(tmp_path, monkeypatch):
    """All that the command serves but for the search, beside a file that nothing may read."""
    (tmp_path / "drops").mkdir()
    (tmp_path / "secret.toml").write_text(SECRET)
    monkeypatch.chdir(tmp_path)

    def plan(fields):
        return str(plan_request(fields)).encode()

    return make_app(
        b"<page>", view, tmp_path / "drops", frozenset({HOST}), explain=explain_first, plan=plan
    )


def test_random_requests_get_an_answer_in_words(whole_app):
    fuzzed(150, whole_app)


@pytest.mark.slow
@pytest.mark.skipif("PPSIM_FUZZ" not in os.environ, reason="set PPSIM_FUZZ to a number of requests")
def test_many_random_requests_get_an_answer_in_words(whole_app):
    fuzzed(int(os.environ["PPSIM_FUZZ"]), whole_app)


def test_fields_need_the_folder_of_drops_only_for_drops(tmp_path):
    with pytest.raises(InputError, match="was dropped"):
        view(asked("dropped:x.csv", devices=2, mb=2), tmp_path / "none")


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.parquet", lambda: parquet(ops(1 << 28))),
        (
            "x.parquet",
            lambda: parquet(ops(60_000, kind=text("kind", 60_000, b"F" * 9_000_000, codec=GZIP))),
        ),
        ("x.parquet", lambda: parquet([*ops(), *ops()])),
        ("x.json.gz", lambda: gzip.compress(b'{"ops":{"start":[' + b"0," * 16_000_000 + b"0]}}")),
        ("x.csv", lambda: b"kind,start,end,microbatch,device\n" + b"F,0,1,0,0\n" * 400_000),
        ("x.csv", lambda: b"0F0," * 1_000_000 + b"0B0"),
        ("x.jsonl", lambda: b'{"kind":"F","start":0,"end":1}\n' + b"{}\n" * 1_000_000),
        ("x.trace.json", lambda: b'{"traceEvents":[' + b"{}," * 1_000_000 + b"{}]}"),
    ],
)
def test_what_is_dropped_takes_little_memory(name, content, app, tmp_path):
    """The page of other people goes on: 512 MiB beyond what the server has are never taken."""
    body = content()
    assert len(body) < LARGEST_DROP
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), before[1]))
    try:
        status, said, _ = ask(app, "/drop", "POST", body, name=name)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert status == 422
    assert json.loads(said)["hint"]
    assert not list(tmp_path.iterdir())
