"""What a reader does in the page: keys, pointer, wheel and saving, each answered by the chart in a
real browser.
"""

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.rounds import repeat_rounds
from ppsim.core.steps import add_optimizer
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.memory.usage import activation_model, curves
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from tests.browser import started
from tests.cases import timed
from tests.commands import invoke
from tests.pages import page

pytestmark = pytest.mark.browser
READER = """
<script type="module">
window.requestAnimationFrame = act => setTimeout(act, 16); // a browser that only dumps paints once
const by = id => document.getElementById(id);
const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
const press = key => document.body.dispatchEvent(
  new KeyboardEvent('keydown', { key, bubbles: true }));
const box = () => by('chart').getBoundingClientRect();
const point = (kind, x, y, more = {}) => by('chart').dispatchEvent(new PointerEvent(
  kind, { clientX: box().left + x, clientY: box().top + y, bubbles: true,
    cancelable: true, ...more }));
const ticks = () => [...by('marks').querySelectorAll('text[text-anchor=middle]')].map(
  text => [text.textContent, +text.getAttribute('x')]).filter(([label]) => /^[0-9.]+$/.test(label));
const numbers = () => [...by('marks').querySelectorAll('g[text-anchor=middle] text')]
  .map(text => text.textContent);
if (!by('marks').childElementCount)
  await new Promise(done => new MutationObserver(done).observe(by('marks'), { childList: true }));
const result = await (async () => { %s })();
document.documentElement.dataset.result = JSON.stringify(result);
</script>
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as found:
        found.ask(
            "Emulation.setDeviceMetricsOverride",
            width=1440,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        yield found


@pytest.fixture
def reader(browser, tmp_path):
    """What a script finds that acts in the page from the moment its chart is there."""

    def act(script, *timelines, **options):
        target = tmp_path / "page.html"
        target.write_text(
            page(*timelines, **options).replace("</body>", READER % script + "</body>"), "utf-8"
        )
        browser.open(target.as_uri())
        browser.wait("document.documentElement.dataset.result")
        return json.loads(browser.run("document.documentElement.dataset.result"))

    return act


def test_the_first_key_is_answered(reader):
    """The page listens from its first drawing on: a key pressed in that moment is answered in the
    next.
    """
    pressed, status = reader(
        "press('c'); return [by('critical').getAttribute('aria-pressed'), "
        "by('status').textContent];",
        timed("1f1b", 32, 1600),
    )
    assert pressed == "true"
    assert status == "Critical path: 3262 ops in a row, 4,893 t_F"


def test_a_hundred_thousand_ops_are_no_hundred_thousand_elements(reader):
    """Far out, ops are pixels of one canvas as wide as the chart; zoomed in, they are cells with
    numbers again.
    """
    far, near, width = reader(
        """
        const all = () => by('chart').querySelectorAll('*').length;
        const count = () => [all(), by('pixels').childElementCount, numbers().length];
        const far = count();
        const width = by('pixels').firstChild.width / devicePixelRatio - box().width;
        for (let i = 0; i < 12; i++) press('w');
        await frame();
        return [far, count(), width];
        """,
        timed("1f1b", 32, 1600),
    )
    assert far[0] < 200
    assert far[1:] == [2, 0]
    assert -240 < width < 0
    assert near[1] == 1
    assert 100 < near[2] <= 1500


def test_a_comparison_shows_memory_where_it_was_asked_for(reader):
    """The curves of memory are below the charts at first, and none are where nothing was said of
    memory.
    """
    both = [timed("gpipe", 4, 8), timed("1f1b", 4, 8)]
    shown = (
        "return [by('curve').selectedOptions[0].textContent, "
        "by('marks').textContent.split('peak 8').length];"
    )
    memory = tuple(curves(timeline, activation_model(timeline.schedule)) for timeline in both)
    assert reader(shown, *both) == ["no curve", 2]
    assert reader(shown, *both, memory=memory) == ["live activations", 2 + 4]


def test_dragging_moves_the_chart_with_the_pointer(reader):
    """While zoomed in, a tick follows the pointer to the pixel, and the drag picks out nothing."""
    before, after, status = reader(
        """
        press('w'); press('w');
        await frame();
        const before = ticks();
        point('pointerdown', 500, 40, { button: 0 });
        point('pointermove', 530, 40, { buttons: 1 });
        await frame();
        point('pointerup', 530, 40);
        await frame();
        return [before, ticks(), by('status').textContent];
        """,
        timed("1f1b", 4, 64),
    )
    places = dict(after)
    moved = [places[label] - x for label, x in before if label in places]
    assert len(moved) > 4
    assert moved == pytest.approx([30] * len(moved), abs=0.2)
    assert status == ""


def test_the_wheel_zooms_around_the_pointer(reader):
    """With Ctrl the time under the pointer stays where it is; without, the page scrolls and the
    chart stays.
    """
    start, plain, zoomed = reader(
        """
        const wheel = (x, ctrlKey) => by('chart').dispatchEvent(new WheelEvent(
          'wheel', { clientX: box().left + x, clientY: box().top + 40, deltaY: -120,
            ctrlKey, cancelable: true }));
        const start = ticks();
        const x = start[2][1];
        wheel(x, false);
        await frame();
        const plain = ticks();
        wheel(x, true);
        await frame();
        return [start, plain, ticks()];
        """,
        timed("1f1b", 4, 64),
    )
    assert plain == start
    label, x = start[2]
    assert dict(zoomed)[label] == pytest.approx(x, abs=1)
    assert dict(zoomed)[start[3][0]] > start[3][1] + 10


def test_steps_number_their_own_microbatches_and_an_optimizer_step_none(reader):
    """Two steps of four microbatches: each counts from 0, the tip and what is picked out name the
    step, and a cell of the optimizer has no number.
    """
    one = add_optimizer(
        generate("1f1b", devices=2, microbatches=4), barrier=True, gathers=False, reduces=False
    )
    twice = repeat_rounds(one, 2)
    costs = replace(costs_for(twice), others={Kind.OPT: np.full(2, 2.0)})
    timeline = simulate(twice, costs)
    shown, optimizer, later, picked = reader(
        """
        const [zero, five] = ticks().map(([, x]) => x);
        const at = time => zero + time * (five - zero) / 5;
        const shown = numbers();
        point('pointermove', at(OPT), 20);
        const optimizer = by('tip').textContent;
        point('pointermove', at(NEXT), 20);
        const later = by('tip').textContent;
        point('pointerdown', at(NEXT), 20, { button: 0 });
        point('pointerup', at(NEXT), 20);
        await frame();
        return [shown, optimizer, later, by('status').textContent];
        """.replace("OPT", str(_middle(timeline, "OPT3"))).replace(
            "NEXT", str(_middle(timeline, "0F4"))
        ),
        timeline,
    )
    assert sorted(set(shown)) == ["0", "1", "2", "3"]
    assert len(shown) == 2 * 2 * 2 * 4  # F and B of two steps on two devices
    assert optimizer.startswith("OPT3  optimizer step · step 0")
    assert "microbatch" not in optimizer.partition("\n")[0]
    assert later.startswith("0F4  forward · stage 0 · chunk 0 · step 1, microbatch 0")
    assert picked.startswith("Step 1, microbatch 0: ")


def _middle(timeline, label):
    """When the first op of a label is half done."""
    op = next(op for op in range(len(timeline.schedule)) if timeline.schedule.label(op) == label)
    return float(timeline.start[op] + timeline.end[op]) / 2


def test_hover_tells_the_op_and_a_click_picks_its_microbatch(reader):
    """The tip names the op under the pointer and why it began then; a click picks out its
    microbatch, another none.
    """
    tip, picked, cleared = reader(
        """
        const [zero, five] = ticks().map(([, x]) => x);
        const x = zero + 0.5 * (five - zero) / 5;
        point('pointermove', x, 20);
        const tip = by('tip').textContent;
        const click = () => { point('pointerdown', x, 20, { button: 0 });
          point('pointerup', x, 20); };
        click();
        await frame();
        const picked = [by('status').textContent, numbers()];
        click();
        await frame();
        return [tip, picked, by('status').textContent];
        """,
        timed("1f1b", 4, 8),
    )
    assert tip.startswith("0F0  forward")
    assert picked == [
        "Microbatch 0: 8 ops, the first starts at 0, the last ends at 12 t_F",
        ["0"] * 8,
    ]
    assert cleared == ""


@pytest.mark.parametrize(("microbatches", "cells"), [(8, 64), (1600, 0)])
def test_the_saved_picture_is_whole(reader, microbatches, cells):
    """The SVG button saves cells or pixels, numbers, axes and curves as one well-formed file that
    loads nothing.
    """
    saved, size = reader(
        """
        let saved = null;
        URL.createObjectURL = blob => { saved = blob; return 'data:,'; };
        HTMLAnchorElement.prototype.click = () => {};
        by('export').click();
        return [await saved.text(), [box().width, box().height + 24]];
        """,
        timed("1f1b", 4, microbatches),
    )
    root = ElementTree.fromstring(saved)
    space = "{http://www.w3.org/2000/svg}"
    assert [float(root.attrib["width"]), float(root.attrib["height"])] == pytest.approx(size, abs=1)
    texts = [text.text for text in root.iter(f"{space}text")]
    assert {"device 0", "device 3", "time (t_F)", "live activations", "Forward", "Bubble"} <= set(
        texts
    )
    title, desc = (root.find(f"{space}{name}") for name in ("title", "desc"))
    assert title is not None
    assert title.text == "1f1b \u00b7 ppsim"
    assert desc is not None
    assert json.loads(desc.text or "") == {}
    assert len(root.findall(f".//{space}g[@text-anchor='middle']/{space}text")) == cells
    images = [image.attrib["href"] for image in root.iter(f"{space}image")]
    assert len(images) == (0 if cells else 1)
    assert all(image.startswith("data:image/png;base64,") for image in images)


def test_hover_and_click_belong_to_the_message(reader):
    """Over the lane the tip tells the message, not the op above it, and a click picks out its
    microbatch's messages.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    network = Network("overlap", alpha=0.5)
    execution = execute(lower(schedule, "early"), costs_for(schedule), network)
    tip, over, picked, lit = reader(
        """
        const [zero, five] = ticks().map(([, x]) => x);
        const at = time => zero + time * (five - zero) / 5;
        const row = 58;
        point('pointermove', at(1.25), 8 + 0.78 * row);
        const tip = by('tip').textContent;
        point('pointermove', at(1.25), 8 + 0.3 * row);
        const over = by('tip').textContent;
        point('pointerdown', at(1.25), 8 + 0.78 * row, { button: 0 });
        point('pointerup', at(1.25), 8 + 0.78 * row);
        await frame();
        const lane = [...by('marks').querySelectorAll('path[stroke-width="0.75"]')];
        const boxes = lane.map(path => [path.getAttribute('opacity'),
          path.getAttribute('d').split('M').length - 1]);
        return [tip, over, by('status').textContent, boxes];
        """,
        execution.compute,
        executions=(execution,),
    )
    assert tip == (
        "activation of stage 0 \u00b7 microbatch 0\ndevice 0 \u2192 1 \u00b7 1 \u2192 1.5 (0.5 "
        "t_F)\nqueued 0"
    )
    assert over.startswith("0F1  forward")
    assert picked.startswith("Microbatch 0: 8 ops")
    assert lit == [[None, 3], ["0.22", 21], [None, 3], ["0.22", 21]]


