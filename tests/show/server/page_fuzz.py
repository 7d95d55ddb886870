"""Fields of the live page, mutated: none of them reads, writes, connects or starts anything.

    python -m tests.show.server.page_fuzz SEED COUNT

prints every case that does, or ends in anything but an answer or a refusal.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

from ppsim.ask.options import list_options
from ppsim.base.compiled import cache_folder
from ppsim.errors import PpsimError
from ppsim.questions.across.view import ViewRequest, explain_first, plan_request, view
from ppsim.questions.across.view_model import PlanPageRequest
from tests.commands import ROOT, invoke

Ask = Callable[[Mapping[str, Any], Path], object]
ASKED: tuple[tuple[Ask, dict[str, Any]], ...] = (
    (view, {"names": ["1f1b"], "devices": 2, "mb": 2, "tf": "1,2", "unit": "ms"}),
    (view, {"names": ["zb-1p", "gpipe"], "stages": 2, "mb": 3, "link": ["0-1=2"]}),
    (
        view,
        {
            "names": ["interleaved"],
            "devices": 2,
            "mb": 4,
            "p2p": "overlap",
            "cluster": "dgx-h100",
            "unit": "ms",
        },
    ),
    (
        view,
        {
            "names": ["1f1b"],
            "devices": 2,
            "mb": 2,
            "mb_scale": ["W=uniform:0.1:3"],
            "order": "early",
        },
    ),
    (view, {"names": ["1f1b"], "devices": 2, "mb": 2, "model": "llama3-8b", "cluster": "dgx-h100"}),
    (view, {"names": ["dropped:x.json", "1f1b"]}),
    (explain_first, {"names": ["1f1b"], "devices": 2, "mb": 2}),
    (
        explain_first,
        {"names": ["seq1f1b"], "devices": 2, "mb": 4, "slice_scale": "1,2", "slices": 2},
    ),
    (
        lambda fields, folder: plan_request(fields),
        {"model": "llama3-8b", "cluster": "dgx-h100", "gpus": 8, "gbs": 8},
    ),
)
# What a stranger would like a field to touch, with words and numbers that options take.
HOSTILE = (
    *(
        "x.json",
        "./x.json",
        "sub/../x.json",
        "mine.py",
        "mine.py:mine",
        "mine",
        "block.toml",
        "two.csv",
        "link.json",
    ),
    *(
        "dropped:x.json",
        "dropped:../x.json",
        "dropped:mine.py",
        "dropped:/etc/passwd",
        "dropped:",
        "dropped:sub",
    ),
    *(
        "/etc/passwd",
        "~/.bashrc",
        "../out.svg",
        "-",
        "--",
        "/dev/zero",
        ".",
        "..",
        "sub",
        "1f1b:x.csv",
        "1.f1b",
    ),
    *(
        "W=two.csv",
        "W=/etc/passwd",
        "schedule=mine.py",
        "schedule=x.json,mb=4",
        "dgx-h100",
        "./dgx-h100",
        "llama3-8b",
    ),
    *(
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned",
        "=1+1",
        "@x",
        "\n%% x",
        "a\x1b]0;x\x07",
        "\u202e",
        "\ud800",
    ),
    *(
        "tcp://127.0.0.1:{port}",
        "127.0.0.1:{port}",
        "x" * 3000,
        "local",
        "1",
        "",
        "1f1b",
        "1,2",
        "lognormal:0.2:7",
    ),
)
TEXTS = ("unit", "names", "cluster", "mb_scale")  # of which many are answered
OTHER = (
    "output",
    "format",
    "results",
    "dask",
    "module",
    "record",
    "against",
    "costs",
    "__class__",
    "names.0",
)
WORDS = sorted(
    {
        word
        for kind in (ViewRequest, PlanPageRequest)
        for each in list_options(kind)
        for word in each.words
    }
)
STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.startfile",
)
CHANGES = (
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
)
CONNECTS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "webbrowser.open")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ENDS = Counter[str]()


class Watch:
    """What the process does beside computing, told by the interpreter itself while ``on``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.drops, self.on, self.seen = (
            folder,
            str(folder / "drops"),
            False,
            list[str](),
        )
        self.kept = (os.path.dirname(cache_folder()), os.path.expanduser("~/.config"), "/dev/null")
        sys.addaudithook(self.note)

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        """Keep an event that no field may cause."""
        if not self.on:
            return
        if event in CONNECTS or event in STARTS:
            self.seen.append(f"{event} {args}")
        elif event == "open" and isinstance(args[0], str | bytes):
            path, written = os.path.abspath(os.fsdecode(args[0])), args[2] & WRITES
            read = path.startswith((str(self.folder), "/etc", "/dev")) and not path.startswith(
                self.drops
            )
            if not self.may(path) and (written or read):
                self.seen.append(f"{'write' if written else 'read'} {path}")
        elif event in CHANGES:
            paths = [
                os.path.abspath(os.fsdecode(arg))
                for arg in args[:2]
                if isinstance(arg, str | bytes)
            ]
            if not all(self.may(path) or path.startswith("/proc/self/fd") for path in paths):
                self.seen.append(f"{event} {args}")

    def may(self, path: str) -> bool:
        """Whether a path is of what Python, numba and matplotlib keep for later."""
        return path.startswith(self.kept) or "__pycache__" in path


