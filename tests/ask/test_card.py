"""Notebook cards: the verdict, a small picture and the table, in a size that a screen has."""

import importlib.util
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import ppsim
from ppsim.ask.answer import Answer
from ppsim.ask.card import LINES
from ppsim.base.numbers import format_number
from ppsim.questions import list_functions
from tests.browser import started
from tests.questions.examples import answer_of
from tests.real_runs import short_record

ROOT = Path(__file__).parents[2]
TRACES = [str(ROOT / "tests" / "data" / "traces" / f"gpipe-rank{rank}.json.gz") for rank in (0, 1)]
RECORD = str(ROOT / "tests" / "data" / "records" / "timed-p2.json.gz")
RUN = ROOT / "tests" / "data" / "real_runs" / "recorded_1f1b"
LARGEST = 30_000  # bytes
SCREEN = {"width": 900, "height": 700, "deviceScaleFactor": 1, "mobile": False}  # a small laptop's
KERNEL = ("nbformat", "nbconvert", "ipykernel")

CARDS = {
    "run": "pp.run('1f1b', devices=4, microbatches=8)",
    "run, many ops": "pp.run('1f1b', devices=64, microbatches=256)",
    "run, pairs": "pp.run('dualpipe', devices=8, microbatches=20)",
    "run, lanes": "pp.run('gis', devices=4, microbatches=8)",
    "run, rounds": "pp.run('decode', devices=4, microbatches=4, steps=4)",
    "run, grid": "pp.run('1f1b', devices=4, microbatches=8, grid=True)",
    "compare": "pp.compare(['1f1b', 'zb-1p', 'interleaved', 'zb-v', 'gpipe'], devices=8, "
    "microbatches=32)",
    "sweep": "pp.sweep(['1f1b', 'zb-1p'], devices=[4, 8], microbatches=[8, 16, 32])",
    "jitter": "pp.jitter(['1f1b', 'zb-1p'], devices=4, microbatches=8, samples=50)",
    "memory": "pp.memory('1f1b', devices=4, microbatches=8, cap=4)",
    "explain": "pp.explain('1f1b', devices=2, microbatches=2)",
    "diff": "pp.diff('1f1b', 'zb-1p', devices=8, microbatches=32)",
    "layout": "pp.layout('Et*3|(tt|)*14tL')",
    "model": "pp.model('llama3-8b', tp=2, devices=4, microbatches=8, cluster='dgx-h100')",
    "partition": "pp.partition('1f1b', devices=4, microbatches=8, t_layer=[1] * 17)",
    "optimize": "pp.optimize(devices=2, microbatches=3)",
    "check": "pp.check('order.csv')",
    "read": "pp.read('order.csv')",
    "read, a run": f"pp.read({str(RUN)!r})",
    "check, faults": "pp.check('faulty.csv')",
    "check, many devices": "pp.check('many.csv')",
    "calibrate": f"pp.calibrate(from_trace={TRACES!r})",
    "model, no sizes": "pp.model('deepseek-v3')",
    "convert": "pp.convert('order.csv', 'order.json')",
    "validate": "pp.validate(from_record='record.json')",
}
UNCARDED = {"plan"}  # takes long
CARDS |= {
    name: f"answer_of({name!r})" for name in list_functions() if name not in {*CARDS, *UNCARDED}
}


class Texts(HTMLParser):
    """The texts of a card by the tag they stand in; every tag and every attribute must be one that
    notebooks keep.
    """

    KEPT = frozenset({"div", "p", "pre", "svg", "path", "rect", "text", "g", "image"})

    def __init__(self, card: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, str]] = []
        self.feed(card)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag in self.KEPT
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in self.KEPT

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.found.append((self.open[-1], data))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("cards")
    ppsim.run("1f1b", devices=4, microbatches=8).save(str(found / "order.csv"))
    lines = (found / "order.csv").read_text("utf-8").splitlines()
    lines[0] = lines[0].replace("0B3,", "")
    lines[1] = lines[1].replace("1F2,", "1F2,1F2,")
    (found / "faulty.csv").write_text("\n".join([*lines, ""]), "utf-8")
    ppsim.run("1f1b", devices=64, microbatches=256).save(str(found / "many.csv"))
    many = (found / "many.csv").read_text("utf-8").splitlines()
    many[40] = many[40].replace("40F99,", "").replace("40B100,", "40B100,40F99,")
    (found / "many.csv").write_text("\n".join([*many, ""]), "utf-8")
    short_record(found)
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_small_and_begins_with_the_verdict(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    answer = eval(CARDS[name], {"pp": ppsim, "answer_of": answer_of})
    card = answer._repr_html_()
    assert len(card.encode()) <= LARGEST
    texts = Texts(card).found
    verdict = answer.answer.verdict if name == "sweep" else answer.verdict
    assert texts[0] == ("p", verdict)
    lines = "".join(text for tag, text in texts if tag == "pre").splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines), default=0) <= 200
    for picture in re.findall("<svg.*?</svg>", card):
        ElementTree.fromstring(picture)