def test_messages_too_many_to_draw_are_a_strip_and_the_page_says_so(reader):
    """At fit the lane of 1,920 messages is pixels with a word about it; zoomed in, boxes with
    numbers.
    """
    schedule = generate("1f1b", devices=16, microbatches=64)
    execution = execute(
        lower(schedule, "early"), costs_for(schedule), Network("overlap", alpha=0.1)
    )
    far, word, near, links = reader(
        """
        const boxes = () => by('marks').querySelectorAll('path[stroke-width="0.75"]').length;
        const links = [by('marks').textContent.includes('0 → 1')];
        press('l');
        links.push(by('marks').textContent.includes('0 → 1'));
        const far = [boxes(), by('pixels').childElementCount];
        const word = by('status').textContent;
        for (let i = 0; i < 8; i++) press('w');
        await frame();
        return [far, word, boxes() > 0, links];
        """,
        execution.compute,
        executions=(execution,),
    )
    assert far == [0, 3]
    assert (
        word
        == "1,920 messages: the strip below each device shows how busy its links are; zoom in to "
        "tell them apart"
    )
    assert near
    assert links == [True, False]


def test_a_page_shows_the_cap(reader):
    """A dashed line across the curves says the cap and who passes it, and bytes are told at the
    rows' ends.
    """
    timeline = timed("1f1b", 4, 8)
    curve = curves(timeline, activation_model(timeline.schedule))
    held = replace(curve, unit="B", value=curve.value * 2**30)
    said, ends, card = reader(
        """
        const line = by('marks').querySelector('.cap');
        const ends = [...by('marks').querySelectorAll('text')].map(text => text.textContent);
        return [line.nextElementSibling.textContent, ends.filter(text => text.includes('idle')),
                by('numbers').textContent.includes('peak memory4 GiB')];
        """,
        timeline,
        memory=(held,),
        cap=3 << 30,
    )
    assert said == "cap 3 GiB, passed by device 0"
    assert ends == [f"27% idle \u00b7 {4 - device} GiB" for device in range(4)]
    assert card


