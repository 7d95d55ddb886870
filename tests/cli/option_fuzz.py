"""Random combinations of the commands' own options, each in a process with limits of time and
memory.

    python -m tests.cli.option_fuzz SEED COUNT [COMMAND TO LEAVE OUT]

prints every case that ends in anything but an answer or a refusal.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from ppsim.ask.types import Counts, Numbers, ScheduleName, Share
from ppsim.cli import group, main
from tests.cases import PLAIN
from tests.commands import ROOT, invoke

CPU_S, CPU_OF_LONG_S, WALL_S = 10, 60, 300
ENDLESS = ("open", "serve")  # they answer until they are interrupted
LONG = ("jitter",)  # thousands of samples of each schedule
SEARCHES = ("partition", "optimize")
MEMORY_BYTES = 1 << 30
SPACE_BYTES = 8 << 30
CODES = {0, 1, 2, 3}

SIZES = ["1", "2", "3", "4", "6", "8", "12", "16", "64"]
COUNTS = [*SIZES * 3, "0", "-1", "300", "5000", "99999999", "9" * 30, "x", "", "1_0"]
TIMES = [
    "1",
    "2",
    "0.5",
    "1,2",
    "1,1,1.3,1",
    "3",
    "0",
    "1e-9",
    "1e308",
    "1e400",
    "nan",
    "inf",
    "-1",
    "",
    ",",
    "x",
    "1_0",
    "\uff12",
]
SPECIAL = ["-", "", ".", "none.toml", "/dev/null", "/dev/zero", "x" * 300, "x/" * 3000]
TEXTS = [
    "ms",
    "us",
    "s",
    "t_F",
    "",
    " ",
    "k cycles",
    "[/]",
    "[bold]x",
    "$\\bad{$",
    "\udcff",
    "秒",
    "x\ny",
    "<b>",
    "x" * 5000,
]
BYTES = ["80GiB", "1e9", "5", "65536", "3.7", "1e999", "1e300GiB", "-1", "0", "x", "", "9" * 400]
ORDERS = ["deferred", "prefetch:2", "as-listed", "async", "prefetch:" + "9" * 5000, "x", ""]
WORDS = ["median", "1", "all", "1f1b", "-1", "%s%n", "1:2:3", ""]
TARGETS = ["-", "/dev/null", "none/x.svg", ""]
LAYOUTS = [
    "Et|tL",
    "Et*3|tt||tL",
    "E|t*3|(t|)*5mL",
    "Et|(t|)*6tL",
    "t|L",
    "Et*99999999",
    "(((",
    "",
    "E|q",
    "|*9999",
]
MANY = ("compare", "sweep", "jitter", "explain")
NEEDED = ("devices", "microbatches", "num_layers", "gpus", "gbs")
SUFFIXES = ["csv", "json", "mmd", "trace.json", "svg", "png", "pdf", "html", "xyz", ""]
# What options say by name or in a language of their own, sound ones first.
NAMED = {
    "software": [
        "megatron-bridge@26.06",
        "megatron-core",
        "torchtitan",
        "nemo@25.01",
        "deepspeed",
        "megatron-core@",
        "x",
    ],
    "recompute_modules": [
        "core_attn",
        "layernorm,mla_up_proj",
        "moe_act",
        "mlp,moe",
        "shared_experts,x",
        ",",
        "mlp@",
        "x",
    ],
    "recomputes": ["none", "none,full", "selective", "full", "selective,full", "x"],
    "schedules": ["1f1b", "interleaved,zb-1p", "dualpipe-v", "1f1b,v-auto", "nope", "1f1b:x.csv"],
    "layouts": ["even", "light-last,even", "light-ends", "x"],
    "offload": ["0", "1", "0.5", "0,50", "0.25", "1,1,0,0", "-1", "nan", "101", "x"],
    "replicas": ["2", "4,1=1.5", "2,0=1.2", "8", "3,2=0.5", "2,5=1", "1e9", "2,0=nan", "4,=", "x"],
    "machine": ["dgx-h100", "dgx-b200", "gb200-nvl72", "dgx-a100", "cluster.toml", "x"],
    "model": ["llama3-8b", "model.toml", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "x"],
    "cluster": ["dgx-h100", "dgx-b200", "cluster.toml", "gb200-nvl72", "x"],
    "measured": ["anchors.json", "x"],
    "changes": [
        "tf.1=2",
        "schedule=gpipe",
        "mb=8",
        "comm=0",
        "devices=2",
        "tf=nan",
        "x=1",
        "tf.99=2",
        "=",
    ],
    "of_op": ["1F0", "0B1", "2F5", "0W0", "99F0", "x"],
    "links": ["0-1=2", "1-2=0.5", "0-9=1", "0-1=nan", "x"],
    "lengths": [
        "lognormal:2048:1.2:7",
        "zipf:1.5:512",
        "choice:1,2:3",
        "uniform:9:1",
        "x.csv",
        "zipf:1:1e9",
        "x",
    ],
    "law": ["0,1,0.001", "1,0,0", "0,0,0", "1,2", "nan,1,1", "x"],
    "mb_scale": ["lognormal:0.4:3", "uniform:0.1:3", "1,2", "0:1,1:2", "normal:1e308:1", "x"],
    "slice_scale": ["attention:0.5", "1,2", "attention:2", "x"],
    "iteration": ["1", "2", "all", "median", "1-2", "9-1", "x"],
    "calibrate_on": ["1f1b", "gpipe", "x"],
    "only": ["1f1b", "zb-1p", "x"],
    "schedule_name": ["1f1b", "zb-1p", "interleaved", "nope"],
    "dask": ["local", "x"],
}
ANCHORS = [
    {
        "model": "Llama 3 8B",
        "gpu": "DGX-H100",
        "framework": "Megatron-Core",
        "gpus": 8,
        "precision": "BF16",
        "gbs": 128,
        "mbs": 1,
        "seq": 8192,
        "tp": 1,
        "pp": 2,
        "cp": 1,
        "vp": 1,
        "ep": 1,
        "tokens_per_s_per_gpu": 12000,
    }
]
TIMERS = """(min, max) time across ranks (ms):
    forward-backward ...............................: (900.10, 910.20)
    forward-compute ................................: (300.00, 310.00)
    backward-compute ...............................: (500.00, 510.00)
