"""A browser that a test drives as a user would: mouse, files and downloads, through its debugging
pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clock import HANG_S

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
# Alone on the machine: no profile of before, no shared memory that a container may lack, nothing
# from the network.
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
QUIET += ["--disable-background-networking", "--disable-component-update", "--disable-default-apps"]
QUIET += ["--disable-extensions", "--disable-sync"]
# Seconds after which a condition is taken for one that never holds: far more than a page takes on a
# loaded machine.
WAIT_S = 300.0
# Sizes of a page for ``Emulation.setDeviceMetricsOverride``.
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
DESK = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
FLAGS = (*QUIET, "--window-size=1300,900", "--remote-debugging-pipe")


class Process:
    """A running browser, whose messages end with a zero byte. Its start takes longer than most
    pages, so that all tests of a process have one.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ppsim-browser-"))
        ours, theirs = os.pipe(), os.pipe()  # from it, to it
        words = [str(BROWSER), *FLAGS, f"--user-data-dir={self.folder}"]
        pipes = ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{ours[1]} 2>/dev/null', "-"]
        self.process = subprocess.Popen(
            [*pipes, *words], pass_fds=(theirs[0], ours[1]), stdout=subprocess.DEVNULL
        )
        os.close(theirs[0])
        os.close(ours[1])
        self.answers, self.commands = os.fdopen(ours[0], "rb", 0), os.fdopen(theirs[1], "wb")
        self.told = b""  # what was read of the answers and not returned
        self.last = 0

    def send(self, message: dict[str, Any]) -> int:
        """Send a command and return its number."""
        self.last += 1
        self.commands.write(json.dumps({"id": self.last} | message).encode() + b"\0")
        self.commands.flush()
        return self.last

    def next(self) -> dict[str, Any]:
        """Return the next answer or event; fails where none comes within the limit."""
        while b"\0" not in self.told:
            ready, _, _ = select.select([self.answers], [], [], HANG_S)
            assert ready, f"the browser has said nothing for {HANG_S:.0f} s"
            more = self.answers.read(1 << 16)
            assert more, "the browser has ended"
            self.told += more
        message, _, self.told = self.told.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def end(self) -> None:
        """End the process and remove its profile."""
        self.process.terminate()
        self.process.wait(HANG_S)
        self.answers.close()
        self.commands.close()
        shutil.rmtree(self.folder, ignore_errors=True)


running: list[Process] = []


def running_browser() -> Process:
    """Return the browser of all tests, started where none runs."""
    if running and running[-1].process.poll() is not None:
        running.pop().end()
    if not running:
        running.append(Process())
        atexit.register(running[-1].end)
    return running[-1]


class Browser:
    """One page of a browser, in a profile that no other page shares."""

    def __init__(self, size: str = "1300,900") -> None:
        self._process, self._session = running_browser(), ""
        self.errors: list[dict[str, Any]] = []  # what the console told of the page that is open
        self.context = self.ask("Target.createBrowserContext")["browserContextId"]
        width, height = map(int, size.split(","))
        target = self.ask(
            "Target.createTarget",
            url="about:blank",
            browserContextId=self.context,
            width=width,
            height=height,
        )["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.ask(f"{part}.enable")
        # A browser has one page in focus, and only that one may copy: each counts as in focus.
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)

    def ask(self, method: str, **params: Any) -> Any:
        """Send a command of the protocol and return its result."""
        # permissions and downloads of this page's profile
        if method.startswith("Browser."):
            params["browserContextId"] = self.context
        message: dict[str, Any] = {"method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        number = self._process.send(message)
        while (answer := self._process.next()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def hear(self, event: str) -> None:
        """Wait until the page tells an event."""
        while (told := self._process.next()).get("method") != event or not self._is_mine(told):
            self._note(told)

    def _is_mine(self, message: dict[str, Any]) -> bool:
        return message.get("sessionId", "") == self._session

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        if self._is_mine(event) and (
            "exceptionDetails" in told
            or "error" in (told.get("type"), told.get("entry", {}).get("level"))
        ):
            self.errors.append(told)

    def close(self) -> None:
        """Ask the browser to close the page with its profile, and wait for nothing."""
        disposed = {"browserContextId": self.context}
        self._process.send({"method": "Target.disposeBrowserContext", "params": disposed})

    def run(self, script: str) -> Any:
        """The value of an expression on the page, awaited; fails where it throws."""
        done = self.ask(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until a condition on the page holds; fails with it and the page's address where it
        does not within the limit.
        """
        said = f"{json.dumps(f'waited {WAIT_S:.0f} s for {condition} at ')} + location.href"
        late = f"const late = setTimeout(() => fail(Error({said})), {1000 * WAIT_S:.0f})"
        poll = f"if ({condition}) {{ clearInterval(at); clearTimeout(late); done(); }}"
        self.run(
            f"new Promise((done, fail) => {{ {late}; const at = setInterval(() => {{ {poll} }}, "
            f"10); }})"
        )

    def open(self, address: str) -> None:
        """Go to an address and wait until its chart is drawn; fails where the page says that it
        failed.
        """
        self.ask("Page.navigate", url="about:blank")
        self.errors.clear()
        self.ask("Page.navigate", url=address)
        self.wait("['drawn', 'failed'].includes(document.documentElement?.dataset.state)")
        assert self.run("document.getElementById('fault')?.textContent ?? ''") == ""

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Press, move or release the left button."""
        self.ask(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )

    def middle(self, selector: str) -> tuple[float, float]:
        """Where the middle of an element is."""
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y = self.run(
            f"(() => {{ const b = {box}; return [b.left + b.width / 2, b.top + b.height / 2]; }})()"
        )
        return x, y

    def click(self, selector: str) -> None:
        """Click an element."""
        x, y = self.middle(selector)
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def drag(self, selector: str, by: float, steps: int = 3) -> None:
        """Press the middle of an element, move sideways in steps, and release."""
        x, y = self.middle(selector)
        self.mouse("mousePressed", x, y)
        for step in range(1, steps + 1):
            self.mouse("mouseMoved", x + by * step / steps, y)
        self.mouse("mouseReleased", x + by, y)

    def drop(self, selector: str, file: Path) -> None:
        """Drop a file on an element, as from the desktop."""
        x, y = self.middle(selector)
        data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.ask("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)


@contextlib.contextmanager
def started(folder: Path, size: str = "1300,900") -> Iterator[Browser]:
    """A page with a profile of its own, whose downloads go to the folder."""
    browser = Browser(size)
    try:
        browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        yield browser
    finally:
        browser.close()


def opened(text: str, folder: Path, size: str = "1440,900") -> str:
    """The page as a browser has it after a while; fails where the page says that it failed."""
    target = folder / "page.html"
    target.write_text(text, "utf-8")
    dom = shown(target.as_uri(), folder, size)
    fault = re.search(r'<p id="fault"[^>]*>([^<]*)<', dom)
    assert fault
    assert fault[1] == ""
    return dom


def shown(address: str, folder: Path, size: str = "1440,900") -> str:
    """What a browser has of an address after five seconds of the page's time."""
    with started(folder, size) as browser:
        browser.ask("Page.navigate", url=address)
        browser.ask(
            "Emulation.setVirtualTimePolicy", policy="pauseIfNetworkFetchesPending", budget=5000
        )
        browser.hear("Emulation.virtualTimeBudgetExpired")
        whole: str = browser.run("document.documentElement.outerHTML")
        return whole
