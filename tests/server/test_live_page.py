"""The live page in a real browser, served by the command itself."""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.parse import quote

import pytest

from tests.commands import SOURCE
from tests.pages import BROWSER

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")]


@pytest.fixture(scope="module")
def address():
    """The address of ``ppsim serve`` in a process of its own."""
    words = [sys.executable, "-m", "ppsim", "serve", "--port", "0", "--no-open"]
    served = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=SOURCE)
    assert served.stdout
    yield served.stdout.readline().strip()
    served.terminate()
    assert served.wait(20) in (143, -15)


def opened(address: str, folder) -> str:
    """The page as the browser has it after a while."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900", "--virtual-time-budget=8000"]
    command = [str(BROWSER), *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, timeout=120, check=True, text=True, encoding="utf-8").stdout


def test_a_line_in_the_address_is_drawn_with_its_controls(address, tmp_path):
    line = "zb-1p dualpipe-v --devices 5 --mb 11 --comm 0.25 --p2p overlap --speed 1,1,0.5,1,1"
    page = opened(f"{address}?line={quote(line)}", tmp_path)
    assert '<p id="fault" role="alert" hidden' in page
    assert re.search(r"<h1>ZB-1P · DualPipe-V</h1>", page)
    assert "ppsim compare zb-1p dualpipe-v --devices 5 --mb 11" in page
    assert re.search(r'data-answered="1"', page)
    assert "device 4" in page


def test_a_refusal_is_shown_and_the_drawing_stays(address, tmp_path):
    page = opened(f"{address}?line={quote('1f1b --devices 4 --mb 8 --tf nonsense')}", tmp_path)
    shown = re.search(r'<p id="refused"[^>]*>([^<]+)<', page)
    assert shown
    assert "nonsense" in shown[1]
    assert "1F1B · ZB-1P" in page
