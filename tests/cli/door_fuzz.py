"""Stored commands, mutated, as files of ppsim and lists of figures hold them: each ends within its target.

    python -m tests.cli.door_fuzz SEED COUNT

prints every case that reads, writes, connects or starts anything else, or ends in anything but an answer or a refusal.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import click

from ppsim.base.compiled import cache_folder
from ppsim.cli import group
from tests.commands import ROOT, answer, invoke

STORED = (
    "run 1f1b --devices 2 --mb 2 --tf 1,2 --unit ms",
    "run --schedule zb-1p --stages 2 --mb 3 --title Own --width 4.5 --link 0-1=2",
    "run interleaved --devices 2 --mb 4 --p2p overlap --cluster dgx-h100 --unit ms --mb-scale uniform:0.1:3",
    "compare 1f1b gpipe --devices 2 --mb 2 --tradeoff",
    "explain 1f1b --stages 2 --mb 2 --what-if schedule=gpipe",
    "memory 1f1b --stages 2 --mb 2 --cap 8",
    "sweep 1f1b gpipe --devices 2 --mb 2,4",
    "diff 1f1b gpipe --devices 2 --mb 2",
    "convert x.json",
    "jitter 1f1b --devices 2 --mb 2 --samples 100",
    "optimize --devices 2 --mb 2 --time-limit 1",
    "validate --from-record x.json",
    "plan --model llama3-8b --cluster dgx-h100 --gpus 4 --gbs 4 --tp 1 --pp 1 --cp 1 --top 1",
)
# What a stranger would like one of them to touch, beside what a spelling may hide.
HOSTILE = (
    *("x.json", "./x.json", "sub/../x.json", "mine.py", "mine.py:mine", "mine", "block.toml", "two.csv", "link.json"),
    *("/etc/passwd", "~/.bashrc", "../out.svg", "-", "--", "/dev/zero", ".", "..", "sub", "1f1b:x.csv", "1.f1b"),
    *("W=two.csv", "W=/etc/passwd", "schedule=mine.py", "schedule=x.json,mb=4", "dgx-h100", "./dgx-h100", "llama3-8b"),
    *("$(touch pwned)", "`touch pwned`", "; touch pwned", "=1+1", "@x", "\n%% x", "a\x1b]0;x\x07", "\u202e", "\ud800"),
    *("evil.svg", "-oevil.svg", "--output=evil.svg", "evil.csv", "mmd", "json", "svg", "local", "1", "", "1f1b"),
    *("tcp://127.0.0.1:{port}", "127.0.0.1:{port}", "--dask=tcp://127.0.0.1:{port}", "--results=evil.csv", "x" * 3000),
)
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.startfile")
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
CONNECTS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "webbrowser.open")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
OWN = ("/stored.json",)
ENDS = Counter[int]()
FORMATS = ("svg", "json", "mmd", "csv", "html")


class Watch:
    """What the process does beside computing, told by the interpreter itself while ``on``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.on, self.seen = folder, False, list[str]()
        self.kept = (str(folder / "out"), os.path.dirname(cache_folder()), os.path.expanduser("~/.config"), "/dev/null")
        sys.addaudithook(self.note)

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        """Keep an event that no stored command may cause."""
        if not self.on:
            return
        if event in CONNECTS or (event in STARTS and "compile_apart" not in str(args)):
            self.seen.append(f"{event} {args}")
        elif event == "open" and isinstance(args[0], str | bytes):
            path, written = os.path.abspath(os.fsdecode(args[0])), args[2] & WRITES
            if not self.may(path) and (written or path.startswith(str(self.folder))):
                self.seen.append(f"{'write' if written else 'read'} {path}")
        elif event in CHANGES:
            paths = [os.path.abspath(os.fsdecode(arg)) for arg in args[:2] if isinstance(arg, str | bytes)]
            if not all(self.may(path) or path.startswith("/proc/self/fd") for path in paths):
                self.seen.append(f"{event} {args}")

    def may(self, path: str) -> bool:
        """Whether a path is the case's own, its target's, or of what Python, numba and matplotlib keep for later."""
        return path.startswith(self.kept) or "__pycache__" in path or path.endswith(OWN)


