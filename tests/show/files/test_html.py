"""The page: whole in itself, faithful to the timeline, and drawn by a real browser without a
fault.
"""

import base64
import gzip
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from ppsim.analysis.idle import explain_idle
from ppsim.core.costs import costs_for, find_latencies
from ppsim.core.ops import Kind
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.memory.usage import activations
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.engine.simple.segments import Segment, Segments, look_inside_ops, segment_costs
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.show.drawing.lanes import lane_of
from ppsim.show.drawing.look import Highlight, Look
from ppsim.show.drawing.palette import PALETTES
from ppsim.show.drawing.view import find_repetition
from ppsim.show.files.document import Document
from ppsim.show.files.page_parts import (
    BITS,
    PLAIN,
    SIGNS,
    join_parts,
    shorten_names,
    squeeze_script,
)
from ppsim.show.files.writers import html as html_writer
from ppsim.show.files.writers.html import (
    LATE_STYLES,
    SCRIPTS,
    START,
    all_scripts,
    style_script,
    write,
)
from tests.browser import opened
from tests.cases import timed
from tests.pages import page

LOADING = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
}


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def data_of(text):
    block = re.search(r'<script type="application/json" id="ppsim-data">(.*?)</script>', text, re.S)
    assert block
    return json.loads(block[1])


def unpacked(column, data):
    if isinstance(column, list):
        return np.array(column)
    plain = gzip.decompress(base64.b64decode(column["gzip"]))
    if column["type"] == "float64":
        return np.cumsum(np.frombuffer(plain, "<u8")).view("<f8")
    codes = np.frombuffer(plain, "u1").reshape(4, -1).T.copy().view("<u4").ravel()
    values = np.cumsum((codes >> 1).astype("<i4") ^ -(codes & 1).astype("<i4"))
    return values if column["type"] == "int32" else unpacked(data["shared"], data)[values]


@pytest.fixture(scope="module")
def single():
    return timed("1f1b", 4, 8)


def test_nothing_is_loaded_from_elsewhere(single):
    """No element of the page names a file or an address to load; all styles and scripts are
    inside.
    """
    text = page(single)
    loaded = [
        (tag, attrs[LOADING[tag]]) for tag, attrs in Tags(text).found if LOADING.get(tag) in attrs
    ]
    assert loaded == [("link", "data:,")]
    assert "@import" not in text
    assert "url(" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_no_library_is_loaded_before_the_chart(single):
    """All script of the page is its own, and pages of a usual size have 200 kB at most."""
    text = page(single)
    assert [attrs.get("id") for tag, attrs in Tags(text).found if tag == "script"] == [
        None,
        "ppsim-data",
        None,
    ]
    assert len(page(timed("1f1b", 16, 128))) < 200_000


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_times_that_columns_share_stand_once(name):
    """No digit is lost, and a page of messages with a time for each stage has 200 kB at most."""
    schedule = generate(name, devices=16, microbatches=64)
    shares = np.random.default_rng(1).uniform(0.9, 1.1, schedule.n_stages)
    tf, tb = shares, 1.9 * shares[::-1]
    execution = execute(
        lower(schedule), costs_for(schedule, tf=tf.tolist(), tb=tb.tolist()), Network(alpha=0.013)
    )
    out = io.BytesIO()
    write(Document((execution.compute,), (name,), {}, executions=(execution,)), out, ".html")
    data = data_of(out.getvalue().decode())
    [found] = data["timelines"]
    for column in ("start", "end"):
        np.testing.assert_array_equal(
            unpacked(found["ops"][column], data), getattr(execution.compute, column), column
        )
    for column in ("left", "right", "posted", "awaited"):
        np.testing.assert_array_equal(
            unpacked(found["lane"][column], data), getattr(lane_of(execution), column), column
        )
    assert len(out.getvalue()) < 200_000


def test_scripts_of_one_page_declare_no_name_twice():
    """All of a page's scripts are one module, in which a second declaration would stop the page."""
    groups = [getattr(html_writer, name) for name in vars(html_writer) if name.endswith("SCRIPTS")]
    names = re.findall(
        r"^(?:async )?(?:function\*?|const|let|class) (\w+)", join_parts(sum(groups, ())), re.M
    )
    assert len(names) > 200
    assert sorted(names) == sorted(set(names))