def decoys(folder: Path) -> None:
    """Files that a field would like to read, to run or to overwrite; in ``drops`` those that it may
    read.
    """
    for name in ("drops", "drops/sub", "sub"):
        (folder / name).mkdir()
    invoke("run", "1f1b", "--stages", "2", "--mb", "2", "-q", "-o", str(folder / "x.json"))
    for name in ("sub/y.json", "1f1b:x.csv", "1.f1b", "two.csv", "W=two.csv", "drops/x.json"):
        (folder / name).write_bytes((folder / "x.json").read_bytes())
    (folder / "two.csv").write_text("1,1")
    for name in ("mine.py", "drops/mine.py"):
        (folder / name).write_text(
            "import os; os.system('touch pwned')\ndef mine(shape): return []\n"
        )
    for name in ("dgx-h100", "llama3-8b", "block.toml"):
        (folder / name).write_bytes((ROOT / "gallery" / "two-nodes.toml").read_bytes())
    (folder / "link.json").symlink_to("/etc/passwd")


def mutate(fields: Mapping[str, Any], draw: random.Random, port: int) -> dict[str, Any]:
    """Change fields: hostile values for one to three of them, alone, in a list, or after what was
    there.
    """
    mutated = dict(fields)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        word = draw.choice([*WORDS, *TEXTS * 9, *fields, *fields, *OTHER])
        value = draw.choice(HOSTILE).replace("{port}", str(port))
        match draw.randrange(5):
            case 0 | 1:
                mutated[word] = value
            case 2:
                mutated[word] = [value]
            case 3:
                before = mutated.get(word)
                mutated[word] = [
                    *(before if isinstance(before, list) else [before or "1f1b"]),
                    value,
                ]
            case _:
                mutated.pop(word, None)
    return mutated


def faults(seed: int, count: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Every case of so many that does more than compute, with what it does."""
    draw = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as name,
        chdir(name),
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        folder = Path(name).resolve()
        decoys(folder)
        listener.setblocking(False)
        for ask, fields in ASKED:  # what is compiled or imported when first needed
            ask(fields, folder / "drops")
        watch, before = Watch(folder), _state(folder)
        for _ in range(count):
            ask, usual = draw.choice(ASKED)
            fields = mutate(usual, draw, listener.getsockname()[1])
            fault = _fault(ask, fields, watch)
            if _state(folder) != before:
                fault += f" changed {set(_state(folder).items()) ^ set(before.items())}"
            with suppress(BlockingIOError):
                fault += f" connected from {listener.accept()[1]}"
            if fault:
                yield fields, fault


def _fault(ask: Ask, fields: Mapping[str, Any], watch: Watch) -> str:
    watch.on, ended = True, ""
    try:
        ask(fields, Path(watch.drops))
        ENDS["answered"] += 1
    except PpsimError as error:
        ENDS["refused"] += 1
        ended = " the words of a file" if "root:" in f"{error} {error.hint}" else ""
    except Exception as error:
        ended = f" {type(error).__name__}: {error}"
    finally:
        watch.on = False
    seen, watch.seen = watch.seen, []
    return "; ".join(seen) + ended


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file, when it was written last, and its size."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")
    }


if __name__ == "__main__":
    found = 0
    for case, fault in faults(int(sys.argv[1]), int(sys.argv[2])):
        found += 1
        print(f"{case!r}"[:600], f"\n  {fault}", flush=True)
    print(f"{found} of {sys.argv[2]} cases of seed {sys.argv[1]} end wrongly; {dict(ENDS)}")
    sys.exit(found > 0)
