"""Parts of costs are found by a scan: one file is a source of times, a rule or a change."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import ppsim
from ppsim.ask.given import TypedOptions
from ppsim.ask.options import list_options
from ppsim.errors import InputError
from ppsim.prices.editable import command_of_file
from ppsim.prices.options import (
    ADDING_OPS,
    DECIDING_OPS,
    NAMING_FILES,
    PARTS,
    REFUSED_UNUSED,
    WHOLE_COSTS,
    WITHOUT_LAYERS,
    CostOptions,
    ask_costs,
)
from ppsim.prices.part import LAYER_TIMES, Part, Source
from ppsim.prices.timing import SIMPLE
from ppsim.questions.timelines.sweep import files_of
from tests.commands import ROOT, answers_with


def example() -> str:
    """The file that CONTRIBUTING.md shows."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a source of times")[2]
    return re.sub(r"(?m)^    ", "", re.search(r"\n\n((?:    .*\n|\n)+)", text)[1])  # type: ignore[index]


def answer_with(part: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command says in an interpreter that finds one more file of a part."""
    (folder / "added.py").write_text(part)
    code = (
        f"import sys; sys.argv[1:] = {list(words)}\n"
        f"import ppsim.prices.parts as parts; parts.__path__.append({str(folder)!r})\n"
        "from ppsim.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.mark.slow
def test_a_source_of_times_is_one_file(tmp_path):
    """The file of CONTRIBUTING.md gives its option to commands, help, JSON and what-if, and counts
    before numbers.
    """
    run = answer_with(
        example(), tmp_path, "run", "1f1b", "--devices", "4", "--mb", "8", "--flat", "3", "--json"
    )
    found = json.loads(run.stdout)
    assert found["makespan"] == (8 + 3) * (3 + 3)
    assert (
        found["inputs"]["command"].endswith("--flat 3 --json")
        or "--flat 3" in found["inputs"]["command"]
    )
    assert "--flat" in answer_with(example(), tmp_path, "compare", "--help-all").stdout
    tried = answer_with(
        example(), tmp_path, "explain", "1f1b", "--devices", "4", "--mb", "8", "--what-if", "flat=2"
    )
    assert "flat=2" in tried.stdout
    assert "44 t_F" in tried.stdout


# A source that is another name of ``--profile``, in a file that nothing else knows.
TWIN = """
from dataclasses import dataclass
from typing import ClassVar

import click

from ppsim.ask.options import option
from ppsim.prices.part import Source
from ppsim.prices.parts.profile import MeasuredProfile


@dataclass(frozen=True)
class Twin(Source):
    place: ClassVar[int] = 112
    called_by: ClassVar[tuple[str, ...]] = ("twin",)
    gives_whole_costs: ClassVar[bool] = True
    gives_messages: ClassVar[bool] = True
    holds_bytes: ClassVar[bool] = True
    is_of_whole_sequences: ClassVar[bool] = True
    prices_layouts: ClassVar[bool] = True

    twin: str | None = option("--twin", type=click.Path(), help="A profile.")

    def price(self, schedule, asked):
        return MeasuredProfile(self.twin).price(schedule, asked)

    def layers(self, schedule):
        return MeasuredProfile(self.twin).layers(schedule)

    def attention_share(self):
        return MeasuredProfile(self.twin).attention_share()

    def length_law(self):
        return MeasuredProfile(self.twin).length_law()

    def has_bytes(self):
        return MeasuredProfile(self.twin).has_bytes()

    def hold(self, schedule, asked):
        return MeasuredProfile(self.twin).hold(schedule, asked)
"""
LIKE_A_PROFILE = [
    "run 1f1b {} --cap 4",
    "run 1f1b {} --cap 4GiB",
    "run 1f1b {} --lengths lognormal:2048:1.2:7 --cap 4GiB",
    "run 1f1b {} --recompute layers:1",
    "run seq-1f1b {} --slice-scale attention",
    "run 1f1b {} --memory -o bytes.svg",
    "compare 1f1b zb-1p {} --cap 4",
    "compare 1f1b zb-1p {} --cap 1GiB",
    "explain 1f1b {}",
    "explain 1f1b {} --cap 4GiB",
    "explain 1f1b {} --what-if comm=x2",
    "explain 1f1b {} --lengths lognormal:2048:1.2:7 --cap 5",
    "memory 1f1b {} --cap 1GiB",
    "sweep 1f1b zb-1p {} --cap 4GiB",
    "partition 1f1b {} --num-layers 9 --cap 9GiB",
    "optimize {}",
    "convert own.csv -o own.json {}",
]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["profile-h100.toml", "profile-cpu.toml"])
def test_a_source_like_the_profile_is_one_file(tmp_path, profile):
    """Every question that knows bytes, layers, a law or a file of a profile knows them of a source
    that nothing names.
    """
    (tmp_path / "twin.py").write_text(TWIN)
    (tmp_path / "own.csv").write_text("0F0,0B0\n1F0,1B0\n")
    own = f"{ROOT / 'gallery' / profile}"
    size = "--devices 3 --mb 6"
    lines = [
        line.format(f"--{option} {own}" + f" {size}" * (not line.startswith("convert")))
        for line in LIKE_A_PROFILE
        for option in ("profile", "twin")
    ]
    said = answers_with("ppsim.prices.parts", tmp_path, [line.split() for line in lines])
    for line, known, new in zip(LIKE_A_PROFILE, said[::2], said[1::2], strict=True):
        assert [str(part).replace("--twin", "--profile") for part in new] == [
            str(part) for part in known
        ], line


UNREAD = {
    "--flat 3 --tf 2": "--flat gives the times of all ops, so --tf cannot be given too",
    "--flat 0 --tb 2": "--flat gives the times of all ops, so --tb cannot be given too",
    "--flat 3 --cost-per stage": "so --cost-per cannot be given too",
    "--flat 3 --profile {cpu}": "--flat gives the times of all ops, so --profile cannot be",
    "--flat 3 --layout Et|tL": "--flat gives the times of all ops, so --layout cannot be",
    "--flat 3 --segments {segments}": "--segments gives the times of all ops, so --flat cannot",
    "--flat 3 --model llama3-8b --cluster dgx-h100": "give all times, so --flat cannot be given",
}


@pytest.mark.slow
def test_times_that_a_source_does_not_read_are_refused(tmp_path):
    """Numbers and other sources have no effect with the source of CONTRIBUTING.md, which reads the
    latency and the unit.
    """
    (tmp_path / "added.py").write_text(example())
    files = {
        "cpu": ROOT / "gallery" / "profile-cpu.toml",
        "segments": ROOT / "gallery" / "segments.toml",
    }
    run = "run 1f1b --devices 2 --mb 2 "
    lines = [run + line.format(**files) for line in UNREAD]
    lines += [run + "--flat 3 --comm 1 --unit ms", run + "--flat 3 --speed 2"]
    said = answers_with("ppsim.prices.parts", tmp_path, [line.split() for line in lines])
    *refused, read, changed = said
    for (line, wanted), (code, _, error) in zip(UNREAD.items(), refused, strict=True):
        assert code == 2, line
        assert wanted in str(error), line
    assert read[1].startswith("1f1b takes 20 ms for")
    assert changed[1].startswith("1f1b takes 9 t_F for")


def test_a_function_of_costs_leaves_no_other_time_without_effect():
    """Python's ``costs`` was counted and ``tf`` dropped without a word."""
    costs = ppsim.Costs.of(F=1.0, B=2.0)
    times: dict[str, Any] = {"tf": 3.0, "comm": 0.5, "unit": "ms", "profile": "p.toml"}
    for name, value in times.items():
        with pytest.raises(InputError, match=f"costs gives the times of all ops, so --{name}"):
            ppsim.run("1f1b", devices=2, microbatches=2, costs=costs, **{name: value})
    assert ppsim.run("1f1b", devices=2, microbatches=2, costs=costs).metrics.makespan == 9.0


@pytest.mark.slow
def test_a_part_says_what_its_options_leave_no_room_for(tmp_path):
    """A row of ``needs`` in the file is asked as those of the table are."""
    needs = (
        "needs: ClassVar[tuple] = (Need(('tf',), lambda g: g['flat'] is None, 'times twice: "
        "{options}'),)"
    )
    part = example().replace("    flat: float", f"    {needs}\n    flat: float")
    part = part.replace(
        "from ppsim.ask.options", "from ppsim.ask.given import Need\nfrom ppsim.ask.options"
    )
    ran = answer_with(
        part, tmp_path, "run", "1f1b", "--devices", "2", "--mb", "2", "--flat", "3", "--tf", "2"
    )
    assert ran.returncode == 2
    assert "times twice: --tf" in ran.stderr


def test_each_part_has_its_own_place():
    """Places differ, so that the order in which parts are asked is one."""
    assert len({kind.place for kind in PARTS}) == len(PARTS) > 10
    assert list(PARTS) == sorted(PARTS, key=lambda kind: kind.place)


def test_a_source_without_times_is_none():
    """Nothing is made of a class that gives no times; each source that is there gives them."""

    class Empty(Source):
        place = 1

    with pytest.raises(TypeError, match="abstract"):
        Empty()  # type: ignore[abstract]
    sources = {kind.__name__ for kind in PARTS if issubclass(kind, Source)}
    assert sources >= {"Numbers", "Chunks", "LayoutString", "MeasuredProfile", "SegmentFile"}


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_a_part_speaks_of_its_own_options(kind: type[Part]):
    """What calls a part, and what it refuses unused, are options that it declares."""
    own = {each.name for each in fields(kind)}
    assert {*kind.called_by, *kind.lacks} <= own


def test_options_of_costs_are_those_of_the_parts():
    """In the order of the parts, which is that of the help."""
    assert [each.name for each in fields(CostOptions)] == [
        each.name for kind in PARTS for each in fields(kind)
    ]
    assert [each.name for each in list_options(CostOptions)][:2] == ["tf", "tb"]
    assert {*REFUSED_UNUSED} <= {each.name for each in fields(CostOptions)}


def test_a_part_is_asked_only_where_an_option_calls_it():
    """Numbers, rounds and recompute are always asked; of two sources the later one counts."""
    always = [type(part).__name__ for part in ask_costs(CostOptions()).parts]
    assert [name for name in always if name in ("Recompute", "Steps", "Numbers")] == [
        "Recompute",
        "Steps",
        "Numbers",
    ]
    assert not {"MeasuredProfile", "LayoutString", "Devices"} & {*always}
    both = ask_costs(CostOptions(profile="p.toml", layout="t|t", speed=2.0))
    assert type(both.source).__name__ == "MeasuredProfile"
    assert [type(part).__name__ for part in both.parts] == [
        "Recompute",
        "MeasuredProfile",
        "LayoutString",
        "Devices",
        "Steps",
        "Numbers",
    ]


def test_queues_follow_costs_where_ops_are_added_by_them():
    """Copies and encoders are put where bubbles are; recompute is put before its backward."""
    assert ask_costs(CostOptions(offload="1")).orders_by_costs
    assert ask_costs(CostOptions(encoder="encoder.toml")).orders_by_costs
    assert not ask_costs(CostOptions(recompute=True)).orders_by_costs
    assert not ask_costs(CostOptions(host_link="55GB/s")).orders_by_costs


def test_lists_of_options_follow_from_the_parts():
    """By what each part says of itself, in the order of the help."""
    adding = ("offload", "steps", "post_validation", "encoder", "recompute")
    known = {*adding, *LAYER_TIMES, "layout", "profile", "segments", "host_link", "speed", "unit"}

    def known_in(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name in known)  # a new part adds others

    assert known_in(NAMING_FILES) == ("profile", "segments", "encoder")
    assert known_in(ADDING_OPS) == adding
    assert {*known_in(WHOLE_COSTS)} == {*LAYER_TIMES, "layout", "profile", "segments"}
    assert known_in(WITHOUT_LAYERS) == ("segments",)
    assert {*ADDING_OPS} <= DECIDING_OPS


def test_a_layout_states_the_number_of_stages():
    """It is the first part that does; without one no option does."""
    asked = ask_costs(CostOptions(layout="Et|t|t|tL"))
    assert (asked.n_stages(), asked.stage_option) == (4, "layout")
    assert asked.stages_hint(2, 2) == "'Et*3|tL'"
    none = ask_costs(CostOptions(tf=2.0))
    assert (none.n_stages(), none.stage_option, none.stages_hint(2, 2)) == (None, "", "")


def test_the_command_of_a_page_leaves_out_what_its_file_has():
    """Ops that options added are in the file; their times are not."""
    words = ["t_optimizer", "steps", "post_validation", "recompute", "tf"]
    typed = [each for each in list_options(CostOptions) if each.name in words]
    values = {"t_optimizer": 1.0, "steps": 2, "post_validation": True, "recompute": True, "tf": 2.0}
    assert (
        command_of_file(TypedOptions("run", values, typed))
        == "ppsim run FILE --tf 2.0 --t-optimizer 1.0"
    )


def test_files_that_options_name_are_sent_to_workers(tmp_path):
    """Whatever part declares them, by their path."""
    profile, encoder = (
        str(ROOT / "gallery" / name) for name in ("profile-cpu.toml", "encoder.toml")
    )
    costs = CostOptions(profile=profile, encoder=encoder)
    assert {*files_of(("1f1b",), costs, SIMPLE)} == {profile, encoder}