@pytest.mark.parametrize(
    "name", ["sweep", "jitter", "layout", "model", "model, no sizes", "calibrate"]
)
def test_a_card_without_a_timeline_has_bars_with_their_values(name, folder):
    card = eval(CARDS[name], {"pp": ppsim})._repr_html_()
    (picture,) = re.findall("<svg.*?</svg>", card)
    texts = [text.text for text in ElementTree.fromstring(picture) if text.tag.endswith("text")]
    expected: dict[str, list[str | None]] = {
        "sweep": ["zb-1p 4x32", "3.0%", "zb-1p 4x16", "5.9%"],
        "layout": ["stage 0", "3", "stage 1", "2"],
        "model": ["device 0", "36.64", "device 1", "27.99"],
        "jitter": ["1f1b", None, "zb-1p", None],
        "model, no sizes": ["output: output matrix", "7,591.4", "layer: MLP in", "2,164.7"],
        "calibrate": ["stage 0 B, run", "14.43", "stage 0 F, run", "9.11"],
    }
    assert len(texts[1:5]) == 4
    for found, wanted in zip(texts[1:5], expected[name], strict=True):
        assert wanted in (None, found)


def test_the_bars_of_a_sweep_are_in_proportion_and_bounded():
    swept = ppsim.sweep(["1f1b", "gpipe"], devices=[2, 4, 8], microbatches=[8, 16, 32])
    card = swept._repr_html_()
    shares = sorted(row["bubble_rate"] for row in swept)[:16]
    wide = [
        float(width) for width in re.findall(r'<rect x="[\d.]+" y="\d+" width="([\d.]+)"', card)
    ]
    assert wide == pytest.approx([wide[-1] * share / shares[-1] for share in shares], abs=0.11)
    assert "the first 16 of 18 bars" in card


def boxes_of(picture: str, pen: str) -> list[tuple[float, float]]:
    """Left and top of the boxes that are drawn with some attribute."""
    paths = re.findall(rf'<path {pen}[^>]* d="([^"]*)"', picture)
    return [
        (float(x), float(y)) for path in paths for x, y in re.findall(r"M([\d.]+) ([\d.]+)h", path)
    ]