"""
# What runs for real would take minutes, so these commands get recordings.
RECORDED = {
    "validate": [["--from-record", "record.json.gz"], ["--trace", "traces"]],
    "calibrate": [["--from-trace", "trace0.json.gz", "trace1.json.gz"]],
}


def commands(
    above: click.Group = group, names: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that ends, with its words; those of ``profile`` have two."""
    context = click.Context(above)
    for name in above.list_commands(context):
        command = above.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*names, name))
        elif command and name not in ENDLESS:
            yield (*names, name), command


def inputs(folder: Path) -> None:
    """Files to read: of every format, sound ones and some that are not."""
    data = ROOT / "tests" / "data"
    for source, name in (
        (data / "records" / "timed-p2.json.gz", "record.json.gz"),
        (data / "traces" / "gpipe-rank0.json.gz", "trace0.json.gz"),
        (data / "traces" / "gpipe-rank1.json.gz", "trace1.json.gz"),
        (ROOT / "gallery" / "profile-cpu.toml", "profile.toml"),
        (ROOT / "gallery" / "cluster.toml", "cluster.toml"),
        (ROOT / "gallery" / "model-7b.toml", "model.toml"),
        (ROOT / "gallery" / "segments.toml", "segments.toml"),
        (ROOT / "gallery" / "encoder.toml", "encoder.toml"),
        (data / "real_runs" / "recorded_1f1b" / "rank0.ops.jsonl", "ops.jsonl"),
    ):
        shutil.copy(source, folder / name)
    shutil.copytree(data / "real_runs" / "recorded_1f1b", folder / "recorded")
    (folder / "anchors.json").write_text(json.dumps(ANCHORS))
    (folder / "timers.log").write_text(TIMERS)
    (folder / "traces").mkdir()
    for rank in (0, 1):
        shutil.copy(folder / f"trace{rank}.json.gz", folder / "traces")
    for suffix in ("csv", "json", "mmd", "trace.json"):
        invoke(
            "run",
            "-s",
            "zb-1p",
            "--devices",
            "2",
            "--mb",
            "4",
            "-q",
            "-o",
            str(folder / f"in.{suffix}"),
        )
    invoke(
        "run",
        "-s",
        "dualpipe",
        "--devices",
        "2",
        "--mb",
        "4",
        "-q",
        "-o",
        str(folder / "replicas.json"),
    )
    (folder / "odd.csv").write_text("0F0,2F1,2B1,0B0\n1F0,1F1,1B0,1B1\n2F0,2B0,0F1,0B1\n")
    (folder / "mine.py").write_text(
        "def mine(shape):\n    for d in range(shape.devices):\n"
        "        yield [f'{d}{k}{m}' for k in 'FB' for m in range(shape.microbatches)]\n"
    )


