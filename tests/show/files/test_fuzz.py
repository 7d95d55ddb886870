"""Files of every format with mistakes made at random: each is read or refused in words, in little
time and memory.

``PPSIM_FUZZ=N`` sets how many mutated files the slow test reads. What was found once is in
``tests/data/fuzz``; a file there named ``<suffix>-<anything>`` is read as that kind.
"""

import gzip
import json
import os
import random
import resource
import string
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from ppsim.base.results import Results
from ppsim.base.tables import save_table
from ppsim.base.toml import RefusedValue
from ppsim.base.toml import read as read_toml
from ppsim.core.costs import costs_for
from ppsim.engine.detailed.cluster import network
from ppsim.engine.detailed.cluster import read as read_cluster
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.segments import look_inside_ops, segment_costs
from ppsim.engine.simple.segments import read as read_segments
from ppsim.errors import PpsimError
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts.read import read
from ppsim.inputs.profile.costs import costs_from
from ppsim.inputs.profile.profile import read as read_profile
from ppsim.inputs.profile.scale import parse_scale
from ppsim.prices.trained import TrainedModel, TrainedOptions
from ppsim.questions.runs.read import read as read_question
from ppsim.real.runs.record import load
from ppsim.real.traces.profile import profile_from
from ppsim.real.traces.read import read_run
from ppsim.real.validation.analyse import validate
from ppsim.schedules import generate
from ppsim.schedules._block import SCHEMA, BlockFile
from ppsim.show.files.document import Document, save
from ppsim.workload.cost.measured import read_peaks
from ppsim.workload.hardware.hardware import read_gpu
from ppsim.workload.model.model import flops_per_token, read_model
from ppsim.workload.plans.published import against, anchors_of
from ppsim.workload.plans.row_numbers import SkippedRow
from ppsim.workload.plans.rows import read_table, setup_of
from ppsim.workload.plans.software import SCHEMA as SOFTWARE
from ppsim.workload.plans.software import Software, Version
from tests.cli.option_fuzz import ANCHORS
from tests.real_runs import EACH, RECORDED, SPREADS, ops_rows, simulated, write_csv

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
FOUND = sorted((DATA / "fuzz").iterdir())
SECONDS, BYTES = 10.0, 1 << 30  # of processor time and memory for one file; most take milliseconds
SCHEDULE = generate("1f1b", devices=2, microbatches=2)


def check_file(path: str) -> None:
    check(read(path))


def use_segments(path: str) -> None:
    segments = read_segments(path)
    simulate(SCHEDULE, segment_costs(SCHEDULE, segments, per="stage"))
    look_inside_ops(SCHEDULE, segments, "stage")


def tell(path: str) -> None:
    """Read a run in all that is told of it; a recorder's file with those of the other devices."""
    if path.endswith(".rank0.jsonl"):
        others = [str(RECORDED / f"rank{rank}.ops.jsonl") for rank in (1, 2, 3)]
        observed = read_question([path, *others])
    else:
        observed = read_question(path)
    json.dumps(observed.to_json())
    list(observed.blocks())


def use_rows(path: str) -> None:
    for row in read_table(path):
        with suppress(SkippedRow, RefusedValue):
            setup_of(row)