def test_the_card_of_a_checked_file_has_its_queues_and_no_fault(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (picture,) = re.findall("<svg.*?</svg>", ppsim.check("order.csv")._repr_html_())
    assert len(boxes_of(picture, 'fill="#')) == 4 * 16
    assert not boxes_of(picture, 'fill="none"')
    rows = [line.split(",") for line in Path("order.csv").read_text("utf-8").split()]
    numbers = re.findall(r'<text x="\d+" y="[\d.]+">(\d+)</text>', picture)
    wanted = [re.sub(r"^\d+[A-Z]", "", op) for row in rows for op in row]
    assert sorted(numbers) == sorted(wanted)


def test_the_card_of_a_file_that_is_read_has_its_queues_or_a_chart(folder, monkeypatch):
    """A schedule without times its queues, as where it is checked; a run its middle iteration."""
    monkeypatch.chdir(folder)
    read, checked = (
        re.findall("<svg.*?</svg>", ask("order.csv")._repr_html_())
        for ask in (ppsim.read, ppsim.check)
    )
    assert len(read) == 1
    assert read == checked
    ran: Any = ppsim.read(str(RUN))
    [chart] = re.findall("<svg.*?</svg>", ran._repr_html_())
    number = ran.kept.iterations[ran.kept.middle()]
    took = format_number(float(ran.kept.makespans[ran.kept.middle()]))
    assert f"{ran.kept.schedule.name}, iteration {number}: {took} {ran.run.unit}" in chart


def test_the_card_of_a_faulty_file_outlines_the_faults_and_names_the_device(folder, monkeypatch):
    """1F2 is there twice, as the third and fourth op of device 1; device 0 lacks 0B3."""
    monkeypatch.chdir(folder)
    checked = ppsim.check("faulty.csv")
    (picture,) = re.findall("<svg.*?</svg>", checked._repr_html_())
    outlined = boxes_of(picture, 'fill="none"')
    assert len(outlined) == 2
    second_row = sorted({y for _, y in boxes_of(picture, 'fill="#')})[1]
    row = sorted(x for x, y in boxes_of(picture, 'fill="#') if y == second_row)
    assert outlined == [(row[2], second_row), (row[3], second_row)]
    assert re.search(r'font-weight="bold">dev 0<', picture)
    assert not re.search(r'font-weight="bold">dev [123]<', picture)


def test_the_card_of_a_large_file_begins_before_its_first_fault(folder, monkeypatch):
    monkeypatch.chdir(folder)
    checked = ppsim.check("many.csv")
    (picture,) = re.findall("<svg.*?</svg>", checked._repr_html_())
    assert "16 of 64 devices" in picture
    assert ">dev 40<" in picture
    assert boxes_of(picture, 'fill="none"')
    first, last = map(int, re.findall(r"ops (\d+) to (\d+) of 512", picture)[0])
    assert 0 < first < last < 512


def test_a_converted_file_has_its_chart(folder, monkeypatch):
    monkeypatch.chdir(folder)
    ppsim.run("1f1b", devices=2, microbatches=3).save("timed.json")
    assert "1F1B: 12 t_F" in ppsim.convert("timed.json", "timed.trace.json")._repr_html_()
    doubled = ppsim.convert("order.csv", "order.json", tf=2, tb=4)._repr_html_()
    assert "order: 66 t_F" in doubled


def test_every_answer_has_a_card():
    """None has one that another base class gives, or none."""

    def below(kind):
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    assert {kind._repr_html_ for kind in below(Answer)} == {Answer._repr_html_}
    asked = {name.partition(",")[0] for name in CARDS}
    assert asked | UNCARDED == set(list_functions())


def test_the_microbatches_of_a_card_are_those_of_the_run():
    """Every op has its number, and none is drawn outside the picture or over another."""
    run = ppsim.run("1f1b", devices=4, microbatches=8)
    (picture,) = re.findall("<svg.*?</svg>", run._repr_html_())
    numbers = re.findall(r'<text x="\d+" y="[\d.]+">(\d+)</text>', picture)
    assert sorted(map(int, numbers)) == sorted(run.schedule.microbatch.tolist())
    boxes = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v[\d.]+h-[\d.]+z", picture)
    rows: dict[float, list[tuple[float, float]]] = {}
    for x, y, wide in (map(float, box) for box in boxes):
        rows.setdefault(y, []).append((x, x + wide))
    assert len(rows) == 4
    for row in rows.values():
        # idle time below all
        (left, right), *cells = sorted(row, key=lambda cell: (cell[0], -cell[1]))
        assert len(cells) == 16
        assert left == 44
        assert right == pytest.approx(640, abs=0.1)
        ends = [left, *(end for _, end in cells)]
        assert all(start >= end - 0.11 for (start, _), end in zip(cells, ends, strict=False))


@pytest.mark.slow
@pytest.mark.browser
def test_a_real_notebook_shows_cards_on_one_screen(folder, tmp_path, monkeypatch):
    """Run by nbconvert: each cell's output is its card, as high as a screen at most, on a light
    page and on a dark.
    """
    if lacking := [name for name in KERNEL if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(lacking)} are not installed: pip install {' '.join(KERNEL)}")
    import nbconvert
    import nbformat
    from nbconvert import HTMLExporter
    from nbconvert.preprocessors import ExecutePreprocessor

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Where nbconvert's own installation has its templates, which may not be the interpreter's.
    monkeypatch.setenv(
        "JUPYTER_PATH", str(Path(nbconvert.__file__).parents[4] / "share" / "jupyter")
    )
    cells = [f"import ppsim as pp\n{asked}" for asked in CARDS.values()]
    cells.append("print(pp.run('1f1b', devices=4, microbatches=8))")
    cells.append("print(pp.compare(['1f1b', 'zb-1p'], devices=4, microbatches=8))")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    ExecutePreprocessor(timeout=300).preprocess(notebook, {"metadata": {"path": str(folder)}})
    for cell in notebook.cells[: len(CARDS)]:
        (output,) = [output for output in cell.outputs if output.output_type == "execute_result"]
        assert len(output.data["text/html"].encode()) <= LARGEST
    for cell, first in zip(
        notebook.cells[len(CARDS) :], ("1f1b takes 33 t_F", "zb-1p is 1.22 times"), strict=True
    ):
        # a slow kernel sends its text in parts
        assert {output.output_type for output in cell.outputs} == {"stream"}
        assert "".join(output.text for output in cell.outputs).startswith(first)
    drawn = "<script>document.documentElement.dataset.state = 'drawn'</script>"
    for theme in ("light", "dark"):
        exporter = HTMLExporter(template_name="lab", theme=theme)
        page, _ = exporter.from_notebook_node(notebook)
        target = tmp_path / f"{theme}.html"
        # of other machines
        page = re.sub(r"<script[^>]* src=.*?</script>", "", page, flags=re.DOTALL)
        target.write_text(page.replace("</body>", f"{drawn}</body>"), "utf-8")
        with started(tmp_path) as browser:
            browser.ask("Emulation.setDeviceMetricsOverride", **SCREEN)
            browser.open(target.as_uri())
            cards = "[...document.querySelectorAll('.ppsim-card')]"
            sizes = browser.run(
                f"{cards}.map(card => [card.scrollWidth, card.clientWidth, card.offsetHeight])"
            )
            page_wide = browser.run("document.documentElement.scrollWidth")
        assert len(sizes) == len(CARDS)
        assert page_wide <= SCREEN["width"]
        assert all(
            inside <= outside and 20 < high <= SCREEN["height"] for inside, outside, high in sizes
        ), sizes


def test_a_card_numbers_the_microbatches_of_each_step():
    card = ppsim.run("1f1b", devices=2, microbatches=3, steps=2, t_optimizer=2)._repr_html_()
    numbers = re.findall(r"<text x=\"\d+\" y=\"[\d.]+\">(\d+)</text>", card)
    assert numbers
    assert set(numbers) == {"0", "1", "2"}
