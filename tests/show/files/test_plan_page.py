"""The plan explorer: what became of all candidates, and what its cap leaves, in a browser and out
of it.
"""

import base64
import gzip
import json
import re
from functools import partial

import numpy as np
import pytest

from ppsim.base.numbers import format_number
from ppsim.engine.simple.longest_path import simulate
from ppsim.questions.plans.explorer import layout_and_layers
from ppsim.questions.plans.plan import plan
from ppsim.schedules import generate
from ppsim.show.drawing.palette import level_of
from ppsim.show.files.page_parts import read_part
from ppsim.show.files.plan_page import plan_page
from ppsim.workload.cost.costs import stage_costs
from ppsim.workload.cost.volumes import sent_bytes
from ppsim.workload.plans.ranks import rank_grid
from tests.browser import opened, started
from tests.commands import invoke

WORDS = [
    "plan",
    "--model",
    "llama3-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "8",
    "--gbs",
    "16",
    "--schedules",
    "1f1b",
]
HOSTILE = "</script><img src=x onerror=\"document.title='XSSED'\">"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page of a small search, and what the same search says with --front --json."""
    target = tmp_path_factory.mktemp("plans") / "plan.html"
    assert invoke(*WORDS, "--front", "-q", "-o", str(target)).exit_code == 0
    return target, json.loads(invoke(*WORDS, "--front", "--json").stdout)


def data_of(page):
    found = re.search(r'id="ppsim-data">(.*?)</script>', page, re.S)
    assert found
    data = json.loads(found[1])
    return data, json.loads(gzip.decompress(base64.b64decode(data["plans"])))


@pytest.mark.slow
def test_the_page_has_what_the_search_says(made):
    """Every outcome's count, every simulated plan, and the rows in the order of the answer."""
    target, said = made
    data, columns = data_of(target.read_text())
    assert {each["name"]: each["count"] for each in data["outcomes"]} == said["outcomes"]
    assert len(columns["step_s"]) == said["outcomes"]["simulated"]
    listed = sorted(
        (rank, step)
        for rank, step in zip(columns["listed"], columns["step_s"], strict=True)
        if rank
    )
    assert [step for _, step in listed] == pytest.approx(
        [plan["step_s"] for plan in said["plans"]], rel=1e-4
    )
    steps = [
        sum(row) for row in zip(*(columns[each["key"]] for each in data["terms"]), strict=True)
    ]
    assert steps == pytest.approx(columns["step_s"], rel=1e-3)
    held = [sum(row) for row in zip(*(columns[each["key"]] for each in data["parts"]), strict=True)]
    assert held == pytest.approx(columns["memory"], rel=1e-3)
    ranked = zip(columns["listed"], columns["tied"], strict=True)
    assert [bool(tied) for rank, tied in sorted(ranked) if rank] == [
        plan["tied"] for plan in said["plans"]
    ]
    assert {plan["tied"] for plan in said["plans"]} == {True, False}
    assert target.stat().st_size < 200_000


@pytest.mark.browser
def test_bars_of_steps_are_as_long_as_the_steps(made, tmp_path):
    """None is cut: the slowest listed plan's is whole, and the others have their share of it."""
    _, columns = data_of(made[0].read_text())
    pairs = sorted(
        (rank, step)
        for rank, step in zip(columns["listed"], columns["step_s"], strict=True)
        if rank
    )
    steps = [step for _, step in pairs]
    assert max(steps) > 1.3 * min(steps)
    with started(tmp_path) as browser:
        browser.open(made[0].as_uri())
        heads = "[...document.querySelectorAll('#plans th')].map(head => head.textContent)"
        assert all(browser.run(heads))
        at = browser.run(heads).index("tied")
        rows = "[...document.querySelectorAll('#plans tbody tr')]"
        marks = browser.run(f"{rows}.map(row => row.cells[{at}].textContent)")
        assert marks == ["tied" * plan["tied"] for plan in made[1]["plans"]]
        length = "[...bar.children].reduce((sum, part) => sum + parseFloat(part.style.width), 0)"
        bars = (
            "[...document.querySelectorAll('#plans tbody tr')].map(row => "
            "row.querySelector('.bar'))"
        )
        found = browser.run(f"{bars}.map(bar => {length})")
    assert found == pytest.approx([100 * step / max(steps) for step in steps], abs=0.2)


@pytest.mark.slow
def test_a_page_beside_the_table_changes_no_row_of_it(made, tmp_path):
    alone = json.loads(invoke(*WORDS, "--json").stdout)["plans"]
    beside = json.loads(invoke(*WORDS, "--json", "-o", str(tmp_path / "x.html")).stdout)["plans"]
    assert [plan["step_s"] for plan in alone] == [plan["step_s"] for plan in beside]


