"""A browser that a test drives as a user would: mouse, files and downloads, through its debugging
pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tests.clock import HANG_S
from tests.pages import BROWSER, QUIET

FLAGS = (*QUIET, "--window-size=1300,900", "--remote-debugging-pipe")


class Browser:
    """One page of a browser, to which it talks in messages that end with a zero byte."""

    def __init__(self, answers: BinaryIO, commands: BinaryIO) -> None:
        self._from, self._to = answers, commands
        self._number, self._session = 0, ""
        self.errors: list[dict[str, Any]] = []  # what the console told of the page that is open
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for part in ("Page", "Runtime", "Log"):
            self.ask(f"{part}.enable")

    def ask(self, method: str, **params: Any) -> Any:
        """Send a command of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while (answer := self._next()).get("id") != self._number:
            told = answer.get("params", {})
            if "exceptionDetails" in told or "error" in (
                told.get("type"),
                told.get("entry", {}).get("level"),
            ):
                self.errors.append(told)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        letters = bytearray()
        while (letter := self._from.read(1)) != b"\0":
            assert letter, "the browser has ended"
            letters += letter
        found: dict[str, Any] = json.loads(letters)
        return found

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
        """Wait until a condition on the page holds."""
        late = f"const late = setTimeout(() => fail(Error({condition!r})), {1000 * HANG_S:.0f})"
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
def started(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, whose downloads go to the folder."""
    ours, theirs = os.pipe(), os.pipe()  # from it, to it
    words = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    pipes = ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{ours[1]} 2>/dev/null', "-"]
    with open(ours[0], "rb") as answers, open(theirs[1], "wb") as commands:
        process = subprocess.Popen(
            [*pipes, *words], pass_fds=(theirs[0], ours[1]), stdout=subprocess.DEVNULL
        )
        os.close(theirs[0])
        os.close(ours[1])
        try:
            browser = Browser(answers, commands)
            browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
            yield browser
        finally:
            process.terminate()
            process.wait(HANG_S)
