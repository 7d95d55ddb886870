"""Every kind of page opens without an error, fits a phone, and keeps the rules that axe-core
checks, in both themes.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.axe import broken_rules
from tests.browser import DESK, PHONE, Browser, started
from tests.commands import invoke
from tests.serving import serving

PUBLISHED = Path(__file__).parents[2] / "data" / "published" / "megatron_weak_scaling.json.gz"
ON_NODES = "interleaved --devices 4 --mb 8 --unit ms --tf 2 --tb 4 --cluster gallery/two-nodes.toml"
PAGES = {
    "one schedule": "run 1f1b --stages 4 --mb 8",
    "op from inside": "run 1f1b --devices 4 --mb 8 --segments gallery/segments.toml",
    "streams": "run interleaved --devices 4 --mb 8 --offload 1 --t-offload 0.5 --t-reload 0.5",
    "bubbles by cause": "explain 1f1b --stages 4 --mb 8 --comm 0.3 --what-if tf.3=0.9",
    "causes with messages": "explain 1f1b --stages 4 --mb 8 --comm 0.3 --p2p blocking",
    "causes on a cluster": f"explain {ON_NODES}",
    "causes of a trace": "explain --trace tests/data/real_runs/primus_pp8",
    "a job": "explain tests/data/real_runs/stragglers/trace-ST.parquet",
    "several schedules": "compare 1f1b zb-1p dualpipe-v --devices 4 --mb 8",
    "messages": "run 1f1b --stages 4 --mb 8 --comm 0.5 --p2p blocking",
    "two runs": "diff 1f1b zb-1p --devices 4 --mb 8 --comm 0.2",
    "two runs with messages": "diff 1f1b zb-1p --devices 4 --mb 8 --comm 0.2 --p2p overlap",
    "a run and a trace": "diff tests/data/real_runs/recorded_1f1b 1f1b",
    "plans": "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --gbs 16 --schedules 1f1b",
    "memory by content": "memory zb-v --devices 4 --mb 8 --model llama3-8b",
    "memory under a cap": "memory 1f1b --devices 4 --mb 8 --model llama3-8b --cap 80GiB",
    "cluster": f"run {ON_NODES}",
    "spread": "jitter 1f1b zb-1p --devices 4 --mb 8 --samples 200",
    "published runs": "plan --against PUBLISHED",
    "predicted and measured": "validate --from-record tests/data/records/timed-p2.json.gz",
    "time against memory": "sweep 1f1b zb-1p interleaved:2 --devices 2,4 --mb 4,8",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_fits_a_phone_and_keeps_the_rules_of_axe(name, tmp_path, browser):
    published = tmp_path / "published.json"
    published.write_bytes(gzip.decompress(PUBLISHED.read_bytes()))
    words = [str(published) if word == "PUBLISHED" else word for word in PAGES[name].split()]
    target = tmp_path / "x.html"
    assert invoke(*words, "-q", "-o", str(target)).exit_code == 0
    check_page(browser, target.as_uri())


@pytest.mark.browser
def test_the_live_page_opens_fits_a_phone_and_keeps_the_rules_of_axe(browser):
    """Served, as it asks its server for reasons a moment after it is open."""
    with serving() as address:
        check_page(browser, address, "document.documentElement.hasAttribute('data-told')")


@pytest.mark.browser
def test_the_size_of_a_cap_is_read_whole_on_a_phone(tmp_path, browser):
    target = tmp_path / "x.html"
    words = [
        "memory",
        "1f1b",
        "--devices",
        "12",
        "--mb",
        "24",
        "--model",
        "llama3-8b",
        "--cap",
        "40GiB",
    ]
    invoke(*words, "-q", "-o", str(target))
    for size, label in ((PHONE, "cap 40 GiB"), (DESK, "cap 40 GiB, passed by devices 1, 2, 3")):
        browser.ask("Emulation.setDeviceMetricsOverride", **size)
        browser.open(target.as_uri())
        found = "[...document.querySelectorAll('#marks text')].map(text => text.textContent)"
        assert label in browser.run(found)
    browser.ask("Emulation.clearDeviceMetricsOverride")


def check_page(browser: Browser, address: str, whole: str = "true") -> None:
    """Look at a page in both themes and on a phone, once a condition says that it is whole."""
    for theme in ("light", "dark"):
        browser.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )
        browser.open(address)
        browser.wait(whole)
        assert broken_rules(browser, colours_alone=theme == "dark") == [], theme
        assert browser.errors == []
    browser.ask("Emulation.setDeviceMetricsOverride", **PHONE)
    browser.open(address)
    browser.wait(whole)
    assert browser.run("document.documentElement.scrollWidth") <= PHONE["width"]
    browser.ask("Emulation.clearDeviceMetricsOverride")
    assert browser.errors == []
