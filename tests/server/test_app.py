"""The live page answers lines with reports, refuses what it must, and outlives whatever it is asked."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest

from ppsim.cli._live import MOST_CELLS, MOST_SCHEDULES, show_line
from ppsim.errors import InputError
from ppsim.server.app import LARGEST_DROP, LARGEST_UNPACKED, MOST_DROPS, make_app
from ppsim.server.page import live_page

HOST = "127.0.0.1:8765"


@pytest.fixture
def app(tmp_path):
    return make_app(b"<page>", show_line, tmp_path, frozenset({HOST}))


def ask(app, path: str, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None, **query: str):
    """One request: the status, the body, and the headers of the answer."""
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

    asyncio.run(app(scope, receive, send))
    content = b"".join(message.get("body", b"") for message in said[1:])
    return said[0]["status"], content, {name.decode(): value.decode() for name, value in said[0]["headers"]}


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


def refusal(app, line: str) -> str:
    status, body, _ = ask(app, "/view", line=line)
    assert status == 422, body
    return json.loads(body)["error"]


def test_a_line_is_answered_with_its_report(app):
    status, body, _ = ask(app, "/view", line="1f1b zb-1p --devices 4 --mb 8 --comm 0.5 --p2p overlap")
    report = json.loads(body)
    assert status == 200
    assert [timeline["title"] for timeline in report["timelines"]] == ["1F1B", "ZB-1P"]
    assert report["inputs"]["command"] == "ppsim compare 1f1b zb-1p --devices 4 --mb 8 --comm 0.5 --p2p overlap"
    assert all(timeline["waits"] for timeline in report["timelines"])
    single = json.loads(ask(app, "/view", line="gpipe --devices 2 --mb 3")[1])
    assert single["inputs"]["command"] == "ppsim run gpipe --devices 2 --mb 3"
    assert single["timelines"][0]["makespan"] == 12


def test_the_bound_is_shown_and_changes_with_the_costs(app):
    """In numbers of each schedule and as a column of the page."""
    for forward, bounds in (("1", ["15 t_F", "13 t_F"]), ("2", ["20 t_F", "18 t_F"])):
        report = json.loads(ask(app, "/view", line=f"1f1b zb-h2 --devices 2 --mb 4 --tf {forward}")[1])
        assert [timeline["numbers"]["bound"]["text"] for timeline in report["timelines"]] == bounds
        assert {"cards", "page"} <= set(next(c["places"] for c in report["columns"] if c["key"] == "bound"))


def test_dropped_ops_are_bounded_like_others(app, tmp_path):
    rows = ",".join(f"0F{i},0B{i}" for i in range(MOST_CELLS + 1))
    status, body, _ = ask(app, "/drop", "POST", rows.encode(), name="long.csv")
    assert status == 422
    assert "too much work" in json.loads(body)["error"]
    bomb = gzip.compress(bytes(LARGEST_UNPACKED + 1))
    assert ask(app, "/drop", "POST", bomb, name="x.trace.json.gz")[0] == 413
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_dropped_is_a_schedule(app, tmp_path):
    queues = b"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert ask(app, "/drop", "POST", queues, name="mine.csv")[:2] == (
        200,
        b'{"name":"mine.csv","--devices":2,"--mb":2}',
    )
    report = json.loads(ask(app, "/view", line="dropped:mine.csv 1f1b --devices 2 --mb 2")[1])
    assert len(report["timelines"]) == 2
    assert report["inputs"]["command"] == "ppsim compare mine.csv 1f1b --devices 2 --mb 2"
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.csv"]


def test_a_dropped_run_is_shown_with_its_own_times(app):
    """What is beside it takes their medians; where the line has costs, all are simulated. The titles say so."""
    run = ask(app, "/export", line="zb-1p --devices 2 --mb 4 --tf 2 --comm 0.5 --unit ms", form=".json")[1]
    assert ask(app, "/drop", "POST", run, name="run.json")[0] == 200

    def shown(line: str):
        report = json.loads(ask(app, "/view", line=line)[1])
        rows = [(each["title"], each["makespan"]) for each in report["timelines"]]
        return rows, report["unit"], report["inputs"].get("command")

    own = ("ZB-1P (times of run.json)", json.loads(run)["makespan"])
    same, borrowed = "dropped:run.json --devices 2 --mb 4", "ZB-1P (median times of run.json)"
    assert shown(same) == ([own], "ms", "ppsim explain run.json")
    assert shown(f"zb-1p {same}") == ([(borrowed, own[1]), own], "ms", "ppsim diff zb-1p run.json")
    assert shown(f"zb-1p 1f1b {same}")[2] is None
    rows, unit, command = shown(f"{same} --tf 1")
    assert (rows, unit) == ([("ZB-1P (order of run.json)", 13)], "t_F")
    assert command == "ppsim run run.json --devices 2 --mb 4 --tf 1.0"
    assert refusal(app, "dropped:run.json --devices 3 --mb 4") == "run.json has 2 devices, not 3"


def test_every_format_can_be_downloaded(app):
    for suffix, begins in ((".csv", b"0F0,"), (".json", b'{"schema"'), (".html", b"<!doctype html"), (".mmd", b"---")):
        status, body, headers = ask(app, "/export", line="1f1b --devices 2 --mb 2", form=suffix)
        assert (status, headers["content-disposition"]) == (200, f'attachment; filename="ppsim{suffix}"')
        assert body.startswith(begins)
    assert ask(app, "/export", line="1f1b --devices 2 --mb 2", form=".exe")[0] == 422


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "no schedule is named"),
        ("1f1b", "number of"),
        ("1f1b --devices 4 --mb 8 --tf -1", "-1"),
        ("1f1b 'unclosed --devices 4", "cannot be read"),
        ("1f1b --devices 4 --mb 8 --help", "--help"),
        ("1f1b --devices 4 --mb 8 -o x.html", "-o"),
        (f"1f1b --devices 4 --mb {MOST_CELLS}", "too much work"),
        ("interleaved:64 --devices 64 --mb 256", "too much work"),
        ("seq1f1b --devices 64 --mb 256 --slices 64", "too much work"),
        ("zb-auto --devices 32 --mb 256", "zb-auto: 8,192 stages x microbatches are too much work"),
        ("1f1b " * (MOST_SCHEDULES + 1) + "--devices 4 --mb 8", "too many"),
        ("1f1b " * 100, "words"),
        ("x" * 5_000, "letters"),
        ("1f1b --devices 4 --mb 8 --profile gallery/profile-cpu.toml", "reads no files"),
        ("1f1b --devices 4 --mb 8 --cluster gallery/cluster.toml", "reads no files"),
        ("tests/data/mine.csv --devices 4 --mb 8", "unknown schedule"),
        ("/etc/passwd --devices 4 --mb 8", "unknown schedule"),
        ("dropped:../app.py --devices 4 --mb 8", "was dropped"),
        ("dropped:none.csv --devices 4 --mb 8", "was dropped"),
    ],
)
def test_a_line_is_refused_with_the_reason(app, line, why):
    assert why in refusal(app, line)


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.trace.json", "x.trace.json.gz", "x.py", "x"])
@pytest.mark.parametrize("content", [b"", b"<script>", bytes(range(256)) * 9, b"\x1f\x8b", b'{"a":1}'])
def test_a_file_that_is_no_schedule_is_refused_and_not_kept(app, tmp_path, name, content):
    status, body, _ = ask(app, "/drop", "POST", content, name=name)
    assert status == 422
    assert json.loads(body)["error"]
    assert str(tmp_path) not in body.decode()
    assert not list(tmp_path.iterdir())


def test_a_message_names_a_dropped_file_without_its_folder(app, tmp_path):
    assert ask(app, "/drop", "POST", b"schema = 'no'", name="x.toml")[0] == 200
    assert refusal(app, "dropped:x.toml --devices 2 --mb 2").startswith("'x.toml', line 1")


def test_code_is_not_run(app, tmp_path):
    code = b"import os\nos.mkdir('made')\n"
    assert "is code" in json.loads(ask(app, "/drop", "POST", code, name="x.py")[1])["error"]
    (tmp_path / "x.py").write_bytes(code)
    assert "is code" in refusal(app, "dropped:x.py --devices 2 --mb 2")


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
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_other_names_and_other_sites_are_refused(app, headers):
    for path, method in (("/", "GET"), ("/view", "GET"), ("/drop", "POST")):
        assert ask(app, path, method, headers=headers, line="1f1b --devices 2 --mb 2", name="x.csv")[0] == 403


def test_a_server_of_every_address_is_asked_by_numbers(tmp_path):
    """Under any address in numbers, and under no name but its own."""
    app = make_app(b"<page>", show_line, tmp_path, frozenset({"here:8765"}), any_address=True)
    for host, status in (
        ("10.0.0.7:8765", 200),
        ("[fe80::1]:8765", 200),
        ("here:8765", 200),
        ("evil.example:8765", 403),
    ):
        assert ask(app, "/", headers={"host": host})[0] == status, host
    assert ask(app, "/", headers={"host": "10.0.0.7:8765", "origin": "http://10.0.0.8:8765"})[0] == 403
    assert ask(app, "/", headers={"host": "10.0.0.7:8765", "origin": "http://10.0.0.7:8765"})[0] == 200


def test_own_requests_are_answered_with_strict_headers(app):
    for headers in ({}, {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        status, body, answer = ask(app, "/", headers=headers)
        assert (status, body) == (200, b"<page>")
        assert "default-src 'none'" in answer["content-security-policy"]
        assert answer["cache-control"] == "no-store"
    assert ask(app, "/none")[0] == 404
    assert ask(app, "/view", "POST")[0] == 405


def test_the_page_asks_for_nothing_elsewhere():
    page = live_page(show_line("1f1b --devices 2 --mb 2", Path()), "1f1b --devices 2 --mb 2", ["1f1b"]).decode()
    assert "https://" not in page.replace("http://www.w3.org", "")
    assert 'id="controls"' in page


TEXT = """1f1b zb-1p interleaved:3 --devices --mb --tf --comm --p2p overlap 4 8 -1 1e9 --speed 1,1,2,1 --link 0-1=3
--mb-scale lognormal:1:1 nan --layout E|t*4|L ' " --group-size --recompute \x00 é dropped:x --chunks 0
99999999999999999999 % &line="""
WORDS = TEXT.split()


def fuzzed(count: int, app) -> None:
    """Ask random things; every answer is a page, a report or a refusal in words."""
    rng = random.Random(7)
    for _ in range(count):
        path = rng.choice(["/view", "/view", "/view", "/view", "/export", "/drop", "/", "/x"])
        line = " ".join(rng.choices(WORDS, k=rng.randrange(9)))
        status, body, _ = ask(
            app,
            path,
            rng.choice(["GET", "GET", "POST", "PUT"]),
            rng.randbytes(rng.randrange(60)),
            line=line,
            name=rng.choice(WORDS),
            form=rng.choice([".csv", ".json", ".mmd", "", "x"]),
        )
        assert status in (200, 404, 405, 422), (path, line, status, body[:300])
        if status == 422:
            assert json.loads(body)["error"]


def test_random_requests_get_an_answer_in_words(app):
    fuzzed(150, app)


@pytest.mark.slow
@pytest.mark.skipif("PPSIM_FUZZ" not in os.environ, reason="set PPSIM_FUZZ to a number of requests")
def test_many_random_requests_get_an_answer_in_words(app):
    fuzzed(int(os.environ["PPSIM_FUZZ"]), app)


def test_a_line_needs_the_folder_of_drops_only_for_drops(tmp_path):
    with pytest.raises(InputError, match="was dropped"):
        show_line("dropped:x.csv --devices 2 --mb 2", tmp_path / "none")