def decoys(folder: Path) -> None:
    """Files that a stored command would like to read, to run or to overwrite."""
    for name in ("out", "sub"):
        (folder / name).mkdir()
    invoke("run", "1f1b", "--stages", "2", "--mb", "2", "-q", "-o", str(folder / "x.json"))
    for name in ("sub/y.json", "1f1b:x.csv", "1.f1b", "two.csv", "W=two.csv"):
        (folder / name).write_bytes((folder / "x.json").read_bytes())
    (folder / "two.csv").write_text("1,1")
    (folder / "mine.py").write_text("import os; os.system('touch pwned')\ndef mine(shape): return []\n")
    for name in ("dgx-h100", "llama3-8b", "block.toml"):
        (folder / name).write_bytes((ROOT / "gallery" / "two-nodes.toml").read_bytes())
    (folder / "link.json").symlink_to("/etc/passwd")


def mutate(line: str, draw: random.Random, port: int) -> str:
    """Change a stored line: options of any command, hostile values, words left out, glued, moved or torn."""
    words = shlex.split(line)
    spelled = [spelling for param in _params() for spelling in (*param.opts, *param.secondary_opts)]
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at, value = draw.randint(1, len(words)), draw.choice(HOSTILE).replace("{port}", str(port))
        match draw.randrange(10):
            case 0 | 1 | 2:  # texts that are drawn, whatever they say
                words += [draw.choice(("--title", "--unit")), value]
            case 3:
                words[at:at] = [draw.choice(spelled), value]
            case 4:
                words[at:at] = [f"{draw.choice(spelled)}={value}"]
            case 5:
                words[at:at] = [draw.choice(spelled)[:2] + value]
            case 6:
                words.insert(at, value)
            case 7 if at < len(words):
                words[at] = value
            case 8 if at < len(words):
                del words[at]
            case _:
                words[0] = draw.choice([*group.list_commands(click.Context(group)), "view", "-o", "rm", words[0]])
    line = "ppsim " + shlex.join(words)
    if draw.random() < 0.1:
        at = draw.randrange(len(line))
        line = line[:at] + draw.choice("'\"\\\n\x00 -=\u202e;$`") + line[at:]
    return line


def _params() -> Iterator[click.Option]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from (param for param in command.get_params(context) if isinstance(param, click.Option))


def faults(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Every case of so many that does more than write its target, with what it does."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, chdir(name), socket.create_server(("127.0.0.1", 0)) as listener:
        folder = Path(name).resolve()
        decoys(folder)
        listener.setblocking(False)
        watch, before = Watch(folder), _state(folder)
        for _ in range(count):
            line = mutate(draw.choice(STORED), draw, listener.getsockname()[1])
            suffix = draw.choice(FORMATS)
            fault = _rerun(line, suffix, watch)
            watch.seen.clear()
            with_target = _state(folder)
            if with_target != before:
                fault += f" changed {set(with_target.items()) ^ set(before.items())}"
            with suppress(BlockingIOError):
                fault += f" connected from {listener.accept()[1]}"
            if fault:
                yield line, fault


def _rerun(line: str, suffix: str, watch: Watch) -> str:
    Path("stored.json").write_text(json.dumps({"inputs": {"command": line}}))
    watch.on = True
    code, _, errors = answer("rerun", "stored.json", "-o", f"out/safe.{suffix}")
    watch.on = False
    return _fault_of(
        code, errors, [*watch.seen, *(p.name for p in Path("out").iterdir() if p.name != f"safe.{suffix}")]
    )


def _fault_of(code: int, errors: str, seen: list[str]) -> str:
    for path in Path("out").iterdir():
        path.unlink()
    ENDS[code] += 1
    wrong = code not in (0, 1, 2, 3) or "Traceback" in errors or "\x1b" in errors
    return "; ".join(seen) + (f" exit {code}: {errors[-300:]}" if wrong else "")


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and when it was written last, without those that the case itself writes."""
    found = (path for path in folder.rglob("*") if f"/{path.name}" not in (*OWN, "/out"))
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in found}


if __name__ == "__main__":
    found = 0
    for case, fault in faults(int(sys.argv[1]), int(sys.argv[2])):
        found += 1
        print(f"{case!r}"[:600], f"\n  {fault}", flush=True)
    print(f"{found} of {sys.argv[2]} cases of seed {sys.argv[1]} end wrongly; exit codes {dict(ENDS)}")
    sys.exit(found > 0)