FILES = [
    "in.csv",
    "in.json",
    "in.mmd",
    "in.trace.json",
    "odd.csv",
    "replicas.json",
    "mine.py",
    "record.json.gz",
]
TABLES = [
    "profile.toml",
    "cluster.toml",
    "model.toml",
    "segments.toml",
    "encoder.toml",
    "trace0.json.gz",
    "traces",
    "anchors.json",
]
RUNS = ["traces", "recorded", "ops.jsonl", "timers.log", "trace0.json.gz", "in.json"]


def words_of(names: tuple[str, ...], command: click.Command, draw: random.Random) -> list[str]:
    """Draw a command line: what the command needs nearly always, the rest now and then."""
    words, arguments, recorded = list(names), [], draw.choice(RECORDED.get(names[0], [[]]))
    # else anything: refused at once mostly
    usual, others = draw.random() < 0.75, draw.choice([0.03, 0.08, 0.15])
    for param in command.params:
        if isinstance(param, click.Argument):
            if not recorded:
                count = draw.choice([1, 2, 3]) if param.nargs == -1 and names[0] in MANY else 1
                arguments += [value_of(param, draw, usual) for _ in range(count)]
            continue
        needed = param.required or (param.name in NEEDED and not recorded)
        given = "schedule" in (param.name or "") and not usual
        if draw.random() > (
            0.97 if needed else 0.1 if given else 0 if param.name == "schedule" else others
        ):
            continue
        spelling = draw.choice([*param.opts, *param.secondary_opts])
        if isinstance(param, click.Option) and (param.is_flag or param.count):
            words.append(spelling)
        else:
            for _ in range(draw.choice([1, 1, 1, 2]) if param.multiple else 1):
                words += [spelling, value_of(param, draw, usual)]
    if names[0] == "jitter" and "--samples" not in words:
        words += ["--samples", "100"]  # ten thousand of a long schedule are minutes of honest work
    if names[0] in SEARCHES and "--time-limit" not in words:
        words += ["--time-limit", "2"]
    return words + arguments + recorded


