"""Every option of every command has an effect, or is refused with the reason."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import click
import pytest
from click.testing import CliRunner

from ppsim.ask import write
from ppsim.ask.given import Need, TypedOptions
from ppsim.ask.options import Request, list_options, make
from ppsim.ask.rules import NEEDS
from ppsim.cli import group
from ppsim.errors import PpsimError
from ppsim.questions import list_questions, module_of
from tests.cases import EVERY, HUNTS
from tests.questions.examples import example_of
from tests.real_runs import RECORD as WHOLE_RECORD
from tests.real_runs import short_record

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
RECORD = str(WHOLE_RECORD)
TRACE = str(DATA / "traces" / "gpipe-rank0.json.gz")
SCHEDULE = ["interleaved-overlap", "--devices", "4", "--mb", "16"]
SEVERAL = ["1f1b", "interleaved-overlap", "--devices", "4", "--mb", "16"]

# What is typed for an option, by the name of its parameter.
SAMPLES = {
    "stages": "--stages 16",
    "devices": "--devices 2",
    "chunks": "--chunks 3",
    "microbatches": "--mb 12",
    "steps": "--steps 3",
    "feedback": "--feedback 0.5",
    "t_optimizer": "--t-optimizer 0.5",
    "t_gather": "--t-gather 2",
    "serve": "--serve",
    "weight_bits": "--weight-bits 8",
    "kv_bits": "--kv-bits 8",
    "block": "--block 32",
    "t_reduce_grad": "--t-reduce-grad 0.5",
    "tokens": "--tokens 8",
    "chunked": "--chunked 4096 --law 1,0,1,0",
    "chunk": "--chunk 512",
    "page": "--page 128",
    "placement": "--placement v",
    "group_size": "--group-size 5",
    "rule": "--rule torch",
    "limit": "--limit 12",
    "after_i": "--after-i 0.5",
    "slices": "--slices 3",
    "objective": "--objective makespan",
    "front": "--front",
    "time_limit": "--time-limit 20",
    "tf": "--tf 2",
    "t_other": "--t-other 2",
    "tb": "--tb 3",
    "ti": "--ti 2",
    "tw": "--tw 0.5",
    "tfb": "--tfb 2.2",
    "comm": "--comm 0.5",
    "t_offload": "--t-offload 0.5",
    "t_reload": "--t-reload 0.5",
    "t_evict": "--t-evict 0.5",
    "host_link": "--host-link 25GB/s",
    "host_link_shared": "--host-link-shared 2",
    "te": "--te 0.1",
    "ts": "--ts 0.5",
    "tt": "--tt 0.5",
    "td": "--td 0.1",
    "tl": "--tl 0.02",
    "tgf": "--tgf 0.1",
    "tgb": "--tgb 0.1",
    "everywhere": "--everywhere 0,2",
    "t_collective": "--t-collective 0.1",
    "per": "--cost-per stage",
    "unit": "--unit ms",
    "profile": f"--profile {ROOT / 'gallery' / 'profile-cpu.toml'}",
    "encoder": f"--encoder {ROOT / 'gallery' / 'encoder.toml'}",
    "segments": f"--segments {ROOT / 'gallery' / 'segments.toml'}",
    "p2p": "--p2p blocking",
    "order": "--order torch",
    "channel": "--channel group",
    "cluster": f"--cluster {ROOT / 'gallery' / 'cluster.toml'}",
    "message": "--message 4096",
    "unshard": "--unshard 3",
    "reduce_grad": "--reduce-grad",
    "output": "-o x.svg",
    "format": "-f pdf",
    "style": "--style paper",
    "width": "--width 4",
    "palette": "--palette zb",
    "base": "--base 1",
    "title": "--title Own",
    "labels": "--labels none",
    "window": "--window 2:9",
    "until": "--until 400",
    "font_size": "--font-size 8",
    "notes": "--note first@1:dev0",
    "fold": "--fold",
    "highlight": "--highlight mb=2",
    "phases": "--phases",
    "per_device": "--per-device",
    "as_json": "--json",
    "quiet": "-q",
    "lowered": "--lowered",
    "blank": "--blank",
    "lanes": "--lanes",
    "grid": "--grid",
    "gantt": "--no-gantt",
    "memory": "--memory",
    "tradeoff": "--tradeoff",
    "heat": "--heat",
    "metric": "--metric peak",
    "model": f"--model {ROOT / 'gallery' / 'model-7b.toml'}",
    "cap": "--cap 40",
    "breakdown": "--breakdown",
    "replicas": "--replicas 4,1=1.5",
    "cv": "--cv 0.2",
    "slow_devices": "--slow-devices 1",
    "slowdown": "--slowdown 2",
    "slow_links": "--slow-links 1",
    "link_slowdown": "--link-slowdown 2",
    "samples": "--samples 60",
    "seed": "--seed 3",
    "modes": "--mode blocking",
    "runtime": "--for torch-2.13",
    "github": "--github",
    "lossy": "--lossy",
    "ops": "--ops compute",
    "runner": "--runner torch",
    "device": "--device cpu",
    "hidden": "--hidden 64",
    "heads": "--heads 2",
    "sequence": "--seq 32",
    "microbatch_size": "--microbatch-size 2",
    "layers": "--layers 4",
    "vocab": "--vocab 50",
    "repeats": "--repeats 3",
    "warm_up": "--warm-up 1",
    "real_time": "--real-time",
    "calibrate_on": "--calibrate-on 1f1b",
    "tolerance": "--tolerance 0%",
    "only": "--only 1f1b",
    "record": "--record r.json",
    "from_record": "--from-record r.json",
    "trace": "--trace traces",
    "iteration": "--iteration 2",
    "dtype": "--dtype float64",
    "max_bytes": "--max-bytes 4096",
    "sizes": "--sizes 1024",
    "note": "--note text",
    "recompute": "--recompute",
    "tr": "--tr 2",
    "links": "--link 0-1=0.7",
    "mb_scale": "--mb-scale lognormal:0.4:3",
    "lengths": "--lengths lognormal:2048:0.8:3",
    "law": "--law 0,1,0.001",
    "padded": "--padded",
    "t_reduce": "--t-reduce 2",
    "deal": "--deal",
    "cp_of": "--cp-of own.csv",
    "shapes": "--shapes exchange",
    "t_shape": "--t-shape 0.5",
    "across": "--across",
    "max_tokens": "--max-tokens 99999",
    "deal_for": "--deal-for 0.1",
    "slice_scale": "--slice-scale attention:0.5",
    "speed": "--speed 0.5",
    "reorder": "--reorder",
    "queues": "--queues pair",
    "changes": "--what-if tf.1=2",
    "of_device": "--device 2",
    "of_op": "--op 2F5",
    "module": f"--module {DATA / 'module.py'}:stage",
    "merge_bw": "--merge-bw",
    "split_bw": "--split-bw",
    "layout": "--layout Ett||(t|)*5tL",
    "least": "--min-layers 2",
    "t_layer": "--t-layer 2",
    "t_embedding": "--t-embedding 0.5",
    "t_head": "--t-head 3",
    "t_mtp": "--t-mtp 2",
    "b_over_f": "--b-over-f 1.5",
    "num_layers": "--num-layers 8",
    "mtp": "--mtp-num-layers 1",
    "first": "--decoder-first-pipeline-num-layers 2",
    "last": "--decoder-last-pipeline-num-layers 2",
    "account_embedding": "--account-for-embedding-in-pipeline-split",
    "account_loss": "--account-for-loss-in-pipeline-split",
    "layers_per_stage": "--layers-per-stage 3,5",
    "machine": "--cluster dgx-b200",
    "cp": "--cp 2",
    "ep": "--ep 2",
    "dp": "--dp 4",
    "mbs": "--mbs 2",
    "schedule_name": "--schedule zb-1p",
    "again": "--recompute full",
    "offload": "--offload 1",
    "zero": "--zero 0",
    "precision": "--precision fp8",
    "dispatch": "--dispatch deepep",
    "dispatch_bytes": "--dispatch-bytes 1",
    "expert_load": "--expert-load 1.25",
    "recompute_modules": "--recompute-modules layernorm,mla_up_proj --recomputes selective",
    "software": "--software megatron-bridge@26.06",
    "overlap_a2a": "--overlap-a2a",
    "cuda_graphs": "--cuda-graphs partial",
    "fused_experts": "--fused-experts",
    "overlap_tp": "--no-overlap-tp",
    "overlap_dp": "--no-overlap-dp",
    "post_validation": "--post-validation",
    "optimizer": "--optimizer muon",
    "gradient_precision": "--gradient-precision bf16",
    "moment_precision": "--moment-precision bf16",
    "narrow_activation": "--narrow-activation",
    "narrow_weights": "--narrow-weights",
    "rank_order": "--rank-order tp-pp-dp",
    "any_schedule": "--any",
    "measured": "--measured peaks.json",
    "gpus": "--gpus 16",
    "gbs": "--gbs 32",
    "tp": "--tp 4",
    "pp": "--pp 4",
    "vp": "--vp 1",
    "schedules": "--schedules zb-1p",
    "recomputes": "--recomputes full",
    "layouts": "--layouts light-last",
    "seq": "--seq 2048",
    "top": "--top 2",
    "flags": "--flags torchtitan",
    "ranks": "--ranks",
    "against": "--against table.json",
    "anchor": "--anchor table.json",
    "improve": "--improve",
    "dask": "--dask tcp://127.0.0.1:1",
    "results": "--results kept.csv",
}
BASES = {
    "run": ["run", *SCHEDULE],
    "run with messages": ["run", *SCHEDULE, "--comm", "0.25"],
    "compare": ["compare", *SEVERAL],
    "sweep": ["sweep", *SEVERAL, "--metric", "makespan"],
    "jitter": ["jitter", *SEVERAL, "--samples", "50"],
    "memory": ["memory", *SCHEDULE],
}
PLAN = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "4", "--gbs", "8"]
ONE_BY_ONE = {
    **BASES,
    "plan": [*PLAN, "--recomputes", "none,full", "--schedules", "1f1b,interleaved"],
    # a change that is named, as to try all schedules for each option takes twenty times as long
    "explain": ["explain", *SCHEDULE, "--what-if", "tf=1.5"],
    "diff": ["diff", *SEVERAL],
    "partition": [
        "partition",
        "interleaved-overlap",
        "--devices",
        "4",
        "--mb",
        "8",
        "--t-layer",
        "1,1,2,1,1,1,1,2",
    ],
    "optimize": ["optimize", "--devices", "3", "--mb", "2", "--cap", "2", "--time-limit", "0.5"],
    "layout": ["layout", "E|t*3|(t|)*5mL", "--devices", "4"],
    "model": [
        "model",
        "llama3-8b",
        "--tp",
        "8",
        "--dp",
        "2",
        "--pp",
        "4",
        "--mb",
        "8",
        "--cluster",
        "dgx-h100",
    ],
    "check": ["check", "own.csv"],
    "convert": ["convert", "own.csv", "-o", "y.json"],
    "read": ["read", TRACE],
    "validate a record": ["validate", "--from-record", RECORD],
    "calibrate from traces": ["calibrate", "-o", "p.toml", "--from-trace", TRACE],
}
ONE_BY_ONE |= {
    name: example_of(name)
    for name in list_questions()
    if name not in {"list", *(words[0] for words in ONE_BY_ONE.values())}
}
# Options that may leave every number as it is, and why that is no fault.
PERMITS = {
    "rule": "it only refuses shapes",
    "runtime": "it only adds faults",
    "per": "with one stage per device both mean the same",
    "cap": "what fits prints as before, and exits with 0",
    "lossy": "it allows what was not needed",
    "num_layers": "it only refuses layouts",
    "time_limit": "what ends before it is the same",
    "mtp": "it only refuses layouts",
    "force": "it allows what was not needed",
    "p2p": "messages that take no time may block nothing; that no queue stands still is an answer "
    "too",
    "shapes": "likewise",
    "order": "likewise",
    "channel": "likewise",
    "labels": "cells too narrow for numbers have none to leave out",
    "any_schedule": "it allows what was not needed",
    "post_validation": "a device that begins first and ends last is as long as the step",
    "rank_order": "in nodes that tensor ranks fill every order is the same",
    "cuda_graphs": "ops that take longer than their launch gain nothing",
    "calibrate_on": "the schedule it names was the first anyway",
}
ASKED_ALREADY = {
    ("quiet", "as_json"): "one object is all there is",
    ("gantt", "as_json"): "no chart is drawn",
    ("gantt", "quiet"): "no chart is drawn",
    ("gantt", "grid"): "no chart is drawn",
    ("memory", "output"): "figures show it by default",
    ("breakdown", "as_json"): "the object has all parts",
}
# What shows some of the numbers only: the result line of several schedules, and a metric.
UNSHOWN = {
    # copies that delay nothing change the peak alone, tokens the rate, and its metric is another
    "sweep": {"offload", "t_offload", "t_reload", "tokens"}
}
SHOW_SOME = {"quiet": {"compare", "sweep", "jitter"}, "metric": {"sweep"}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder, and files that do not hold the command itself, which always differs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(write, "shlex", SimpleNamespace(join=lambda words: ""))
    return tmp_path


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> str:
    return short_record(tmp_path_factory.mktemp("record"))


def test_no_command_is_left_out():
    without = {
        "completion",
        "list",
        "open",
        "profile",
        "serve",
    }  # at most one option, or nothing that options need
    assert {words[0] for words in ONE_BY_ONE.values()} | without == set(group.list_commands(None))  # type: ignore[arg-type]


def options_of(words: list[str]) -> list[str]:
    command = group.get_command(None, words[0])  # type: ignore[arg-type]
    assert command
    hidden = {
        "names",
        "specs",
        "schedule",
        "file",
        "files",
        "debug",
        "more_traces",
        "from_trace",
        "force",
        "string",
    }
    options = [str(p.name) for p in command.params if p.name not in hidden]
    assert set(options) <= SAMPLES.keys(), "SAMPLES says how each option is typed"
    return options


def some_options(words: list[str]) -> list[str]:
    """The options of a command; where only the fast tests are asked for, one of eight by its
    name, so that a new option moves no other.
    """
    return [option for option in options_of(words) if crc32(option.encode()) % EVERY == 0]


def outcome(words: list[str]) -> tuple[object, ...]:
    """What a command says and writes, or that it is refused."""
    for path in Path().iterdir():
        path.unlink()
    Path("own.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    result = CliRunner().invoke(group, words, env={"COLUMNS": "100"})
    error = result.exception
    if error is not None and not isinstance(error, (SystemExit, PpsimError, click.ClickException)):
        raise AssertionError(words) from error
    code = error.exit_code if isinstance(error, PpsimError) else result.exit_code
    if code == 2:
        return ("refused",)
    files = {path.name: path.read_bytes() for path in sorted(Path().iterdir())}
    said = re.sub(r"wrote x\.svg\n", "", result.stderr)
    return code, re.sub(r'"inputs":\{.*?\}\}', "", result.stdout), said, str(error), files


FAST = ("run", "layout", "check")


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in ONE_BY_ONE]
)
def test_an_option_alone_changes_something_or_is_refused(name, record, monkeypatch):
    monkeypatch.setattr("ppsim.base.dask_cluster.CONNECT_S", 0.2)  # no scheduler is at the address
    words = [record if word == RECORD else word for word in ONE_BY_ONE[name]]
    as_it_was = outcome(words)
    assert as_it_was != ("refused",)
    idle = [
        option
        for option in some_options(words)
        if outcome([*words, *SAMPLES[option].split()]) == as_it_was
    ]
    # What the file has already; what is proved at once needs no luck and no time.
    as_stated = UNSHOWN.get(name, set()) | {
        "check": {"devices"},
        "optimize": {"seed", "time_limit", "placement"},
    }.get(name, set())
    assert set(idle) - PERMITS.keys() - as_stated == set()


def pairs_of(name: str) -> list[tuple[str, str]]:
    """The pairs of options to try with a command, one of three: what several have is tried with
    one. Which one follows from the names of both, so that a new option moves no other pair.
    """
    # dask starts a cluster
    known = {base: set(options_of(words)) - {"dask"} for base, words in BASES.items()}
    pairs = []
    for pair in combinations(sorted(known[name]), 2):
        having = [base for base, options in known.items() if options.issuperset(pair)]
        third, number = divmod(crc32(" ".join(pair).encode()), len(having))
        if having[number] == name and (HUNTS or third % 3 == 0):
            pairs.append(pair)
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_two_options_each_change_something_or_are_refused(name):
    """In every pair each option has an effect beside the other, or the pair is refused; options are
    shared code.
    """
    words, command = BASES[name], BASES[name][0]
    pairs = pairs_of(name)
    alone = {
        option: outcome([*words, *SAMPLES[option].split()])
        for option in sorted({o for pair in pairs for o in pair})
    }
    idle = []
    for one, other in pairs:
        both = outcome([*words, *SAMPLES[one].split(), *SAMPLES[other].split()])
        for option, beside in ((one, other), (other, one)):
            if (
                both != alone[beside]
                or both == ("refused",)
                or option in PERMITS
                or (option, beside) in ASKED_ALREADY
            ):
                continue
            if command not in SHOW_SOME.get(beside, ()) and option not in UNSHOWN.get(name, ()):
                idle.append((option, beside))
    assert idle == []


@pytest.mark.parametrize(
    "option",
    ["profile", "cluster", "model", "message", "order", "format", "record", "trace", "cap"],
)
def test_an_empty_value_is_refused(option):
    """A shell variable that is not set is no absent option."""
    command = next(
        name
        for name in ("run", "memory", "validate")
        if option in [p.name for p in group.get_command(None, name).params]  # type: ignore[arg-type, union-attr]
    )
    result = CliRunner().invoke(
        group, [command, "1f1b", "--devices", "2", "--mb", "2", f"--{option}="]
    )
    assert isinstance(result.exception, PpsimError)
    assert str(result.exception) == f"--{option} is empty"


@pytest.mark.parametrize("command", ["run", "plan"])
def test_an_option_that_was_typed_leaves_nothing_for_the_next_line(command):
    """The value of an option that is not typed is made once for all lines of a process."""
    found = group.get_command(None, command)  # type: ignore[arg-type]
    assert found
    untyped = found.make_context(command, []).params
    for option in some_options([command]):
        with suppress(click.ClickException):
            found.make_context(command, SAMPLES[option].split())
    assert found.make_context(command, []).params == untyped


@pytest.mark.slow
def test_every_command_takes_a_schedule_both_ways():
    """Named or by -s, with chunks or as a file, the same schedule is run and compared."""
    Path("own.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    shape = ["--devices", "2", "--mb", "2"]
    for spec in ("1f1b", "interleaved:3", "own.csv"):
        for command in ("run", "compare", "sweep", "jitter", "memory"):
            samples = ["--samples", "5"] if command == "jitter" else []
            ways = [[spec], ["-s", spec], ["--schedule", spec]]
            answers = {
                CliRunner().invoke(group, [command, *way, *shape, *samples]).stdout for way in ways
            }
            assert len(answers) == 1, (command, spec)
            assert answers != {""}, (command, spec)


def test_stages_are_stages_of_the_model_in_every_command():
    """Alone they leave V to the schedule; schedules that would land on other devices are not
    compared.
    """

    def shapes(*words: str) -> Any:
        result = CliRunner().invoke(group, [*words, "--stages", "8", "--mb", "8", "--json"])
        return json.loads(result.stdout)

    run = shapes("run", "interleaved")
    (compared,) = shapes("compare", "interleaved")["schedules"]
    swept = shapes("sweep", "interleaved", "1f1b")["shapes"]
    assert (run["devices"], run["stages"]) == (compared["devices"], compared["stages"]) == (4, 8)
    assert [(row["devices"], row["stages"]) for row in swept] == [(4, 8), (8, 8)]
    refused = (
        CliRunner()
        .invoke(group, ["compare", "interleaved", "1f1b", "--stages", "8", "--mb", "8"])
        .exception
    )
    assert str(refused).endswith("--stages 8 is 4 for interleaved, 8 for 1f1b")
    assert isinstance(refused, PpsimError)
    assert refused.hint == "--devices 8"


def test_no_file_is_written_where_one_of_them_is_refused():
    words = [
        "run",
        "dualpipe",
        "--devices",
        "2",
        "--mb",
        "4",
        "-q",
        "-o",
        "good.svg",
        "-o",
        "bad.csv",
    ]
    assert isinstance(CliRunner().invoke(group, words).exception, PpsimError)
    assert list(Path().iterdir()) == []


def test_the_embedded_command_repeats_the_run_to_the_last_bit(monkeypatch):
    """Lists keep all their digits, and schedules their spelling."""
    monkeypatch.undo()
    words = ["run", "-s", "interleaved:2", "--devices", "2", "--mb", "4", "--json", "--tf"]
    times = f"{0.1 + 0.2},{1 / 3},1,{2 / 3}"
    first = json.loads(CliRunner().invoke(group, [*words, times]).stdout)
    again = CliRunner().invoke(group, [*shlex.split(first["inputs"]["command"])[1:], "--json"])
    assert json.loads(again.stdout) == first


@pytest.mark.slow
def test_a_tolerance_is_a_share_of_at_most_all():
    result = CliRunner().invoke(group, ["validate", "--from-record", RECORD, "--tolerance", "5"])
    assert result.exit_code == 2
    assert "write 5% if you mean percent" in result.output
    assert (
        CliRunner()
        .invoke(group, ["validate", "--from-record", RECORD, "--tolerance", "5%", "-q"])
        .exit_code
        == 0
    )


def test_a_figure_with_a_profile_without_bytes_counts_activations():
    """Memory is drawn by default, so a profile made from traces must not refuse the picture; asked
    for, it does.
    """
    profile = Path("p.toml")
    text = (ROOT / "gallery" / "profile-cpu.toml").read_text()
    profile.write_text(re.sub(r"\[\[activation\]\]\n(.+\n)+", "", text))
    words = [
        "run",
        "1f1b",
        "--devices",
        "2",
        "--mb",
        "2",
        "--profile",
        "p.toml",
        "-q",
        "-o",
        "x.svg",
    ]
    assert CliRunner().invoke(group, words).exit_code == 0
    assert "(activations)" in Path("x.svg").read_text()
    assert "no activation bytes" in str(CliRunner().invoke(group, [*words, "--memory"]).exception)


def requests() -> dict[str, type[Request]]:
    """The request of each question."""
    found = {}
    for name in list_questions():
        module = importlib.import_module(str(module_of(name)))
        kinds = [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Request)
        ]
        found[name] = next(kind for kind in kinds if getattr(kind, "question", "") == name)
    return found


def test_the_table_has_no_row_of_one_question():
    """A row that concerns one question stands in its request, where the options are declared."""
    options = {
        name: {each.name for each in list_options(kind)} for name, kind in requests().items()
    }

    def concerned(need: Need) -> list[str]:
        named = need.commands or options
        return [name for name in named if options[name] & {*need.options}]

    assert [need.reason for need in NEEDS if len(concerned(need)) < 2] == []


def test_rows_of_a_request_speak_of_its_options():
    """What ``needs`` names is an option of the question."""
    for kind in requests().values():
        known = {each.name for each in list_options(kind)}
        assert [need.why for need in kind.needs if not known & {*need.options}] == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "run v-half --devices 4 --mb 8 --offload all --host-link-shared 2",
            "no copies to a host that take time",
        ),
        (
            "memory 1f1b --devices 4 --mb 8 --model llama3-8b --zero 3",
            "--zero needs several data- or context",
        ),
        (
            "run 1f1b --devices 2 --mb 2 --grid --t-reduce 2",
            "--t-reduce is the time of a reduction, and --grid has no times",
        ),
    ],
)
def test_an_option_that_nothing_reads_is_refused_by_name(words, why):
    """Copies without a time share a link at no cost, one rank divides nothing, and slots of a grid
    are no times.
    """
    error = CliRunner().invoke(group, words.split()).exception
    assert isinstance(error, PpsimError)
    assert why in str(error)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_the_command_of_an_answer_has_the_values_that_were_typed(name, monkeypatch):
    """Each option's value is written as it is read, so that the command makes the answer again."""
    monkeypatch.setattr(write, "shlex", shlex)  # which the other tests here leave out
    Path("own.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    command, *words = ONE_BY_ONE[name]
    for option in some_options([command]):
        line = [*words, *SAMPLES[option].split()]
        try:
            typed = typed_options(command, line)
        except (PpsimError, click.ClickException):  # the option twice, or of another kind
            continue
        repeated = shlex.split(write.command_line(typed))[2:]
        # which a command leaves out, and this one needs
        repeated += ["-o", "p.toml"] if command == "calibrate" else []
        again = typed_options(command, repeated)
        kept = [each.name for each in typed.typed if each.name not in write.OUTPUT]
        assert [typed.values[name] for name in kept] == [again.values[name] for name in kept], line


def typed_options(command: str, words: list[str]) -> TypedOptions:
    """The options of a command line, as its question has them."""
    found = group.get_command(None, command)  # type: ignore[arg-type]
    assert found
    context = found.make_context(command, list(words))
    module = importlib.import_module(module_of(command) or "")
    [request] = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and getattr(each, "question", "") == command
    ]
    given = [
        name
        for name in context.params
        if context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
    ]
    return TypedOptions.from_request(make(request, context.params, given))
