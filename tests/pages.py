"""Pages made from schedules, and opened in a browser."""

import io
import re
import shutil
import subprocess
from xml.etree import ElementTree

from ppsim.files.document import Document
from ppsim.files.writers.html import write

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def page(*timelines, titles=None, memory=(), executions=(), cap=None, **inputs):
    out = io.BytesIO()
    names = tuple(titles or (t.schedule.name for t in timelines))
    write(Document(timelines, names, inputs, memory=memory, executions=executions, cap=cap), out, ".html")
    return out.getvalue().decode()


def opened(text, folder, size="1440,900"):
    """The page as a browser has it after a while; fails where the page says that it failed."""
    target = folder / "page.html"
    target.write_text(text, "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={size}", "--virtual-time-budget=5000"]
    command = [str(BROWSER), *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", target.as_uri()]
    dom = subprocess.run(command, capture_output=True, timeout=120, check=True, text=True, encoding="utf-8").stdout
    fault = re.search(r'<p id="fault"[^>]*>([^<]*)<', dom)
    assert fault
    assert fault[1] == ""
    return dom


def texts(svg):
    """Every text of an SVG, as a reader sees it."""
    return [
        "".join(element.itertext()).replace("\xa0", " ")
        for element in ElementTree.fromstring(svg).iter()
        if "text" in element.tag
    ]