def value_of(param: click.Parameter, draw: random.Random, usual: bool) -> str:
    """Draw a value by the parameter's type and name."""
    kind, name = param.type, param.name or ""
    if name in ("output", "record"):
        return draw.choice(
            [f"out.{draw.choice(SUFFIXES[:8])}"] * 6 + [f"out.{draw.choice(SUFFIXES)}", *TARGETS]
        )
    if name == "format":
        return draw.choice(SUFFIXES)
    if name == "files":
        return draw.choice(RUNS if usual else [*RUNS, *FILES, *TABLES, *SPECIAL])
    if name in NAMED and not (name == "offload" and isinstance(kind, click.FloatRange)):
        return draw.choice(NAMED[name][: 5 if usual else None])
    if isinstance(kind, click.Choice):
        return draw.choice(
            [*map(str, kind.choices)] if usual else [*map(str, kind.choices), "x", ""]
        )
    if isinstance(kind, ScheduleName):
        known = PLAIN
        chunked = f"{draw.choice(known)}:{draw.choice(SIZES if usual else COUNTS)}"
        return draw.choice(
            [*known, *known, chunked, *FILES] + ([] if usual else [*FILES, *SPECIAL, "nope"])
        )
    if isinstance(kind, Numbers | click.types.FloatParamType | Share):
        return draw.choice(TIMES[:8] if usual else TIMES)
    if isinstance(kind, Counts):
        return draw.choice(["2", "2,4", "4:16:x2", "8:64:8", *SIZES] + ([] if usual else COUNTS))
    if isinstance(kind, click.types.IntParamType):
        return draw.choice(SIZES if usual else COUNTS)
    if isinstance(kind, click.Path) or name in ("cluster", "model", "profile"):
        fitting = [file for file in TABLES if file.startswith(name)] or [*FILES, "profile.toml"]
        return draw.choice(fitting if usual else [*fitting, *FILES, *TABLES, *SPECIAL])
    pool = {
        "layout": LAYOUTS,
        "string": LAYOUTS,
        "cap": BYTES,
        "message": BYTES,
        "order": ORDERS,
        "unit": TEXTS,
    }.get(name, [*WORDS, *TEXTS])
    return draw.choice(pool[:4] if usual else pool)


def fault_of(words: list[str], folder: Path) -> str:
    """Run a case in a process of its own; what is wrong with its end, or nothing."""
    errors = folder / "stderr"
    child = os.fork()
    if child == 0:
        run(words, folder, errors)
    pid, waited = 0, time.monotonic()
    while not pid:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if not pid and time.monotonic() - waited > WALL_S:
            os.kill(child, 9)
        time.sleep(0.002)
    text, code = errors.read_text(errors="replace"), os.waitstatus_to_exitcode(status)
    if code not in CODES or "Traceback" in text or '.py", line' in text:
        return f"exit {code}: {text[-300:]}"
    if used.ru_maxrss * 1024 > MEMORY_BYTES:
        return f"{used.ru_maxrss >> 10} MiB"
    return f"{len(text)} characters of messages" if len(text) > 100_000 else ""


def run(words: list[str], folder: Path, errors: Path) -> None:
    """Become the command on two processors, as what many use together has no limit, and end."""
    code = 99
    try:
        os.chdir(folder)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
        seconds = CPU_OF_LONG_S if words[0] in LONG else CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (SPACE_BYTES, SPACE_BYTES))
        null = os.open(os.devnull, os.O_RDWR)
        for stream, handle in enumerate(
            (null, null, os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        ):
            os.dup2(handle, stream)
        for name, stream in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            setattr(sys, name, open(stream, "w" if stream else "r", closefd=False))  # noqa: SIM115
        sys.argv = ["ppsim", *words]
        main()
    except SystemExit as end:
        code = int(end.code or 0)
        sys.stderr.flush()
    finally:
        os._exit(code)


def faults(seed: int, count: int, left_out: str = "") -> Iterator[tuple[list[str], str]]:
    """Every case of so many that ends wrongly, with how; none of the command that is left out."""
    draw, known = (
        random.Random(seed),
        [(names, command) for names, command in commands() if names[0] != left_out],
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs(folder)
        for _ in range(count):
            words = words_of(*draw.choice(known), draw)
            if fault := fault_of(words, folder):
                yield words, fault


if __name__ == "__main__":
    found = 0
    for case, fault in faults(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]):
        found += 1
        print(
            f"ppsim {shlex.join(case)}"[:600].encode(errors="replace").decode(),
            f"\n  {fault}",
            flush=True,
        )
    print(f"{found} of {sys.argv[2]} cases of seed {sys.argv[1]} end wrongly")
    sys.exit(found > 0)