USES: dict[str, Callable[[str], object]] = {
    ".csv": check_file,
    ".json": check_file,
    ".trace.json": check_file,
    ".mmd": check_file,
    ".profile.toml": lambda path: costs_from(read_profile(path), SCHEDULE),
    ".cluster.toml": lambda path: network(read_cluster(path), 4, "ms", "overlap"),
    ".model.toml": lambda path: TrainedModel(path, TrainedOptions()).memory(SCHEDULE, None),
    ".kineto.json": lambda path: profile_from([path], "fuzz"),
    ".record.json": lambda path: validate(load(path)),
    ".config.json": lambda path: flops_per_token(read_model(path)),
    ".sizes.toml": lambda path: flops_per_token(read_model(path)),
    ".gpu.toml": read_gpu,
    ".block.toml": lambda path: read_toml(path, BlockFile, SCHEMA),
    ".rows.json": use_rows,
    ".peaks.json": lambda path: read_peaks(path, 2),
    ".results.csv": lambda path: Results(path, 1),
    ".factors.txt": lambda path: parse_scale([path], 8),
    ".primus.json": lambda path: read_run([path]),
    ".ops.csv": tell,
    ".ops.jsonl": tell,
    ".ops.parquet": tell,
    ".rank0.jsonl": tell,
    ".timers.log": tell,
    ".segments.toml": use_segments,
    ".software.toml": lambda path: Version(read_toml(path, Software, SOFTWARE)).techniques(None),
    ".anchors.json": lambda path: anchors_of(read_table(path)),
    ".against.json": lambda path: against(read_table(path)),
    ".against.csv": lambda path: against(read_table(path)),
    ".against.parquet": lambda path: against(read_table(path)),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> dict[str, list[bytes]]:
    """Real files of every kind; torch's are BSD-3-Clause."""
    folder = tmp_path_factory.mktemp("originals")
    timeline = simulate(SCHEDULE, costs_for(SCHEDULE, tf=1.25, comm=0.5, unit="ms"))
    for suffix in (".csv", ".json", ".trace.json", ".mmd"):
        save(Document((timeline,), ("x",)), str(folder / f"x{suffix}"))
    found = {
        suffix: [(folder / f"x{suffix}").read_bytes()]
        for suffix in (".csv", ".json", ".trace.json", ".mmd")
    }
    found[".csv"] += [path.read_bytes() for path in sorted((DATA / "torch").glob("*.csv"))]
    found[".mmd"] += [path.read_bytes() for path in sorted((DATA / "schedules").glob("*.mmd"))]
    for kind, name in (
        (".profile", "profile-cpu"),
        (".cluster", "cluster"),
        (".model", "model-7b"),
    ):
        found[f"{kind}.toml"] = [(ROOT / "gallery" / f"{name}.toml").read_bytes()]
    traces = sorted((DATA / "traces").glob("*.json.gz"))
    found[".kineto.json"] = [gzip.decompress(path.read_bytes()) for path in traces] + [
        traces[0].read_bytes()
    ]
    record = json.loads(gzip.decompress((DATA / "records" / "timed-p2.json.gz").read_bytes()))
    record["runs"] = [_shorter(run) for run in record["runs"][:2]]
    found[".record.json"] = [json.dumps(record).encode()]
    config = {"text_config": MIXTURE, "model_type": "outer"}
    found[".config.json"] = [json.dumps(each).encode() for each in (MIXTURE, config)]
    library = ROOT / "ppsim" / "workload" / "library"
    found[".sizes.toml"] = [
        (library / "models" / f"{name}.toml").read_bytes() for name in ("llama3-8b", "deepseek-v3")
    ]
    found[".gpu.toml"] = [(library / "gpus" / "h100.toml").read_bytes()]
    found[".block.toml"] = [(ROOT / "gallery" / "own-block.toml").read_bytes()]
    rows = json.loads(gzip.decompress((DATA / "published" / "measured_runs.json.gz").read_bytes()))[
        "rows"
    ]
    found[".rows.json"] = [
        json.dumps(rows[first : first + 3]).encode() for first in range(0, 30, 3)
    ]
    found[".peaks.json"] = [
        b'{"unit": "GiB", "memory": [66.5, 63.0]}',
        b'{"a": {"peak_by_rank_MB": {"0": 5, "1": 6}}}',
    ]
    with Results(str(folder / "kept.csv"), 1) as kept:
        for key in ("1f1b 2x4", "gpipe 2x4"):
            kept.add(key, {"name": key, "applies": True, "makespan": 7.5})
    found[".results.csv"] = [(folder / "kept.csv").read_bytes()]
    found[".factors.txt"] = [b"1,1.3,0.8,1,1,1,1,2\n"]
    found[".primus.json"] = [
        gzip.decompress((DATA / "real_runs" / "primus_pp8" / "pp_rank_0.json.gz").read_bytes())
    ]
    rows = ops_rows([[simulated("1f1b", comm=0.75), simulated("1f1b", tf=60.0)]] * 2)
    write_csv(folder / "ops.csv", rows)
    found[".ops.csv"] = [(folder / "ops.csv").read_bytes()]
    header = '{"schema": "ppsim.ops/1", "unit": "us"}\n'
    found[".ops.jsonl"] = [(header + "\n".join(map(json.dumps, rows))).encode()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "ops.parquet")
    found[".ops.parquet"] = [(folder / "ops.parquet").read_bytes()]
    found[".rank0.jsonl"] = [(RECORDED / "rank0.ops.jsonl").read_bytes()]
    found[".timers.log"] = [SPREADS.encode(), EACH.encode()]
    found[".segments.toml"] = [(ROOT / "gallery" / "segments.toml").read_bytes()]
    found[".software.toml"] = [
        (library / "software" / f"{name}.toml").read_bytes() for name in ("nemo", "torchtitan")
    ]
    found[".anchors.json"] = found[".against.json"] = [json.dumps(ANCHORS).encode()]
    for suffix in (".csv", ".parquet"):
        save_table(ANCHORS, str(folder / f"anchors{suffix}"))
        found[f".against{suffix}"] = [(folder / f"anchors{suffix}").read_bytes()]
    return found


MIXTURE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "mlp_only_layers": [],
    "layer_types": ["full_attention"],
    "sliding_window": None,
    "tie_word_embeddings": False,
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_act": "silu",
    "decoder_sparse_step": 1,
}


