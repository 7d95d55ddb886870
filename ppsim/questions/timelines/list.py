"""List all schedules, or explain one."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.ask import words
from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Chart, DrawnBlock, Line, Table, name_line
from ppsim.ask.given import Need
from ppsim.ask.groups import JsonOption, OneSchedule
from ppsim.ask.options import Request, common, flag, group
from ppsim.ask.terminal import BETWEEN
from ppsim.base.notes import note
from ppsim.base.numbers import format_column, format_number, format_share
from ppsim.base.source import read_text
from ppsim.base.text import guess_of, quote
from ppsim.engine.detailed.named_links import NAMED
from ppsim.engine.simple.columns import peak_share, shape_of
from ppsim.errors import InputError
from ppsim.questions.timelines.list_screen import MEANINGS, Row, screen_lines

if TYPE_CHECKING:
    from rich.console import Console

    from ppsim.core.timeline import Timeline
    from ppsim.engine.simple.metrics import Metrics
    from ppsim.schedules import Family

DEVICES, MICROBATCHES = 4, 8  # of the example
EXAMPLE = f"on {DEVICES} devices with {MICROBATCHES} microbatches (t_F = t_I = t_W)"
LEAST_IDEA = 40  # columns that the idea must have; else the column of needs is left out
SHELVES = ("models", "clusters", "gpus", "software", "links")
_KINDS = {name: name for name in SHELVES} | {"gpus": "GPUs", "software": "training frameworks"}


@dataclass(frozen=True, kw_only=True)
class ListRequest(Request):
    """List all schedules, or explain one; or list the library's models, clusters, GPUs, software
    and links.

    The explanation has the schedule's idea, needs, closed forms, paper and a small chart.

    \b
      ppsim list
      ppsim list zb-1p
      ppsim list dualpipe --devices 8 --mb 20
      ppsim list --clusters
      ppsim list --models --gpus --json
    """

    question: ClassVar[str] = "list"
    place: ClassVar[tuple[str, int]] = ("Schedules, and a live page", 1)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("devices", "microbatches"),
            lambda g: bool(g["names"] or g["schedule"]) and not g["as_json"],
            "{options} changes the example of one schedule, which --json leaves out",
            "name a schedule, without --json",
        ),
    )
    schedule: OneSchedule = group(OneSchedule)
    devices: int = common("--devices", "--pp", default=DEVICES, help="Devices of the example.")
    microbatches: int = common(
        *("--mb", "-m", "--microbatches"),
        default=MICROBATCHES,
        help="Microbatches of the example.",
    )
    models: bool = flag("--models", help="List the models for --model.", common=True)
    clusters: bool = flag("--clusters", help="List the clusters for --cluster.", common=True)
    gpus: bool = flag("--gpus", help="List the GPUs for --cluster and its files.", common=True)
    software: bool = flag(
        "--software", help="List the training frameworks for --software.", common=True
    )
    links: bool = flag(
        "--links", help="List the links for --cluster, its files and --link.", common=True
    )
    face: JsonOption = group(JsonOption)

    @property
    def shelves(self) -> tuple[str, ...]:
        """The kinds of library entries to list; empty for schedules."""
        return tuple(name for name in SHELVES if getattr(self, name))


def answer(request: ListRequest) -> Schedules | Shelves | Description:
    """List the schedules or the library, or explain a schedule.

    Raises:
        InputError: there is no such schedule, or several are named.
    """
    if not (request.schedule.names or request.schedule.schedule):
        return Shelves(request) if request.shelves else Schedules(request)
    if request.shelves:
        raise InputError(
            f"--{request.shelves[0]} lists the library, and a schedule is named too",
            "leave out the schedule",
        )
    from ppsim.schedules import family_of

    spec = request.schedule.spec
    if family := family_of(spec):
        return Description(request, family)
    raise InputError(
        f"{spec} is a file of ops, and only schedules of the list are described",
        f"ppsim run {spec}",
    )


def _timed_row(family: Family) -> Row:
    """Return a schedule with its idle share and peak on the example."""
    from ppsim.core.costs import costs_for
    from ppsim.engine.simple.longest_path import simulate
    from ppsim.engine.simple.metrics import measure
    from ppsim.schedules import schedule_from

    schedule = schedule_from(family.name, devices=DEVICES, microbatches=MICROBATCHES)
    metrics = measure(simulate(schedule, costs_for(schedule)))
    idle = metrics.round.bubble if metrics.round else metrics.bubble_rate
    return Row(family, idle, peak_share(metrics, shape_of(schedule)))


def _first_words(idea: str, width: int) -> str:
    """Return the first sentence of a schedule's idea, shortened to a width in letters."""
    sentence = " ".join(idea.split()).partition(". ")[0].partition(": ")[0].rstrip(".")
    return textwrap.shorten(sentence, width, placeholder=" ...")