def test_the_script_is_packed_whole(single):
    """What a page unpacks is what its writer has joined, to the call that starts it."""
    (packed,) = re.findall(r"const text = '([^']*)'", page(single))
    (size,) = re.findall(r"new Uint8Array\((\d+)\)", page(single))
    values = [SIGNS.index(sign) for sign in packed]
    pairs = zip(values[::2], values[1::2], strict=True)
    bits = "".join(f"{first * len(SIGNS) + second:0{BITS}b}" for first, second in pairs)
    octets = bytes(int(bits[i : i + 8], 2) for i in range(0, 8 * int(size), 8))
    script = gzip.decompress(octets).decode()
    assert script == shorten_names(
        squeeze_script(join_parts(SCRIPTS) + style_script(LATE_STYLES) + START)
    )


@pytest.mark.parametrize(
    ("script", "squeezed"),
    [
        ("const a = 1; // it's one\nlet b;", "const a=1;\nlet b;"),
        ("/** What\n * it does. */\nf(a, - -b + +c);", "\nf(a,- -b+ +c);"),
        ("x = 'a // b  c' + \"d ' e\" ;", "x='a // b  c'+\"d ' e\";"),
        (r"y = /[\s'\"`/]+ \/ a/.test(z) ? 4 / 2 : 0", r"y=/[\s'\"`/]+ \/ a/.test(z)?4 / 2:0"),
        (
            "t = `a  ${ b ? `c  ${ { d: '}' }.d }` : `` }  e` + f",
            "t=`a  ${ b ? `c  ${ { d: '}' }.d }` : `` }  e`+f",
        ),
        ("return a\n  && b\n", "return a&&b\n"),
        ("if (a) {\n  b();\n}\nelse c()", "if(a){b();}\nelse c()"),
        ("a = b\nc = d", "a=b\nc=d"),
    ],
)
def test_a_script_loses_only_comments_and_blanks(script, squeezed):
    assert squeeze_script(script) == squeezed


@pytest.mark.parametrize(
    ("script", "short"),
    [
        ("const aName=1;f(aName,`${aName+1}`)", "const aa=1;f(aa,`${aa+1}`)"),
        ("let aa,ALL_OF=2;g(ALL_OF?.x,...[ALL_OF])", None),
        ("const ALL_OF=2;g(...ALL_OF)", "const aa=2;g(...aa)"),
        ("const aName=1;x.aName=2", None),
        ("const aName=1;({aName})", None),
        ("const aName=1;({b,aName:2})", None),
        ("const aName=1;say('the aName of it')", None),
        ("const aName=1;say(`the aName of ${b}`)", None),
        ("const {b,aName=1}=c;const aName=2", None),
        ("function aName(b){};c={aName(d){}}", None),
        ("const one=1;one()", None),
        ("const plain=1;plain(/plain/)", None),
        ("const plain=1;say(`${b?'plain':'no'} ${c}`)", None),
        ("const plain=1;plain(b)", "const aa=1;aa(b)"),
        ("const plain=1;f(b,plain,[c,plain])", "const aa=1;f(b,aa,[c,aa])"),
        ("const plain=1;b?plain:c", "const aa=1;b?aa:c"),
        ("const plain=1;c={b:f(d),plain,e}", None),
        ("const plain=1;c={b:[d],e,plain(){}}", None),
    ],
)
def test_a_name_is_shortened_where_it_is_nothing_else(script, short):
    assert shorten_names(script) == (short or script)


