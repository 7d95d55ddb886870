"""Predicted above measured: what the figure and the page show, and that equal inputs give equal
bytes.
"""

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from ppsim.base.numbers import format_change
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.errors import InputError
from ppsim.questions.runs.validate import choose_runs
from ppsim.questions.runs.validate import validate as ask_validate
from ppsim.questions.runs.validation_text import picker_of
from ppsim.real.runs.record import Measured, Record
from ppsim.real.validation.analyse import validate
from ppsim.real.validation.overlay import SUFFIXES, overlay_document, save_overlay, timelines_of
from ppsim.real.validation.overlay_draw import plot_overlay
from ppsim.schedules import find, generate
from ppsim.show.drawing.palette import DEFAULT
from ppsim.show.files.provenance import read_inputs
from ppsim.show.files.writers.html import contents
from tests.browser import shown, started
from tests.commands import invoke
from tests.real_runs import UNEQUAL

pytestmark = pytest.mark.slow  # matplotlib draws dozens of figures
COMMAND = "ppsim validate --devices 4"
RECORD = str(Path(__file__).parents[2] / "data" / "records" / "timed-p2.json.gz")


def run_of(name, devices=4, microbatches=8, seed=0):
    """Three repetitions of a schedule, each slower than the simple model by an amount of its
    own.
    """
    schedule = generate(name, devices=devices, microbatches=microbatches)
    lowered, costs = lower(schedule), costs_for(schedule, tf=5, ti=5, tw=5, unit="ms")
    ran = execute(lowered, costs, Network(mode="overlap", alpha=0.3)).timeline
    slow = 1 + 0.08 * np.random.default_rng(seed).random((3, 1))
    start, end = ran.start * slow, ran.end * slow
    return Measured(name, lowered, costs, start, start, end, np.full((3, devices), end.max()))


def session(*names, **shape):
    runs = tuple(run_of(name, seed=seed, **shape) for seed, name in enumerate(names))
    settings = {"ops": "timed", "message_bytes": 64, "cores": 2, "link": {"alpha": 0.3}}
    record = Record(runs, settings, {"command": COMMAND, "cpu": "some <cpu>"})
    return SimpleNamespace(record=record, validation=validate(record))


@pytest.fixture(scope="module")
def two():
    return session("1f1b", "dualpipe-v")


def figure(made, **look):
    titles = [verdict.run.name for verdict in made.validation.verdicts]
    return plot_overlay(made.validation, titles, **look)


def saved(made, folder, suffix, **look):
    target = folder / f"x{suffix}"
    titles = [find(verdict.run.name).title for verdict in made.validation.verdicts]
    save_overlay(made.validation, made.record, str(target), suffix, titles=titles, **look)
    return target.read_bytes()