@dataclass(frozen=True)
class Schedules(Answer[ListRequest]):
    """All schedules."""

    @property
    def verdict(self) -> str:
        """The number of schedules, and the range of their idle shares on the example."""
        idle = [row.idle for row in self.rows]
        least, most = format_share(min(idle)), format_share(max(idle))
        return f"{len(idle)} schedules; {EXAMPLE} they are idle {least} to {most} of the time"

    @cached_property
    def rows(self) -> list[Row]:
        """All schedules with their numbers on the example, by name."""
        from ppsim.schedules import families

        return [_timed_row(family) for family in families()]

    @property
    def table(self) -> list[dict[str, Any]]:
        """The facts of each schedule as a row."""
        from ppsim.schedules import families

        return [words.family_object(family) for family in families()]

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.list/1``."""
        return {"schema": "ppsim.list/1", "schedules": self.table}

    def blocks(self) -> Iterator[Block]:
        """The schedules: in groups on a terminal, one a line in a pipe."""
        yield DrawnBlock(self._lines, at_least=120)
        shelves = " ".join(f"--{name}" for name in SHELVES)
        yield name_line("one schedule: ", ("ppsim list NAME", "try"))
        yield name_line("the library: ", (f"ppsim list {shelves}", "try"))

    def _lines(self, screen: Console) -> Iterator[Block]:
        if screen.is_terminal:
            yield from screen_lines(self.rows, screen.width)
        else:
            yield self._table_for_pipe(screen.width)
            yield Line("; ".join(MEANINGS[1:]))

    def _table_for_pipe(self, width: int) -> Table:
        """The table of all schedules, one a line."""
        families = [row.family for row in self.rows]
        columns = {
            "schedule": [family.name for family in families],
            "idle": [format_share(row.idle) for row in self.rows],
            "peak": [format_number(row.peak) for row in self.rows],
            "split": ["yes" if family.split else "" for family in families],
            "needs": [words.short_needs(family) for family in families],
        }
        wide = {name: max(map(len, [name, *cells])) + BETWEEN for name, cells in columns.items()}
        left = width - sum(wide.values())
        if left < LEAST_IDEA:
            del columns["needs"]
            left += wide["needs"]
        columns["idea"] = [_first_words(family.idea, left) for family in families]
        rows = [*zip(*columns.values(), strict=True)]
        return Table([*columns], rows, at_least=120, left=["split", "needs", "idea"])


@dataclass(frozen=True)
class Description(Answer[ListRequest]):
    """A schedule explained."""

    family: Family

    @property
    def verdict(self) -> str:
        """The makespan of the example, and its idle share."""
        return words.run_verdict(self.timeline.schedule, self.metrics, self.timeline.unit)

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline of the example."""
        from ppsim.core.costs import costs_for
        from ppsim.engine.simple.longest_path import simulate
        from ppsim.schedules import schedule_from

        request = self.request
        schedule = schedule_from(
            request.schedule.spec, devices=request.devices, microbatches=request.microbatches
        )
        return simulate(schedule, costs_for(schedule))

    @cached_property
    def metrics(self) -> Metrics:
        """The numbers of the example."""
        from ppsim.engine.simple.metrics import measure

        return measure(self.timeline)

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.describe/1``."""
        return {"schema": "ppsim.describe/1", **words.family_object(self.family)}

    def blocks(self) -> Iterator[Block]:
        """Idea, facts and a small chart."""
        family, timeline, metrics = self.family, self.timeline, self.metrics
        schedule = timeline.schedule
        default = " by default" if family.chunks > 1 else ""
        facts = {
            "needs": words.needs(family),
            "placement": f"{family.placement}, {family.chunks} per device{default}",
            "bubble": family.bubble,
            "peak activations": family.peak,
            "paper": family.paper,
            "torch": family.torch,
            "also called": ", ".join(family.aliases),
            "options": ", ".join(f"--{option.replace('_', '-')}" for option in family.options),
        }
        yield Line([(family.title, "name"), f" ({family.name})\n"])
        yield DrawnBlock(self._idea)
        yield ""
        yield from (
            Line([(f"{fact:<18}", "quiet"), text], 18) for fact, text in facts.items() if text
        )
        yield ""
        yield Line(f"{words.shape_line(schedule)}, t_F = t_I = t_W = 1 per device", 2)
        yield Chart(timeline, metrics)
        yield ""
        yield Line(words.result_line(family.name, metrics, shape_of(schedule), timeline.unit))

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The timeline of the example with its title."""
        return [(self.family.title, self.timeline)]

    def _idea(self, screen: Console) -> Iterator[Block]:
        yield Line(" ".join(self.family.idea.split()) if screen.is_terminal else self.family.idea)