@pytest.mark.parametrize(
    "timeline",
    [
        pytest.param(timed("1f1b", 4, 8), id="plain columns"),
        pytest.param(timed("dualpipe", 8, 20), id="pairs"),
        pytest.param(
            timed("zb-h1", 16, 128, unit="ms", tf=1.9, ti=1.8, tw=0.9, comm=0.06),
            id="packed columns",
        ),
    ],
)
def test_the_data_block_equals_the_timeline(timeline):
    """Every column of every op comes back exactly, whether packed or plain."""
    whole = data_of(page(timeline))
    [data] = whole["timelines"]
    schedule = timeline.schedule
    assert isinstance(data["ops"]["start"], list) == (len(schedule) <= PLAIN)
    for name in ("kind", "stage", "chunk", "microbatch", "pair", "dependency"):
        np.testing.assert_array_equal(
            unpacked(data["ops"][name], whole), getattr(schedule, name), name
        )
    for name in ("start", "end", "bound"):
        np.testing.assert_array_equal(
            unpacked(data["ops"][name], whole), getattr(timeline, name), name
        )
    assert data["offsets"] == schedule.offsets.tolist()


def test_a_page_counts_microbatches_not_their_slices():
    [data] = data_of(page(timed("seq1f1b", 4, 8)))["timelines"]
    assert (data["work"], data["microbatches"]) == ("8 microbatches x 4 slices", 32)


@pytest.mark.parametrize("comm", [0.3, 0.0])
def test_every_page_carries_the_causes_of_idle_time(comm):
    """Those of simulated runs, in a few percent of the page; what the ops tell is left out."""
    timeline = timed("1f1b", 16, 64, comm=comm)
    text = page(timeline)
    data = data_of(text)
    waits = data["timelines"][0]["waits"]
    idle = explain_idle(
        timeline,
        find_latencies(timeline.schedule, comm) + timeline.end[timeline.schedule.dependency],
    )
    before = idle.op >= 0
    for name in ("op", "cause", "blamed"):
        np.testing.assert_array_equal(
            unpacked(waits[name], data), getattr(idle, name)[before], name
        )
    more = np.append(np.diff(idle.op), 1)[before] == 0  # the last before an op ends where it starts
    expected = np.where(more, (idle.end - idle.start)[before], 0)
    np.testing.assert_allclose(unpacked(waits["length"], data), expected, rtol=1e-7)
    assert sum(len(column["gzip"]) for column in waits.values()) < 0.04 * len(text)
    assert not data["view"]["causes"]


def test_a_page_knows_the_middle_that_it_can_fold():
    """The one that figures fold; a comparison has none in common."""
    timeline = timed("zb-1p", 4, 40, comm=0.1)
    found = find_repetition(timeline)
    assert found
    start, period, repeats = found
    [data] = data_of(page(timeline))["timelines"]
    assert data["fold"] == {
        "from": start,
        "until": start + period,
        "period": period,
        "repeats": repeats,
    }
    assert not any("fold" in each for each in data_of(page(timeline, timeline))["timelines"])
    look = Look(fold=True)
    write(Document((timeline,), ("x",), look=look), out := io.BytesIO(), ".html")
    assert data_of(out.getvalue().decode())["view"]["fold"]
    with pytest.raises(InputError, match="no part of gpipe repeats"):
        write(Document((timed("gpipe", 4, 4),), ("x",), look=look), io.BytesIO(), ".html")


def test_times_of_unknown_latencies_have_no_causes(single):
    """A file that states times says not when messages arrive."""
    assert "waits" not in data_of(page(replace(single, comm=None)))["timelines"][0]


def test_the_numbers_are_those_of_measure(single):
    """The page shows what ppsim.engine.simple.metrics.measure says and computes none of it
    itself.
    """
    [data] = data_of(page(single))["timelines"]
    metrics = measure(single)
    for name in (
        "makespan",
        "ideal",
        "bubble_rate",
        "bubble_over_ideal",
        "bubble_rate_span",
        "messages",
    ):
        assert data[name] == getattr(metrics, name), name
    assert data["peak_activations"] == metrics.peak_activations.tolist()
    assert data["idle"] == metrics.idle.tolist()


