"""Labels of a chart stay apart and inside the picture, whatever the size of the numbers."""

from __future__ import annotations

import pytest

from tests.browser import DESK, PHONE, started
from tests.commands import invoke

# Pages whose labels are long: by the size of times, and by a curve below zero.
PAGES = {
    "huge times": "run zb-1p --devices 3 --mb 4 --tf 1e15 --ti 1e15 --tw 1e15",
    "tiny times": "run 1f1b --devices 3 --mb 4 --tf 1e-9 --tb 2e-9",
    "nine digits": "run 1f1b --devices 3 --mb 4 --unit ms --tf 123456789",
    "below zero": "validate --trace tests/data/real_runs/stragglers/trace-SE.parquet",
}
# Labels that leave the picture, and neighbours in a line that are less than two pixels apart.
FAULTS = """(() => {
  const whole = document.getElementById('marks').getBoundingClientRect();
  const labels = [...document.querySelectorAll('#marks text')].filter(e => e.textContent).map(e => {
    const { left, right, top, bottom } = e.getBoundingClientRect();
    return { text: e.textContent, left, right, top, bottom };
  });
  const outside = labels.filter(l => l.left < whole.left - 1 || l.right > whole.right + 1);
  const close = labels.filter(l => labels.some(other => other !== l && other.left >= l.left
    && other.left < l.right + 2 && Math.abs(other.top - l.top) < 1
    && Math.abs(other.bottom - l.bottom) < 1));
  return [outside.map(l => l.text), close.map(l => l.text), labels.length];
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_labels_of_a_chart_stay_apart_and_inside_the_picture(name, tmp_path, browser):
    target = tmp_path / "x.html"
    assert invoke(*PAGES[name].split(), "-q", "-o", str(target)).exit_code == 0
    for size in (PHONE, DESK):
        browser.ask("Emulation.setDeviceMetricsOverride", **size)
        browser.open(target.as_uri())
        outside, close, count = browser.run(FAULTS)
        assert count > 10
        assert outside == []
        assert close == []


@pytest.mark.browser
def test_a_page_with_a_long_name_fits_a_phone_and_counts_one_device_as_one(tmp_path, browser):
    """Below the chart too, where the tables of several schedules have their names."""
    one, long = tmp_path / "one.csv", tmp_path / f"{'n' * 180}.csv"
    for target in (one, long):
        words = ["run", "1f1b", "--devices", "1", "--mb", "2"]
        assert invoke(*words, "-q", "-o", str(target)).exit_code == 0
    target = tmp_path / "x.html"
    words = ["compare", str(long), str(one), "--devices", "1", "--mb", "2"]
    assert invoke(*words, "-q", "-o", str(target)).exit_code == 0
    browser.ask("Emulation.setDeviceMetricsOverride", **PHONE)
    browser.open(target.as_uri())
    shape = browser.run("document.getElementById('shape').textContent")
    assert shape == "1 device × 1 chunk = 1 stage, 2 microbatches"
    assert browser.run("document.documentElement.scrollWidth") <= PHONE["width"]