@dataclass(frozen=True)
class Shelves(Answer[ListRequest]):
    """The contents of the library."""

    @property
    def verdict(self) -> str:
        """The number of entries of each kind."""
        counts = [f"{len(rows_of(name))} {_KINDS[name]}" for name in self.request.shelves]
        return f"{' and '.join(filter(None, (', '.join(counts[:-1]), counts[-1])))} in the library"

    @property
    def table(self) -> list[dict[str, Any]]:
        """The entries of all kinds asked for, as rows."""
        return [{"kind": name, **row} for name in self.request.shelves for row in rows_of(name)]

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.list/1``."""
        return {"schema": "ppsim.list/1", **{name: rows_of(name) for name in self.request.shelves}}

    def blocks(self) -> Iterator[Block]:
        """A table for each kind of entries."""
        for name in self.request.shelves:
            yield ""
            yield _shelf_table(rows_of(name))
        yield ""
        yield Line(
            "all fields of an entry: ppsim model NAME; for your own, give a TOML file as NAME"
        )


# Headings of columns whose keys in --json have a unit; other columns have their key as heading.
_HEADINGS = {
    "parameters_b": "parameters\nB",
    "active_b": "active\nB",
    "seq": "sequence",
    "gpus_of_a_node": "GPUs of\na node",
    "gb_per_s_within": "within a node\nGB/s",
    "gb_per_s_between": "between nodes\nGB/s",
    "memory_gib": "memory\nGiB",
    "hbm_gb_per_s": "memory\nGB/s",
    "latency_us": "latency\nus",
    "gb_per_s": "bandwidth\nGB/s",
}


def _shelf_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of library entries; all numbers of a column have as many decimals."""
    columns = dict[str, list[str]]()
    words = list[str]()
    for key in rows[0]:
        values = [row[key] for row in rows]
        precision, tflops, _ = key.partition("_tflops")
        name = f"{precision}\nTFLOP/s" if tflops else _HEADINGS.get(key, key)
        if any(isinstance(value, str) for value in values):
            words.append(name)
            columns[name] = ["" if value is None else str(value) for value in values]
        else:
            columns[name] = format_column(values)
    two_lines = any("\n" in name for name in columns)
    headings = [name if "\n" in name else name + "\n" * two_lines for name in columns]
    cells = [*zip(*columns.values(), strict=True)]
    return Table(headings, cells, left=[name + "\n" * two_lines for name in words])