def test_a_comparison_is_against_the_first():
    """Each later timeline carries its change of makespan; peaks are also given for equal shares of
    the model.
    """
    timelines = [timed("1f1b", 4, 8), timed("zb-h1", 4, 8), timed("interleaved", 4, 8)]
    first, second, third = data_of(page(*timelines))["timelines"]
    assert first["versus_baseline"] == 0
    assert second["versus_baseline"] == pytest.approx(27 / 33 - 1)
    assert (
        float(third["numbers"]["peak_activations_share"]["text"])
        == third["peak_activations"][0] / 2
    )


def test_units_are_not_mixed(single):
    """Timelines in different units cannot share an axis."""
    with pytest.raises(InputError, match="t_F and ms"):
        page(single, timed("1f1b", 4, 8, unit="ms"))


def test_colours_come_from_the_one_table(single):
    """The scripts and the style name no op's colour; the data block does."""
    text = page(single)
    data = data_of(text)
    fills = {fill for kind in data["looks"]["kinds"] for fill in kind["fill"]}
    rest = (re.sub(r'id="ppsim-data">.*?</script>', "", text, flags=re.S) + all_scripts()).upper()
    assert len(fills) == 8
    assert not [fill for fill in fills if fill.upper() in rest]
    assert [kind["letter"] for kind in data["looks"]["kinds"]] == [
        k.name for k in (Kind.F, Kind.B, Kind.I, Kind.W)
    ]


def test_identical_input_gives_identical_bytes():
    """The page holds no date, no random name, no order of a set."""
    make = [page(timed("zb-h1", 8, 256), command="ppsim run") for _ in range(2)]
    assert make[0] == make[1]


def test_the_users_text_cannot_leave_its_place(single):
    """A title or command with markup stays text, in the head, in the heading and in the data
    block.
    """
    nasty = '</script><b id="x">&"$title'
    text = page(single, titles=[nasty], command=nasty)
    assert "x" not in [attrs.get("id") for _, attrs in Tags(text).found]
    data = data_of(text)
    assert (data["inputs"]["command"], data["timelines"][0]["title"]) == (nasty, nasty)


@pytest.mark.parametrize(
    ("stages", "microbatches", "megabytes"),
    [(4, 8, 0.08), (16, 128, 0.09), pytest.param(64, 1024, 0.65, marks=pytest.mark.slow)],
)
def test_the_page_stays_small(stages, microbatches, megabytes):
    """131,072 ops add about half a megabyte to a page that is otherwise smaller than a
    photograph.
    """
    assert len(page(timed("1f1b", stages, microbatches))) < megabytes * 1e6


def test_curves_have_no_steps_made_by_rounding():
    """Where a device goes from one op to the next at once, rounding leaves no dip; peaks are those
    of measure.
    """
    timeline = timed("zb-h1", 4, 8, tf=1.8522, ti=1.8086, tw=0.9337, comm=0.0601)
    curve = activations(timeline)
    inner = np.diff(curve.time)[np.diff(curve.time) > 0]
    assert inner.min() > 1e-9
    assert curve.peak.tolist() == measure(timeline).peak_activations.tolist()
    assert curve.value[curve.offsets[1:] - 1].tolist() == [0, 0, 0, 0]


PAGES = {
    "single": ([timed("1f1b", 4, 8)], 64),
    "comparison": ([timed(name, 4, 8) for name in ("gpipe", "1f1b", "zb-h1")], 64 + 64 + 96),
    "pairs": ([timed("dualpipe", 8, 20)], 364),
    "20,480 ops": ([timed("1f1b", 32, 320)], 0),
    "chunks": ([timed("interleaved", 4, 8)], 128),
}
LEGENDS = {
    "pairs": ["Overlapped F&amp;B", "1st, 2nd replica"],
    "chunks": ["1st, 2nd chunk"],
}