def test_a_comparison_of_chunks_has_one_unit_and_names_its_size(reader):
    """Interleaved beside 1F1B: the header says devices and microbatches, and rows count shares of
    1/P.
    """
    shape, ends = reader(
        """
        const ends = [...by('marks').querySelectorAll('text')].map(text => text.textContent);
        return [by('shape').textContent, ends.filter(text => text.includes('idle'))];
        """,
        timed("1f1b", 4, 8),
        timed("interleaved", 4, 8),
    )
    assert shape == "4 devices, 8 microbatches"
    assert [end.split("\u00b7 ")[1] for end in ends] == [
        *("4 shares", "3 shares", "2 shares", "1 shares"),
        *("5.5 shares", "4.5 shares", "3.5 shares", "2.5 shares"),
    ]


def test_printing_hides_what_is_closed_and_fits_the_page(reader):
    """On paper the curve is low enough for header, numbers, chart and curve of 64 devices to share
    a page.
    """
    before, printed, after = reader(PRINTED, timed("1f1b", 64, 512))
    assert printed[1] < 480 < before[1]
    assert after == before
    _, (header, chart), _ = reader(
        PRINTED, *(timed(name, 4, 8) for name in ("gpipe", "1f1b", "interleaved", "zb-1p"))
    )
    assert header + chart < 718  # pixels of A4 inside its margins