def words(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("style", ["screen", "paper"])
def test_every_op_is_shown_twice_predicted_above_measured(two, style):
    """On each device the upper half has the numbers of all predicted ops, the lower of all measured
    ones.
    """
    for axes, verdict in zip(
        figure(two, style=style).axes[::2], two.validation.verdicts, strict=True
    ):
        shown = Counter(
            (int(text.get_position()[1]), text.get_text())
            for text in axes.texts
            if text.get_text().isdigit()
        )
        schedule = verdict.measured.schedule
        for half in (0, 1):
            rows = 2 * schedule.device + half
            expected = Counter(
                zip(rows.tolist(), map(str, schedule.microbatch.tolist()), strict=True)
            )
            assert {at: count for at, count in shown.items() if at[0] % 2 == half} == expected


def test_the_two_halves_touch_and_devices_stand_apart(two):
    axes = figure(two).axes[0]
    grey = [patch.get_path().vertices[:, 1] for patch in axes.patches if patch.get_zorder() == 1]
    predicted, measured = (np.unique(edges).reshape(-1, 2) for edges in grey)
    np.testing.assert_array_equal(predicted[:, 1], measured[:, 0])
    assert (predicted[1:, 0] > measured[:-1, 1]).all()


def test_dotted_lines_end_at_both_makespans_and_the_error_is_said(two):
    first, second = two.validation.verdicts
    assert not first.held_out
    assert second.held_out
    for axes, verdict, end in zip(
        figure(two).axes[::2], (first, second), (", not held out", ""), strict=True
    ):
        assert [line.get_xdata()[0] for line in axes.lines] == [
            verdict.best.makespan,
            verdict.makespan,
        ]
        error = format_change(verdict.best.makespan / verdict.makespan - 1)
        said = (
            f"measured {verdict.makespan:.1f} ms, predicted {verdict.best.makespan:.1f} ms, "
            f"{error}{end}"
        )
        assert said in words(axes)


def test_a_figure_too_narrow_for_both_makespans_says_the_error(two):
    own, held_out = two.validation.verdicts
    first, second = (words(axes) for axes in figure(two, width=1.8).axes[::2])
    assert f"{format_change(own.errors['held-out'])}, not held out" in first
    assert format_change(held_out.errors["held-out"]) in second
    assert not [text for text in first + second if text.startswith("measured")]


def test_residuals_stand_below_in_the_colour_of_their_kind(two):
    """A dot per op, once for a pair, at its measured start; one scale for all schedules, zero
    marked.
    """
    strips = figure(two).axes[1::2]
    assert len({axes.get_ylim() for axes in strips}) == 1
    for axes, verdict in zip(strips, two.validation.verdicts, strict=True):
        schedule = verdict.measured.schedule
        once = ~((schedule.pair >= 0) & (schedule.pair < np.arange(len(schedule))))
        [dots] = axes.collections
        np.testing.assert_array_equal(
            dots.get_offsets(), np.stack([verdict.measured.start, verdict.shift], axis=1)[once]
        )
        colours = [to_hex(colour).upper() for colour in dots.get_facecolors()]
        assert colours == [DEFAULT.fill(Kind(kind))[0].upper() for kind in schedule.kind[once]]
        assert [tuple(line.get_ydata()) for line in axes.lines] == [(0, 0)]
        low, high = axes.get_ylim()
        assert low < verdict.shift.min()
        assert verdict.shift.max() < high
        assert "predicted - measured start, ms" in words(axes)


def test_all_panels_share_one_time_axis_named_at_the_bottom(two):
    page = figure(two)
    assert len({axes.get_xlim() for axes in page.axes}) == 1
    assert len({(box.x0, box.x1) for box in (axes.get_position() for axes in page.axes)}) == 1
    assert [axes.get_xlabel() for axes in page.axes] == ["", "", "", "time (ms)"]


def test_a_narrow_figure_names_every_schedule():
    """The makespans make room for the name, also where the costs are not held out."""
    made = session("1f1b")
    page = plot_overlay(made.validation, ["Interleaved"], "paper", 3.3)
    texts = words(page.axes[0])
    assert "Interleaved" in texts
    assert "not held out" in " ".join(texts)


def test_the_height_grows_with_the_schedules(two):
    one = figure(session("1f1b")).get_figheight()
    many = figure(session(*["1f1b"] * 8)).get_figheight()
    assert many > 6 * one


def test_many_cells_become_an_image_and_the_legend_tells_the_halves():
    made = session("1f1b", devices=80, microbatches=16)
    page = figure(made)
    rows, strip = page.axes
    image = rows.images[0]
    assert image.get_array().shape[0] == 160
    assert image.get_extent() == [0, rows.get_xlim()[1], 160, 0]  # all devices, from time 0 on
    assert not rows.patches
    assert strip.collections[0].get_rasterized()
    assert "Upper half of a row predicted, lower half measured" in [
        text.get_text() for text in page.texts
    ]
    assert page.get_figheight() < 10


def test_more_schedules_than_a_figure_can_hold_are_refused(two):
    many = SimpleNamespace(validation=SimpleNamespace(verdicts=two.validation.verdicts[:1] * 200))
    with pytest.raises(InputError, match="200 schedules are too many"):
        figure(many)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_sessions_give_equal_bytes(two, suffix, tmp_path):
    assert saved(two, tmp_path, suffix) == saved(session("1f1b", "dualpipe-v"), tmp_path, suffix)


@pytest.mark.parametrize("width", [3.3, 6.75])
def test_a_png_is_as_wide_as_asked_and_carries_how_it_was_measured(two, width, tmp_path):
    image = Image.open(BytesIO(saved(two, tmp_path, ".png", width=width, style="paper")))
    assert image.size[0] == round(300 * width)
    inputs = json.loads(image.info["ppsim"])
    assert inputs["command"] == COMMAND
    assert inputs["settings"] == two.record.settings
    assert inputs["provenance"] == {"cpu": "some <cpu>"}


def test_an_svg_has_text_as_text_and_carries_how_it_was_measured(two, tmp_path):
    root = ET.fromstring(saved(two, tmp_path, ".svg"))
    found = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")]
    assert {"1F1B", "DualPipe-V", "pred.", "meas.", "time (ms)"} <= set(found)
    description = next(e.text for e in root.iter("{http://purl.org/dc/elements/1.1/}description"))
    assert json.loads(description or "")["command"] == COMMAND


@pytest.mark.parametrize(
    ("suffix", "look", "said"),
    [
        (".csv", {}, "cannot be shown as .csv"),
        (".svg", {"style": "poster"}, "poster"),
        (".png", {"width": 0.1}, "0.1 inches"),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_leaves_no_file(two, suffix, look, said, tmp_path):
    with pytest.raises(InputError, match=said):
        saved(two, tmp_path, suffix, **look)
    assert list(tmp_path.iterdir()) == []


def test_standard_output_takes_the_picture(two, capfdbinary):
    save_overlay(two.validation, two.record, "-", ".png")
    assert capfdbinary.readouterr().out.startswith(b"\x89PNG")


def test_the_page_has_each_schedule_predicted_and_measured(two):
    """A prediction is compared with its own measurement, whose residuals are a curve of their
    own.
    """
    document = overlay_document(two.validation, two.record, ["1F1B", "DualPipe-V"])
    entries = contents(document, np.asarray)["timelines"]
    assert document.title == "1F1B · DualPipe-V: predicted and measured"
    assert [entry["title"] for entry in entries] == [
        "1F1B predicted",
        "1F1B measured",
        "DualPipe-V predicted",
        "DualPipe-V measured",
    ]
    assert [entry["baseline"] for entry in entries] == [1, 1, 3, 3]
    for predicted, measured, verdict in zip(
        entries[::2], entries[1::2], two.validation.verdicts, strict=True
    ):
        assert predicted["versus_baseline"] == pytest.approx(verdict.errors["held-out"])
        assert [curve["name"] for curve in predicted["curves"]] == ["live activations"]
        activations, shift = measured["curves"]
        assert (activations["name"], shift["name"]) == (
            "live activations",
            "predicted - measured start",
        )
        np.testing.assert_array_equal(shift["value"], verdict.shift)
        np.testing.assert_array_equal(shift["time"], verdict.measured.start)
        for device, (least, peak) in enumerate(zip(shift["least"], shift["peak"], strict=True)):
            own = verdict.shift[verdict.measured.schedule.queue(device)]
            assert (least, peak) == (own.min(), own.max())


def test_a_page_of_many_schedules_counts_them():
    made = session(*["1f1b", "gpipe", "zb-1p", "interleaved", "dualpipe-v"])
    assert (
        overlay_document(made.validation, made.record).title
        == "5 schedules: predicted and measured"
    )


def test_the_page_compares_runs_by_terms_that_sum_to_their_makespans(two):
    story = picker_of(two.validation, ["a", "b"]).content["picker"]
    for rows, timeline in zip(story["rows"], timelines_of(two.validation), strict=True):
        np.testing.assert_allclose(np.sum(rows, axis=1), timeline.makespan, rtol=1e-4)
    assert story["errors"][0]["texts"][-1] == format_change(
        two.validation.verdicts[0].errors["replay"]
    )
    assert len(story["levels"]) == len(story["errors"][1]["texts"]) == 5
    assert [*story["said"]] == story["levels"]


def test_the_page_of_a_job_has_its_verdict_and_names_the_replica_that_it_shows(tmp_path):
    """The chart predicts one replica from its other steps, which is another number."""
    target = tmp_path / "x.html"
    done = invoke("validate", "--trace", str(UNEQUAL), "-o", str(target), "--json")
    assert done.exit_code == 0
    verdict, page = json.loads(done.stdout)["verdict"], target.read_text()
    assert verdict in page
    assert page.count("held-out predictions are off by") == page.count(verdict)
    assert "predicted and measured: replica 19 alone, costs from the other steps" in page


@pytest.mark.slow
def test_a_picture_of_a_record_names_the_command_that_makes_it_again(tmp_path):
    """And, apart from it, the one that measured."""
    target = tmp_path / "x.svg"
    assert (
        invoke(
            "validate", "--from-record", RECORD, "--only", "1f1b", "-q", "-o", str(target)
        ).exit_code
        == 0
    )
    inputs = read_inputs(str(target))
    assert inputs["command"] == f"ppsim validate --only 1f1b --from-record {RECORD}"
    assert inputs["provenance"]["measured_by"] == "refresh_records timed-p2"


@pytest.mark.browser
def test_a_run_is_picked_and_its_ops_are_joined(tmp_path):
    """Two charts at a time: a run's prediction above it, or any two; the page is small."""
    target = tmp_path / "x.html"
    assert invoke("validate", "--from-record", RECORD, "-q", "-o", str(target)).exit_code == 0
    assert target.stat().st_size < 150_000
    told = json.loads(invoke("validate", "--from-record", RECORD, "--json").stdout)["schedules"]
    lead = "document.getElementById('lead').textContent"
    with started(tmp_path) as browser:
        browser.open(target.as_uri())
        assert browser.run(lead).startswith("GPipe measured takes")
        browser.run("document.querySelectorAll('#story th button')[3].click()")
        browser.wait(f"{lead}.startsWith('ZB-1P measured takes')")
        assert browser.run("document.querySelectorAll('#numbers tbody tr').length") == 2
        error = format_change(told[3]["errors"]["held-out"])
        assert error in browser.run(
            "document.querySelector('#story tr:has([aria-pressed=true])').innerText"
        )
        sums = browser.run(
            "[...document.querySelectorAll('.bars td:nth-child(3)')].map(cell => cell.textContent)"
        )
        assert len({len(text.partition(".")[2]) for text in sums}) == 1
        *parts, whole = (float(text.replace("\N{MINUS SIGN}", "-")) for text in sums)
        assert sum(parts) == pytest.approx(whole, abs=2e-3 * told[3]["measured"]["makespan"])
        browser.run(
            "(s => { s.value = 1; s.onchange(); })(document.querySelectorAll('#story label "
            "select')[0])"
        )
        browser.wait(
            f"{lead}.startsWith('ZB-1P measured takes') && {lead}.includes('ms against GPipe "
            f"measured')"
        )
        headings = browser.run(
            "[...document.querySelectorAll('#story h2')].map(h => h.textContent)"
        )
        assert "ZB-1P measured \u2212 GPipe measured, ms of a device on average" in headings
        said = browser.run("document.getElementById('story').textContent")
        assert "replay: the measured time of each op" in said
        assert browser.run("document.getElementById('fault').textContent") == ""


@pytest.mark.browser
@pytest.mark.parametrize("devices", [4, 10])
def test_a_browser_draws_the_page_with_the_residuals_below_what_was_measured(devices, tmp_path):
    """Lines for few devices, a strip for many; the residuals are chosen at the start."""
    made = session("gpipe", "1f1b", devices=devices)
    story = picker_of(made.validation, ["GPipe", "1F1B"])
    save_overlay(made.validation, made.record, str(tmp_path / "x.html"), ".html", explanation=story)
    dom = shown((tmp_path / "x.html").as_uri(), tmp_path)
    assert re.search(r'<html[^>]* data-state="drawn"', dom)
    assert re.search(r'<p id="fault"[^>]*></p>', dom)
    marks = dom[dom.index('<svg id="marks"') : dom.index('<div id="tip"')]
    assert marks.count("predicted - measured start, ms") == 1
    assert ("<canvas" in dom) == (devices > 8)


def test_only_the_schedules_asked_for_are_drawn(tmp_path):
    """Another name is answered by the names there are, and a choice without a file by what it is
    for.
    """
    whole = session("gpipe", "1f1b", "zb-1p").validation
    assert choose_runs(whole, ()) is whole
    chosen = choose_runs(whole, ("zb-1p", "gpipe"))
    assert [verdict.run.name for verdict in chosen.verdicts] == ["gpipe", "zb-1p"]
    with pytest.raises(InputError, match="no run of 'zb-9' was compared") as refused:
        ask_validate(from_record=RECORD, only="zb-9", output=str(tmp_path / "x.svg"))
    assert refused.value.hint.startswith("one of gpipe 1f1b")
    assert "--only needs -o FILE" in str(
        invoke("validate", "--from-record", RECORD, "--only", "1f1b").exception
    )