def _shorter(run: dict[str, object]) -> dict[str, object]:
    """The run with its first three repetitions."""
    times = ("finished", "gap", "waited", "worked", "issued")
    return {
        key: value[:3] if key in times and isinstance(value, list) else value
        for key, value in run.items()
    }


WORDS = [
    b"9" * 400,
    b"-1",
    b"NaN",
    b"1e999",
    b"1e300",
    b"null",
    b"{}",
    b"[]",
    b'""',
    b"true",
    b"[[]]",
]
WORDS += [b"2147483648"]
WORDS += [
    b"9223372036854775808",
    b"0.5",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\0",
    b"\x1b]0;x\x07",
    b'"\\ud800"',
    b"\r",
    b"\n\n",
]
WORDS += [
    b"," * 50,
    b"[" * 2000,
    b"{" * 2000,
    b'{"a":' * 2000,
    b"a." * 3000,
    b"(" * 99,
    b" " * 9999,
    b"99999999",
    b"=",
    b":",
]


def mutate(original: bytes, chance: random.Random) -> bytes:
    """The file with one to four mistakes: cuts, repeats, swaps, flipped bits, changed numbers and
    words put in.
    """
    if chance.random() < 0.5 and (changed := change_key(original, chance)):
        return changed
    content = original
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(content) + 1)
        until = min(len(content), at + chance.choice((1, 1, 2, 5, 30, 400)))
        kind = chance.randrange(8)
        if kind == 0:
            content = content[:at] + content[until:]
        elif kind == 1:
            content = (
                content[:until] + content[at:until] * chance.choice((1, 2, 50)) + content[until:]
            )
        elif kind == 2:
            content = content[:at] + chance.choice(WORDS) + content[at:]
        elif kind == 3:
            content = content[:at] + chance.choice(WORDS) + content[until:]
        elif kind == 4 and at < len(content):
            content = (
                content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
            )
        elif kind == 5:
            content = content[:at]
        else:
            content = _change_value(content, at, chance)
    return content


RETYPED = [
    None,
    True,
    -1,
    0,
    1 << 31,
    1 << 62,
    10**30,
    1.5,
    1e300,
    "",
    "x",
    "0F0",
    [],
    {},
    [1],
    [None],
    {"a": 1},
]


def change_key(original: bytes, chance: random.Random) -> bytes:
    """A file of keys with one to three renamed, missing, of another type, twice, or exchanged; else
    nothing.
    """
    try:
        data = json.loads(original)
    except ValueError:
        return _change_line(original, chance) if b" = " in original else b""
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = list(_places(data))
        if not places:
            break
        holder, key = chance.choice(places)
        kind = chance.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[chance.choice((f"{key}s", key.upper(), ""))] = holder.pop(key)
        elif kind == 2 and isinstance(holder, list):
            holder.insert(key, deepcopy(holder[chance.randrange(len(holder))]))
        elif kind == 3:
            holder[key] = chance.choice([str(holder[key]), [holder[key]]])
        else:
            holder[key] = deepcopy(chance.choice(RETYPED))
    return json.dumps(data).encode()


