"""``python -m tests.gpu OUT [--minutes 9] [--device cuda|stand-in] [--only PART]``: run every part,
print a table.

Each part is a process with a limit of time; one that fails or hangs does not stop the next. All
that is found is in OUT as soon as it is known, in at most eight files.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import click

MOST_LINES = 60


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.1),
    default=9.0,
    show_default=True,
    help="How long all may take.",
)
@click.option(
    "--device", type=click.Choice(["cuda", "stand-in"]), default="cuda", show_default=True
)
@click.option("--only", multiple=True, metavar="PART", help="Run these parts only; repeatable.")
@click.option("--inside", hidden=True, help="The part that this process runs.")
def main(out: Path, minutes: float, device: str, only: tuple[str, ...], inside: str | None) -> None:
    """Run everything that ppsim does on a GPU, and write what was found to OUT."""
    out.mkdir(parents=True, exist_ok=True)
    if inside:
        run_part(inside, out.resolve(), device)
        return
    from tests.gpu.parts import PARTS

    wanted = [name for name in PARTS if not only or name in only]
    begun, spent = time.monotonic(), dict[str, tuple[float, str]]()
    for name in wanted:
        left = minutes * 60 - (time.monotonic() - begun)
        limit = min(left, 60 * minutes * PARTS[name][1] * (1.0 if not only else 3.0))
        if limit < 5:
            spent[name] = (0.0, "no time left")
            continue
        spent[name] = timed_part(name, out, device, limit)
        print(f"{name}: {spent[name][0]:.0f} s {spent[name][1]}", flush=True)
    print_table(out, spent)


def timed_part(name: str, out: Path, device: str, limit: float) -> tuple[float, str]:
    """Run a part in a process of its own; returns seconds, and why it ended early."""
    begun = time.monotonic()
    with open(out / "log.txt", "ab") as log:
        log.write(f"\n== {name}\n".encode())
        log.flush()
        words = [sys.executable, "-m", "tests.gpu", str(out), "--device", device, "--inside", name]
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(limit)
            said = "" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            said = f"ended after {limit:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
    return time.monotonic() - begun, said


def run_part(name: str, out: Path, device: str) -> None:
    """Run a part in this process, and write each line as it is found."""
    from tests.gpu.parts import PARTS, SMALL, Bench, Size, save_in

    lines: list[list[object]] = []

    os.chdir(out)  # commands name their files without a folder

    def work() -> None:
        bench = Bench(Path(), device, SMALL if device == "stand-in" else Size())
        for finding in PARTS[name][0](bench):
            print(finding, flush=True)
            lines.append([finding.what, finding.text, finding.met])
            save_in(Path(), f"{name} lines", lines)

    try:
        if device == "stand-in":
            from tests.gpu.stand_in import stand_in

            with stand_in():
                work()
        else:
            work()
    except BaseException as error:
        traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        lines.append(["FAILED", f"{type(error).__name__}: {str(error)[:400]} ({where})", False])
        save_in(Path(), f"{name} lines", lines)
        sys.exit(1)


def print_table(out: Path, spent: dict[str, tuple[float, str]]) -> None:
    """Print each part with its seconds and numbers; what has a goal first where there are too many
    lines.
    """
    results = (
        json.loads((out / "results.json").read_text()) if (out / "results.json").exists() else {}
    )
    rows = []
    for name, (seconds, why) in spent.items():
        rows.append((0, f"{name:<11}{seconds:5.0f} s  {why}"))
        for what, text, met in results.get(f"{name} lines", []):
            mark = {True: "pass", False: "MISS", None: "    "}[met]
            rows.append((1 if met is not None else 2, f"  {mark} {what}: {text}"))
    kept = set(sorted(range(len(rows)), key=lambda at: (rows[at][0], at))[:MOST_LINES])
    for at, (_, line) in enumerate(rows):
        if at in kept:
            print(line[:200])


if __name__ == "__main__":
    main()
