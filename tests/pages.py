"""Pages made from schedules, and opened in a browser."""

import io
import re
import shutil
import subprocess
from xml.etree import ElementTree

from ppsim.show.files.document import Document
from ppsim.show.files.writers.html import write

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)


def page(*timelines, titles=None, memory=(), executions=(), cap=None, **inputs):
    out = io.BytesIO()
    names = tuple(titles or (t.schedule.name for t in timelines))
    write(
        Document(timelines, names, inputs, memory=memory, executions=executions, cap=cap),
        out,
        ".html",
    )
    return out.getvalue().decode()


# Alone on the machine: no profile of before, no shared memory that a container may lack, nothing
# from the network.
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
QUIET += ["--disable-background-networking", "--disable-component-update", "--disable-default-apps"]
QUIET += ["--disable-extensions", "--disable-sync"]


def opened(text, folder, size="1440,900"):
    """The page as a browser has it after a while; fails where the page says that it failed."""
    target = folder / "page.html"
    target.write_text(text, "utf-8")
    dom = shown(target.as_uri(), folder, size)
    fault = re.search(r'<p id="fault"[^>]*>([^<]*)<', dom)
    assert fault
    assert fault[1] == ""
    return dom


def shown(address, folder, size="1440,900"):
    """What a browser has of an address after five seconds of its own time; one that hangs is
    started again once.
    """
    flags = [*QUIET, f"--window-size={size}", "--virtual-time-budget=5000", "--dump-dom"]

    def start(profile):
        command = [str(BROWSER), *flags, f"--user-data-dir={folder / profile}", address]
        return subprocess.run(
            command, capture_output=True, timeout=60, check=True, encoding="utf-8"
        ).stdout

    try:
        return start("profile")
    except subprocess.TimeoutExpired:
        return start("again")


def texts(svg):
    """Every text of an SVG, as a reader sees it."""
    return [
        "".join(element.itertext()).replace("\xa0", " ")
        for element in ElementTree.fromstring(svg).iter()
        if "text" in element.tag
    ]