@pytest.mark.browser
def test_the_cap_slides_and_a_row_is_shown_from_near(made, tmp_path):
    """With less memory the fastest that fits is another one, and the page says what that costs."""
    target, _ = made
    _, columns = data_of(target.read_text())
    plans = sorted(zip(columns["step_s"], columns["memory"], strict=True))
    middle = (min(columns["memory"]) + plans[0][1]) / 2
    best = min(step for step, held in plans if held <= middle)
    with started(tmp_path) as browser:
        browser.open(target.as_uri())
        browser.run(
            f"(c => {{ c.value = {middle}; c.dispatchEvent(new Event('input')); "
            f"}})(document.getElementById('cap'))"
        )
        said = browser.run("document.getElementById('capped').textContent")
        assert f"{format_number(best)} s a step, +" in said
        assert said.endswith("GiB less")
        browser.run("document.querySelector('#plans tbody tr:nth-child(2) button').click()")
        above = "document.querySelector('#chart .point.on') === document.querySelector("
        assert browser.run(f"{above}'#chart svg > :last-child')")
        opaque = "getComputedStyle(document.querySelector('#chart .point.on')).opacity"
        assert browser.run(opaque) == "1"
        near = browser.run("document.getElementById('plan').textContent")
        assert "--tensor-model-parallel-size" in near
        second = columns["step_s"][columns["listed"].index(2)]
        assert f"{format_number(second)} s a step" in near
        browser.wait("document.getElementById('run-of').textContent.includes('node 000000000')")
        # of four devices with four chunks each
        chunks = "{ stage: [0, 4, 8, 12], offsets: [0, 1, 2, 3, 4] }"
        [tint] = re.findall(r"function tintOf.*?\n\}", read_part("plan_run.js"), re.DOTALL)
        data = "const DATA = { kinds: [{ fill: Array(8) }] };"
        found = browser.run(
            f"(() => {{ {data} {tint} return [0, 1, 2, 3].map(op => tintOf({chunks}, op)); }})()"
        )
        assert found == [level_of(chunk, 3) for chunk in range(4)]
        browser.run("document.querySelector('#outcomes button').click()")
        assert browser.run("document.getElementById('why').textContent")
        for width in (390, 3840):
            browser.ask(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_the_page_has_the_remarks_of_the_terminal_on_memory_and_gpu(tmp_path):
    words = "plan --model llama3-8b --cluster l40s --gpus 8 --gbs 16 --tp 1 --pp 4 --cp 1 --mbs 1 "
    words += "--schedules 1f1b --recomputes none --zero 1 --cap "
    target = tmp_path / "plan.html"
    peak = json.loads(invoke(*f"{words}200GiB --json".split()).stdout)["plans"][0]["memory_bytes"]
    cap = f"{1.01 * peak / 2**30:.1f}GiB"
    said = " ".join(invoke(*f"{words}{cap}".split()).stdout.split())
    (remark,) = re.findall(r"the best plan may \w+ \S+ it fills .*? (?=run it)", said)
    assert invoke(*f"{words}{cap} -q -o {target}".split()).exit_code == 0
    shown = re.search(r'<div id="remarks">(.*?)</div>', opened(target.read_text(), tmp_path))
    assert shown
    assert f"<p>{remark.strip()}</p>" in shown[1]
    assert "<p>no published run has the GPU l40s</p>" in shown[1]


@pytest.mark.browser
def test_no_text_of_a_model_becomes_markup(tmp_path):
    terms = ("compute", "recompute", "communication", "bubble", "gradients", "optimizer")
    parts = ("weights", "gradients", "optimizer", "activations", "work")
    numbers = (
        "tp",
        "cp",
        "ep",
        "pp",
        "dp",
        "vp",
        "mbs",
        "zero",
        "offload",
        "layers",
        "step_s",
        "mfu",
        "bubble",
    )
    keys = (
        *numbers,
        "tokens",
        "memory",
        "listed",
        *(f"step {each}" for each in terms),
        *(f"held {each}" for each in parts),
    )
    columns: dict[str, list[object]] = {key: [1] for key in keys}
    columns |= {key: [HOSTILE] for key in ("schedule", "recompute", "layout", "lost_by")}
    facts = {"inputs": {"command": HOSTILE}, "counted": HOSTILE, "cap": 2.0, "base": HOSTILE}
    facts |= {
        "remarks": [HOSTILE],
        "perNode": 8,
        "pipelineFirst": False,
        "queues": [],
        "carried": HOSTILE,
        "runs": {},
        "sent": {"0": {HOSTILE: [1, 2]}},
        "sizes": ["tp"],
        "flags": {"0": {"texts": {HOSTILE: HOSTILE}, "refused": [HOSTILE]}},
    }
    page = plan_page(HOSTILE, facts, [(HOSTILE, 1, HOSTILE)] * 7, columns, HOSTILE).decode()
    dom = opened(page, tmp_path)
    assert "<title>XSSED" not in dom
    assert "<img" not in dom.split('<script type="application/json"')[0]


def _given(costs, schedule):
    return costs


@pytest.mark.browser
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (
            "llama3-8b",
            {"schedules": "interleaved,zb-1p,v-half,dualpipe,dualpipe-v,chimera,zb-v", "pp": [4]},
        ),
        ("deepseek-v2-lite", {"schedules": "dualpipe-v,1f1b-overlap,1f1b", "pp": [4], "ep": [4]}),
    ],
)
def test_the_page_times_listed_plans_as_the_simulator_does(model, options, tmp_path):
    """Their queues travel, their times are found in the page; ranks are those of the grid."""
    found = plan(model, "dgx-h100", gpus=16, gbs=32, front=True, any=True, **options)
    found.save(str(tmp_path / "x.html"))
    schedules = {row["schedule"] for row in found.findings.rows[:40]}
    assert len(schedules) > 1
    with started(tmp_path) as browser:
        browser.open((tmp_path / "x.html").as_uri())
        for place, row in enumerate(found.findings.rows[:40]):
            parallel, layout = layout_and_layers(found.task, row)
            costs = stage_costs(found.task.model, found.task.machine, parallel, layout).costs
            sizes = {
                "devices": parallel.pp,
                "chunks": parallel.vp,
                "microbatches": parallel.microbatches,
            }
            schedule = generate(row["schedule"], costs=partial(_given, costs), **sizes)
            browser.run(f"document.querySelectorAll('#plans tbody tr')[{place}].click()")
            said = (
                f"Timeline of 4 devices, "
                f"{format_number(simulate(schedule, costs).makespan / 1e3)} s"
            )
            browser.wait(f"document.getElementById('run-of').textContent.startsWith({said!r})")
            by_kind = sent_bytes(found.task.model, found.task.machine, parallel, schedule, layout)
            sent = sum(by_kind.values())
            lines = browser.run(
                "[...document.querySelectorAll('#lines path[d^=M]')].map(line => line.dataset.line)"
            )
            assert set(lines) == {
                f"{kind}{side}" for kind, both in by_kind.items() for side in (0, 1) if both[side]
            }
            told = browser.run(
                "[...document.querySelectorAll('.sent')].map(line => line.textContent)"
            )
            assert [re.sub(r" [\d.,]+ GiB", "", line) for line in told] == [
                "inside its node",
                "between nodes",
            ]
            amounts = [float(re.sub(r"[^\d.]", "", line)) for line in told]
            assert amounts == pytest.approx(sent / 2**30, rel=1e-3)
            shown = browser.run(
                "[...document.querySelectorAll('#ranks [data-rank]')].map(gpu => +gpu.textContent)"
            )
            grid = rank_grid(parallel)
            device = {int(rank): at for (_, at, _, _), rank in np.ndenumerate(grid)}
            assert shown == [device[rank] for rank in range(16)]
            picked = f"document.querySelector('#ranks [data-rank=\"{place % 16}\"]')"
            browser.run(
                f"{picked}.dispatchEvent(new PointerEvent('pointerover', {{ bubbles: true }}))"
            )
            (own,) = np.argwhere(grid == place % 16)
            for group, axis in (("dp", 0), ("pp", 1), ("cp", 2), ("tp", 3)):
                marked = browser.run(
                    f"[...document.querySelectorAll('#ranks [data-group={group}]')].map(gpu => "
                    f"+gpu.dataset.rank)"
                )
                beside = grid[tuple(slice(None) if at == axis else own[at] for at in range(4))]
                assert sorted([*marked, place % 16]) == sorted(beside.tolist())
            browser.run("moment.value = 437; moment.dispatchEvent(new Event('input'))")
            timeline = simulate(schedule, costs)
            time = 0.437 * timeline.makespan
            running = schedule.device[(timeline.start <= time) & (time < timeline.end)]
            said = f"{len(set(running.tolist()))} of 4 devices compute"
            assert said in browser.run("document.getElementById('at').textContent")
