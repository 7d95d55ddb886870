"""One sentence answers each question, and it comes first wherever an answer is shown."""

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ppsim.questions import list_questions
from tests.commands import invoke, refused
from tests.questions.examples import example_of

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
RECORD = str(DATA / "records" / "timed-p2.json.gz")
TRACES = [str(DATA / "traces" / f"gpipe-rank{rank}.json.gz") for rank in (0, 1)]
SHAPE = ("--devices", "3", "--mb", "6")
PAGE, WITHOUT = "page.html", ""

# Each question as it is typed, the file it is asked to write, and whether it has an object.
ASKED = {
    "run": (["run", "1f1b", *SHAPE, "--no-gantt"], PAGE),
    "run, rounds": (["run", "decode", *SHAPE, "--steps", "3"], PAGE),
    "run, replicas and cap": (["run", "1f1b", *SHAPE, "--replicas", "2", "--cap", "9"], PAGE),
    "run, grid": (["run", "1f1b", *SHAPE, "--grid"], "grid.json"),
    "compare": (["compare", "1f1b", "zb-1p", *SHAPE], PAGE),
    "compare, time against memory": (["compare", "1f1b", "zb-1p", *SHAPE, "--tradeoff"], PAGE),
    "sweep": (["sweep", "1f1b", "zb-1p", "--devices", "2,3", "--mb", "6"], PAGE),
    "jitter": (["jitter", "1f1b", "zb-1p", *SHAPE, "--samples", "20"], PAGE),
    "list": (["list"], WITHOUT),
    "list, one": (["list", "zb-1p"], WITHOUT),
    "list, library": (["list", "--models", "--gpus", "--links"], WITHOUT),
    "memory": (["memory", "1f1b", *SHAPE], PAGE),
    "memory, cap": (["memory", "1f1b", *SHAPE, "--cap", "3"], PAGE),
    "plan": (
        ["plan", "--model", "llama2-7b", "--cluster", "dgx-h100", "--gpus", "8", "--gbs", "8"],
        PAGE,
    ),
    "plan, published": (["plan", "--against", "rows.json"], PAGE),
    "model": (["model", "llama3-8b"], WITHOUT),
    "model, trained": (["model", "llama3-8b", "--tp", "8", "--cluster", "dgx-h100"], WITHOUT),
    "model, a GPU": (["model", "h100"], WITHOUT),
    "layout": (["layout", "Et*3|(tt|)*2tL"], WITHOUT),
    "calibrate": (["calibrate", "-o", "new.toml", "--from-trace", *TRACES], WITHOUT),
    "validate": (["validate", "--from-record", RECORD], PAGE),
    "read": (["read", "run.json"], WITHOUT),
    "read, an order": (["read", "order.csv"], WITHOUT),
    "optimize": (["optimize", "--devices", "2", "--mb", "3", "--time-limit", "20"], PAGE),
    "optimize, front": (["optimize", "--devices", "2", "--mb", "2", "--front"], PAGE),
    "partition": (["partition", "1f1b", *SHAPE, "--num-layers", "7"], WITHOUT),
    "explain": (["explain", "1f1b", "--devices", "2", "--mb", "2"], PAGE),
    "diff": (["diff", "1f1b", "zb-1p", *SHAPE], PAGE),
    "check": (["check", "order.csv"], WITHOUT),
    "check, faults": (["check", "broken.csv"], WITHOUT),
    "convert": (["convert", "order.csv"], PAGE),
}
ASKED |= {name: (example_of(name), WITHOUT) for name in list_questions() if name not in ASKED}
SLOW = {"plan", "validate"}
NO_OBJECT = {"convert"}
ROW = {
    "id": "seven billion",
    "model": "llama2-7b",
    "gpu": "DGX-H100",
    "gpus": 8,
    "precision": "bf16",
    "tp": 8,
    "gbs": 8,
    "mbs": 1,
    "step_s": 1.5,
}


class Words(HTMLParser):
    """The texts of a page that a reader sees before any script has run."""

    UNSEEN = frozenset({"head", "script", "style", "noscript", "select", "button"})
    EMPTY = frozenset({"meta", "link", "input", "br", "hr", "img"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.hidden: list[bool] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in self.EMPTY:
            self.hidden.append(tag in self.UNSEEN or "hidden" in dict(attrs))

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            self.hidden.pop()

    def handle_data(self, data):
        if data.strip() and not any(self.hidden):
            self.seen.append(" ".join(data.split()))


@pytest.fixture(scope="module")
def written_files(tmp_path_factory):
    """The files that questions are asked about."""
    folder = tmp_path_factory.mktemp("made")
    files = [str(folder / name) for name in ("order.csv", "run.json")]
    assert invoke("run", "1f1b", *SHAPE, "-o", files[0], "-o", files[1]).exit_code == 0
    broken = (folder / "order.csv").read_text("utf-8").replace("0F0", "0F1", 1)
    (folder / "broken.csv").write_text(broken, "utf-8")
    (folder / "rows.json").write_text(json.dumps([ROW]), "utf-8")
    return folder


@pytest.fixture
def files(written_files, tmp_path, monkeypatch):
    shutil.copytree(written_files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_question_has_a_verdict():
    assert {name.partition(",")[0] for name in ASKED} == set(list_questions())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in ASKED]
)
def test_one_verdict_comes_first(name, files):
    """The first line of the terminal, the first sentence of the page, and the object have the same
    sentence.
    """
    words, target = ASKED[name]
    written = ["-o", target] if target else []
    pictured = written if "--tradeoff" in words else []  # a picture is all that it asks for
    shown = invoke(*words, *written)
    first = shown.stdout.splitlines()[0]
    assert len(first.split()) > 2
    if name not in NO_OBJECT:
        force = ["--force"] if name == "calibrate" else []
        found = json.loads(invoke(*words, *pictured, *force, "--json").stdout)
        assert found["verdict"] == first
        assert [*found][:2] == ["schema", "verdict"]
    if target == PAGE:
        title, sentence, *_ = Words((files / PAGE).read_text("utf-8")).seen
        assert sentence == first != title
    elif target:
        assert json.loads((files / target).read_text("utf-8"))["verdict"] == first


def test_memory_says_whether_it_fits():
    """With a cap, by its first words; what does not fit ends with exit code 1 and the same
    numbers.
    """
    fits = invoke("memory", "1f1b", *SHAPE, "--cap", "3").stdout.splitlines()[0]
    assert fits == "1f1b fits 3 activations: device 0 holds 3, 0 to spare"
    refusal = refused("memory", "1f1b", *SHAPE, "--cap", "2")
    assert "does not fit 2 activations" in str(refusal)
    first = invoke("memory", "1f1b", *SHAPE, "--cap", "2").stdout.splitlines()[0]
    assert first == "1f1b does not fit 2 activations: device 0 holds 3, 1 too much"


def test_a_verdict_has_the_unit_and_what_it_compares_with():
    first = invoke("compare", "1f1b", "zb-1p", *SHAPE, "--unit", "ms").stdout.splitlines()[0]
    assert "than 1f1b (" in first
    assert " ms)" in first
    first = invoke("run", "1f1b", *SHAPE, "--unit", "ms").stdout.splitlines()[0]
    assert first.startswith("1f1b takes 24 ms for 6 microbatches on 3 devices, idle 25.0% of it")


def test_a_model_says_once_which_device_holds_most():
    found = invoke("model", "llama3-8b", "--tp", "2")
    assert found.output.count("device 0 holds most") == 1