@pytest.mark.browser
@pytest.mark.parametrize(("timelines", "numbers"), PAGES.values(), ids=PAGES)
def test_a_browser_draws_it(timelines, numbers, tmp_path, request):
    """Opened from a file, the page ends drawn and without a fault, with one number per op where
    cells are drawn.

    The legend names pairs and what is lighter where they occur, as the figure's does.
    """
    dom = opened(page(*timelines, command="ppsim run"), tmp_path)
    assert re.search(r'<html[^>]* data-state="drawn"', dom)
    svg = re.search(r'<svg id="marks".*?</svg></svg>|<svg id="marks".*?<div id="tip"', dom, re.S)
    assert svg
    assert len(re.findall(r'<text x="[\d.-]+" y="[\d.-]+">\d+</text>', svg[0])) == numbers
    assert f"{timelines[0].makespan:,g} t_F" in dom
    assert ("<canvas" in dom) == (not numbers)
    extra = re.findall(r"</span>(Overlapped[^<]*|1st, 2nd[^<]*)</li>", dom)
    assert extra == LEGENDS.get(request.node.callspec.id, [])


def test_a_page_begins_with_the_look_it_was_asked_for():
    """Palette, title, window and highlight are in its data; what a timeline does not have is
    refused.
    """
    timeline = timed("1f1b", 4, 8)
    look = Look(palette="zb", title="Own <title>", window=(2, 9), highlight=Highlight("mb", 3))
    out = io.BytesIO()
    write(Document((timeline,), ("1F1B",), look=look), out, ".html")
    text = out.getvalue().decode()
    data = data_of(text)
    assert "<title>Own &lt;title&gt; \u00b7 ppsim</title>" in text
    picked = {"highlight": {"by": "microbatch", "value": 3}, "critical": False}
    assert data["view"] == {"window": [2, 9], "causes": False, "fold": False, **picked}
    assert data["looks"]["kinds"][0]["fill"] == list(PALETTES["zb"].tints["forward"])
    for wrong in (Look(window=(99, 100)), Look(highlight=Highlight("stage", 4))):
        with pytest.raises(InputError):
            write(Document((timeline,), ("1F1B",), look=wrong), io.BytesIO(), ".html")


@pytest.fixture(scope="module")
def inside():
    """A document of a timeline whose ops and pairs are known from inside."""
    layer = Segments(
        F=(Segment("attn", 2), Segment("send", 1, "communication")),
        I=(Segment("send", 1, "communication"), Segment("attn", 2)),
        W=(Segment("attn", 1),),
        order=("send_I", "attn_F", "attn_I", "send_F", "attn_W"),
    )
    schedule = generate("1f1b-overlap", devices=2, microbatches=3)
    timeline = simulate(schedule, segment_costs(schedule, layer))
    return Document(
        (timeline,),
        ("x",),
        insides=(look_inside_ops(schedule, layer),),
        look=Look(window=(3.0, 14.0)),
    )


def written(document):
    out = io.BytesIO()
    write(document, out, ".html")
    return out.getvalue().decode()


def test_segments_travel_as_shares_of_their_op(inside, single):
    """A pair of 5: each exchange beside the attention of the other; only such pages have any of
    it.
    """
    found = data_of(written(inside))["timelines"][0]["inside"]
    pair = next(shape for shape in found["shapes"] if set(shape["kind"]) == {Kind.F, Kind.B})
    assert pair["name"] == ["send", "attn", "attn", "send", "attn W"]
    assert pair["stream"] == [1, 0, 0, 1, 0]
    assert pair["start"] == [0, 0, 0.4, 0.4, 0.8]
    assert pair["end"] == [0.2, 0.4, 0.8, 0.6, 1]
    assert len(found["of"]) == len(inside.timelines[0].schedule)
    assert "inside" not in data_of(page(single))["timelines"][0]


@pytest.mark.browser
def test_wide_cells_show_what_runs_inside_them(inside, tmp_path):
    """Names of segments are drawn where they fit, and nothing of it where cells are narrow."""
    dom = opened(written(inside), tmp_path)
    assert dom.count(">attn<") >= 6
    assert dom.count(">attn W<") >= 2
    schedule, layer = (
        generate("1f1b-overlap", devices=2, microbatches=64),
        Segments((Segment("attn", 2),), (Segment("b", 1),)),
    )
    timeline = simulate(schedule, segment_costs(schedule, layer))
    narrow = Document((timeline,), ("x",), insides=(look_inside_ops(schedule, layer),))
    assert ">attn<" not in opened(written(narrow), tmp_path)