def rows_of(shelf: str) -> list[dict[str, Any]]:
    """Return the library's entries of one kind, by name, each with its main fields."""
    if shelf == "models":
        from ppsim.workload.model.model import count_parameters, library, read_model

        found = [read_model(name) for name in library()]
        return [
            {
                "model": model.name,
                "parameters_b": count_parameters(model) / 1e9,
                "active_b": count_parameters(model, active=True) / 1e9,
                "layers": model.layers,
                "hidden": model.hidden,
                "seq": model.seq,
            }
            for model in found
        ]
    if shelf == "software":
        from ppsim.workload.plans.software import softwares

        return [
            {
                "software": name,
                "on": found.on,
                "schedules": ", ".join(found.runs) or "all",
                "source": found.source,
            }
            for name, found in softwares().items()
        ]
    if shelf == "links":
        return [
            {"link": name, "latency_us": alpha, "gb_per_s": speed}
            for name, (alpha, speed) in NAMED.items()
        ]
    from ppsim.workload.hardware.hardware import gpus, machines, read_gpu, read_machine

    if shelf == "gpus":
        return [_gpu_row(read_gpu(name)) for name in gpus()]
    return [
        {
            "cluster": machine.name,
            "gpu": machine.gpu.name,
            "gpus_of_a_node": machine.per_node,
            "gb_per_s_within": machine.intra_bytes_per_s / 1e9,
            "gb_per_s_between": machine.inter_bytes_per_s / 1e9,
        }
        for machine in map(read_machine, machines())
    ]


def _gpu_row(gpu: Any) -> dict[str, Any]:
    """Return the main fields of a GPU; peaks in TFLOP/s are None if it lacks the precision."""
    peaks = {
        f"{name}_tflops": getattr(gpu.tflops, name) or None
        for name in ("bf16", "fp16", "fp8", "fp4")
    }
    return {
        "gpu": gpu.name,
        "memory_gib": gpu.memory_gib,
        "hbm_gb_per_s": gpu.hbm_gb_per_s,
        **peaks,
    }


def card_of(name: str) -> dict[str, Any]:
    """Return all fields of a cluster, a GPU or a software; empty if the name is none of them.

    ``name`` is a name of the library, a file, or parts of a cluster. Software with a release has
    the techniques of that release; rules for a precision, a host or a model may change them.

    Raises:
        InputError: the parts make no cluster, or a file cannot be read.
    """
    from ppsim.workload.plans.software import read_software, softwares

    plain, release, _ = name.lower().partition("@")
    if plain in softwares():
        version = read_software(name)
        if assumption := version.assumed_release:
            note(assumption)
        if not release:
            return {"name": plain, **asdict(version.software)}
        return {"name": plain, "release": name.partition("@")[2], **version.techniques(None)}
    from ppsim.engine.detailed import cluster as clusters
    from ppsim.workload.hardware.hardware import (
        SCHEMA,
        gpus,
        machines,
        read_cluster,
        read_gpu,
        read_machine,
    )

    text = read_text(name, "a TOML file") if name.endswith(".toml") else ""
    is_parts = "," in name and not name.endswith((".toml", ".json"))
    if plain in machines() or is_parts or f'"{clusters.SCHEMA}"' in text:
        cluster = read_cluster(name)
        fields = {"cluster": name, **asdict(cluster)}
        return fields | {"gpu": asdict(read_machine(name).gpu)} if cluster.gpu else fields
    if plain in gpus() or f'"{SCHEMA}"' in text:
        return asdict(read_gpu(name))
    from ppsim.workload.model.model import library

    guess = guess_of(plain, [*library(), *machines(), *gpus(), *softwares()])
    if guess != guess_of(plain, library()) and not os.path.exists(name):
        raise InputError(
            f"nothing called {quote(name)} in the library and no such file.{guess}",
            "ppsim list --models --clusters --gpus --software",
        )
    return {}


def card_words(fields: Mapping[str, Any]) -> str:
    """Return the distinguishing facts of a cluster, a GPU or a software, from the fields of
    :func:`card_of`.
    """
    if "tflops" in fields:
        speeds = fields["tflops"]
        peak = max(speeds.values(), default=0.0) if isinstance(speeds, Mapping) else 0.0
        return f"a GPU of {fields['memory_gib']:g} GiB, {peak:,.0f} TFLOP/s at most"
    if "cluster" in fields:
        gpu = fields["gpu"]["name"] if isinstance(fields.get("gpu"), Mapping) else ""
        return f"a cluster of {gpu} GPUs" if gpu else "a cluster"
    return "a training framework"