def test_a_cluster_prints_its_chart_beside_its_numbers(browser, tmp_path):
    target = tmp_path / "x.html"
    shape = (
        "run interleaved --devices 16 --mb 64 --unit ms --tf 2 --tb 4 --cluster "
        "gallery/cluster.toml -q"
    )
    assert invoke(*shape.split(), "-o", str(target)).exit_code == 0
    browser.open(target.as_uri())
    before, (header, chart), after = browser.run(
        f"(() => {{ const by = id => document.getElementById(id); {PRINTED} }})()"
    )
    assert header + chart < 718
    assert after == before


PRINTED = """
const measure = () => [by('chart').offsetTop - document.querySelector('header').offsetTop,
  by('chart').clientHeight];
const before = measure();
dispatchEvent(new Event('beforeprint'));
document.body.style.width = '1047px';
const printed = measure();
document.body.style.width = '';
dispatchEvent(new Event('afterprint'));
return [before, printed, measure()];
"""


def test_a_tap_tells_what_was_tapped(reader):
    """A finger cannot hover: the tip comes with the tap that picks the microbatch."""
    tip, hidden = reader(
        """
        const [zero, five] = ticks().map(([, x]) => x);
        const x = zero + 0.5 * (five - zero) / 5;
        point('pointerdown', x, 20, { button: 0, pointerType: 'touch', pointerId: 1 });
        point('pointerup', x, 20, { pointerType: 'touch', pointerId: 1 });
        return [by('tip').textContent, by('tip').hidden];
        """,
        timed("1f1b", 4, 8),
    )
    assert tip.startswith("0F0  forward")
    assert not hidden
