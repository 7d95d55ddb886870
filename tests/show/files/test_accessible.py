"""Pages keep the rules that axe-core checks, in light and in dark."""

from __future__ import annotations

import gzip
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from ppsim.show.server.page import live_page
from tests.commands import invoke
from tests.pages import BROWSER, opened

RUN = """
<script>
const drawn = setInterval(async () => {
  if (document.documentElement.dataset.state !== 'drawn') return;
  clearInterval(drawn);
  const found = [];
  for (const theme of ['light', 'dark']) {
    document.documentElement.dataset.theme = theme;
    const { violations, passes } = await axe.run();
    const told = violations.map(v => `${v.id}: ${v.nodes.map(n => n.target)}`);
    found.push({ theme, passes: passes.length, violations: told });
  }
  document.body.append(Object.assign(document.createElement('pre'), { id: 'axe', textContent: JSON.stringify(found) }));
}, 50);
</script></body>
"""
PUBLISHED = Path(__file__).parents[2] / "data" / "published" / "megatron_weak_scaling.json.gz"
PAGES = {
    "one schedule, bubbles by cause": "explain 1f1b --stages 4 --mb 8 --comm 0.3",
    "several schedules": "compare 1f1b zb-1p dualpipe-v --devices 4 --mb 8",
    "messages": "run 1f1b --stages 4 --mb 8 --comm 0.5 --p2p blocking",
    "two runs": "diff 1f1b zb-1p --devices 4 --mb 8 --comm 0.2",
    "plans": "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --gbs 16 --schedules 1f1b",
    "memory by content": "memory zb-v --devices 4 --mb 8 --model llama3-8b",
    "film of a search": "optimize --devices 3 --mb 4 --ti 1.1 --tw 0.9 --comm 0.2 --time-limit 3",
    "cluster": "run interleaved --devices 4 --mb 8 --unit ms --tf 2 --tb 4 --cluster gallery/two-nodes.toml",
    "spread": "jitter 1f1b zb-1p --devices 4 --mb 8 --samples 200",
    "published runs": "plan --against PUBLISHED",
    "predicted and measured": "validate --from-record tests/data/records/timed-p2.json.gz",
    "time against memory": "sweep 1f1b zb-1p interleaved:2 --devices 2,4 --mb 4,8",
}


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome on the path")
@pytest.mark.parametrize("name", [*PAGES, "live"])
def test_axe_finds_no_fault_in_a_page(name, tmp_path):
    if name == "live":
        from ppsim.cli.serve import FIRST
        from ppsim.questions.view import view

        text = live_page(view(FIRST, Path()), FIRST, FIRST["names"]).decode()
    else:
        target = tmp_path / "x.html"
        published = tmp_path / "published.json"
        published.write_bytes(gzip.decompress(PUBLISHED.read_bytes()))
        words = [str(published) if word == "PUBLISHED" else word for word in PAGES[name].split()]
        assert invoke(*words, "-q", "-o", str(target)).exit_code == 0
        text = target.read_text()
    axe = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    dom = opened(text.replace("</body>", f"<script>{axe}</script>{RUN}"), tmp_path)
    said = re.search(r'<pre id="axe">(.*?)</pre>', dom, re.S)
    assert said
    for each in json.loads(said[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")):
        assert each["passes"] > 20
        assert each["violations"] == [], each["theme"]