def _places(data: object, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """The objects and lists of a value with each of their keys; of long lists the first and the
    last ones.
    """
    if not isinstance(data, dict | list) or depth > 8:
        return
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    for key in keys[:20] + keys[20:][-5:]:
        yield data, key
        yield from _places(data[key], depth + 1)


def _change_line(original: bytes, chance: random.Random) -> bytes:
    """TOML with a line lost, given twice, or with another key or value."""
    lines = original.split(b"\n")
    at = chance.choice(
        [number for number, line in enumerate(lines) if b"=" in line or line.startswith(b"[")]
    )
    key, _, value = lines[at].partition(b" = ")
    other = chance.choice(RETYPED[1:-2])
    changed = [
        key + b"s = " + value,
        key + b" = " + json.dumps(other).encode(),
        b"[" + lines[at] + b"]",
    ]
    lines[at : at + 1] = chance.choice(
        [[], [lines[at]] * 2, *([line] for line in changed), [chance.choice(lines)]]
    )
    return b"\n".join(lines)


def _change_value(content: bytes, at: int, chance: random.Random) -> bytes:
    """The content with the next number or quoted word after a place changed to something else."""
    sign = string.digits.encode()
    first = next((n for n in range(at, len(content)) if content[n] in sign), len(content))
    last = next((n for n in range(first, len(content)) if content[n] not in sign), len(content))
    number = str(
        chance.choice((0, 1, -1, 7, 200, 1 << 30, 1 << 31, 1 << 40, 1 << 63, chance.randrange(100)))
    ).encode()
    return (
        content[:first]
        + chance.choice((number, number, number, chance.choice(WORDS)))
        + content[last:]
    )


def use(suffix: str, content: bytes, folder: Path) -> str:
    """Read a file and use what it holds; empty, or what is wrong about how it was refused."""
    path = folder / f"x{suffix}"
    path.write_bytes(content)
    began = time.process_time()
    try:
        USES[suffix](str(path))
    except PpsimError as error:
        longest = max(map(len, f"{error}\n{error.hint}".splitlines()))
        if longest > 2000:
            return f"a message of {longest} signs"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    took = time.process_time() - began
    return f"took {took:.1f} s" if took > SECONDS else ""


def fuzz(originals: dict[str, list[bytes]], count: int, seed: int, folder: Path) -> list[str]:
    """Read so many mutated files; whatever went wrong, with the file kept beside."""
    chance, wrong = random.Random(seed), list[str]()
    suffixes = list(USES)
    for number in range(count):
        suffix = suffixes[number % len(suffixes)]
        content = mutate(chance.choice(originals[suffix]), chance)
        if failure := use(suffix, content, folder):
            kept = folder / f"{suffix[1:].replace('.', '_')}-{number}"
            kept.write_bytes(content)
            wrong.append(f"{kept}: {failure}")
    return wrong


@pytest.fixture
def little_memory():
    """No file may take more than a gigabyte beyond what the process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.filterwarnings("error")
def test_a_few_mutated_files_of_every_format(originals, tmp_path, little_memory):
    assert fuzz(originals, 120, 12, tmp_path) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_many_mutated_files_of_every_format(originals, tmp_path, little_memory):
    assert (
        fuzz(
            originals,
            int(os.environ.get("PPSIM_FUZZ", "1500")),
            int(os.environ.get("PPSIM_SEED", "1")),
            tmp_path,
        )
        == []
    )


@pytest.mark.parametrize("path", FOUND, ids=[path.name for path in FOUND])
def test_what_was_found_once_stays_fixed(path, tmp_path, little_memory):
    suffix = "." + path.name.partition("-")[0].replace("_", ".")
    assert use(suffix, path.read_bytes(), tmp_path) == ""
