"""Plan how to train a model on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import click
import numpy as np

from ppsim.analysis.tradeoff import Point
from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.given import Need, TypedOptions
from ppsim.ask.groups import FaceOptions, OutputOptions
from ppsim.ask.options import Request, common, flag, group, option
from ppsim.ask.request import ask
from ppsim.ask.tasks import TaskOptions, open_tasks
from ppsim.ask.words import count_text
from ppsim.ask.write import (
    Writers,
    command_line,
    find_targets,
    inputs_of,
    tradeoff_writers,
    write_table,
)
from ppsim.base.atomic_file import open_atomically
from ppsim.base.notes import note, progress
from ppsim.base.numbers import (
    align_decimals,
    format_number,
    format_part,
    format_range,
    format_share,
)
from ppsim.base.tables import TABLES, table_suffix
from ppsim.base.units import format_size, parse_size
from ppsim.base.workers import count_cores
from ppsim.core.schedule import place
from ppsim.errors import InputError, PpsimError
from ppsim.prices.cap import note_above_gpu
from ppsim.prices.software import SoftwareOptions, parallel_with
from ppsim.questions.plans.explorer import (
    cap_of,
    gpu_label,
    layout_and_layers,
    plan_page_of,
    rank_lines,
    usable_memory_text,
)
from ppsim.questions.plans.measured import (
    BASELINE,
    NEAR,
    Corrections,
    certainty_text,
    correct_plans,
    gain_of_plan,
    uneven_sides,
    uneven_stages,
)
from ppsim.questions.plans.published_runs import PublishedRuns, compare_runs
from ppsim.questions.plans.space import SoftwareFeatures, SpaceOptions, make_axes, use_profile_of
from ppsim.schedules import find
from ppsim.workload.plans.launcher import launcher_names

if TYPE_CHECKING:
    from ppsim.show.drawing.card_bars import Bars
    from ppsim.workload.cost.exposed import OptimizerStep
    from ppsim.workload.hardware.hardware import Machine
    from ppsim.workload.model.model import Model
    from ppsim.workload.plans.gains import Gain
    from ppsim.workload.plans.nearby import Nearby
    from ppsim.workload.plans.rows import UserNames
    from ppsim.workload.plans.task import Findings, Task

WORTH = 0.01  # share of an optimizer step from which its hidden part is printed
FEW = 64  # rounds with fewer candidates run in this process: starting others would take longer
# precisions with a peak other than the 16-bit one, and the name of that peak
NARROW = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
# Parts of a step in which one plan loses against another.
TERMS = ("compute", "recompute", "communication", "bubble", "gradients", "optimizer")
SIZES = ("tp", "cp", "ep", "pp", "dp", "vp")

# Options that --against refuses: its table states them, or they are for printed plans.
PLANNED = (
    *("gpus", "gbs", "tp", "cp", "ep", "pp", "vp", "mbs", "schedules", "recomputes", "layouts"),
    *("zero", "offload", "precision", "seq", "cap", "top", "front", "flags", "ranks"),
)


@dataclass(frozen=True, kw_only=True)
class PlanRequest(Request):
    """Find the fastest plans that train a model within the memory of the GPUs, and show why others
    are slower.

    Sizes of tensor, context, expert, pipeline and data parallelism, chunks, microbatch size,
    schedule, recompute and layout are free unless an option fixes them. -o writes the plans as a
    table (csv, json, parquet), a page to explore plans and the placement of their ranks (html;
    --front adds plans that need less memory), or the placement of ranks as a flowchart (mmd). With
    --front it also draws time against memory, and with --against predicted against published steps.

    \b
      ppsim plan --model llama3-70b --cluster dgx-h100 --gpus 256 --gbs 1024
      ppsim plan --model gpt3-175b --cluster dgx-a100 --gpus 1024 --gbs 1536 --flags megatron
      ppsim plan --model qwen3-32b --cluster dgx-h100 --gpus 64 --gbs 256 -o plan.html
      ppsim plan --against measured_runs.json -o trust.html

    Memory counts weights, gradients, Adam's states, activations from their forward to their
    backward, and buffers of messages. 6 % of a GPU's memory stays free for its driver,
    communicators and gaps between tensors; --cap sets another limit.

    To plan for a GPU that the library lacks, describe it in a file, name that file in a cluster
    file of the same folder, and give --cluster my-cluster.toml:

    \b
      # my-gpu.toml
      schema = "ppsim.gpu/1"
      name = "my-gpu"
      memory_gib = 96
      hbm_gb_per_s = 4000
      [tflops]
      bf16 = 1000

    \b
      # my-cluster.toml
      schema = "ppsim.cluster/1"
      gpu = "my-gpu.toml"
      devices_per_node = 8
      [intra]
      link = "nvlink4"
      [inter]
      link = "ib-400"
    """

    question: ClassVar[str] = "plan"
    place: ClassVar[tuple[str, int]] = ("What a model needs", 1)
    tables: ClassVar[bool] = True
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("improve",),
            lambda g: bool(g["against"]),
            "{options} plans runs of a table, and no table is given",
            "add --against TABLE",
        ),
        Need(
            PLANNED,
            lambda g: not g["against"],
            "--against takes sizes from its table, so {options} has no effect",
            "leave it out",
        ),
        Need(
            ("dask", "results"),
            lambda g: not g["against"] or g["improve"],
            "{options} is for long work, and predicting the runs of a table is short",
            "add --improve, or leave it out",
        ),
        Need(
            ("ranks",),
            lambda g: not (g["as_json"] or g["quiet"] or "-" in g["output"]),
            "{options} prints more text, and --json, --quiet and -o - print only the result",
        ),
        Need(
            ("flags",),
            lambda g: not (g["as_json"] or "-" in g["output"]),
            "{options} prints launch flags, and --json and -o - print only the result",
        ),
    )
    model: str | None = common(
        "--model",
        metavar="NAME|FILE",
        help="The model: a name of the library (ppsim list --models), a TOML file, or a "
        "config.json.",
    )
    cluster: str | None = common(
        "--cluster",
        metavar="NAME|FILE",
        help="The cluster: a name of the library (ppsim list --clusters), a file, or parts such as "
        "h100x8,nvlink4,ib-400 (without a network card: one node).",
    )
    gpus: int | None = common(
        "--gpus",
        type=click.IntRange(1, 1 << 20),
        help="Number of GPUs (default: all of a cluster that has several kinds of nodes).",
    )
    gbs: int | None = common(
        "--gbs", type=click.IntRange(1, 1 << 24), help="Global batch size: sequences in a step."
    )
    space: SpaceOptions = group(SpaceOptions, "What plans may choose")
    runs: SoftwareOptions = group(SoftwareOptions, "Software")
    any_schedule: bool = flag(
        "--any",
        help="Also try schedules, kinds of parallelism and ZeRO stages that the software lacks.",
    )
    top: int = common(
        "--top",
        type=click.IntRange(1, 1000),
        default=5,
        help="Number of plans to print, without near copies.",
    )
    front: bool = flag(
        "--front",
        help="Also print plans that need less memory: the Pareto front of time and memory.",
        common=True,
    )
    flags: str | None = common(
        "--flags",
        type=click.Choice(launcher_names()),
        help="Plan for this framework; print the best plan as launch flags, or as TOML.",
    )
    ranks: bool = flag(
        "--ranks", help="Print the nodes of the best plan's ranks, and the links that they use."
    )
    anchor: tuple[str, ...] = option(
        "--anchor",
        type=click.Path(),
        metavar="TABLE",
        multiple=True,
        help="Correct predictions by runs that you measured: a table as for --against, or a "
        "profile of ppsim calibrate.",
    )
    against: str | None = option(
        "--against",
        type=click.Path(),
        metavar="TABLE",
        help="Predict the runs of a table (json, csv, parquet) instead of planning; its rows may "
        "also name your --model and --cluster.",
    )
    improve: bool = flag(
        "--improve", help="With --against: also plan each run, and show the changes of the plan."
    )
    tasks: TaskOptions = group(TaskOptions, "Work")
    output: OutputOptions = group(OutputOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")

    @property
    def shows_progress(self) -> bool:
        """True if the answer is text for people, who may wait for it at a terminal."""
        return not self.face.as_json and not self.face.quiet

    def check(self) -> None:
        """Refuse a request without model, cluster or batch size, and formats without plans."""
        from ppsim.show.files.chart import check_chart
        from ppsim.show.files.document import require_suffix
        from ppsim.show.files.tradeoff import check_suffix

        missing = [
            f"--{name}" for name in ("model", "cluster", "gbs") if getattr(self, name) is None
        ]
        if missing and self.against is None:
            hint = (
                "--model llama3-70b --cluster dgx-h100 --gpus 256 --gbs 1024; names: ppsim list "
                "--models --clusters"
            )
            raise InputError(f"a plan needs {', '.join(missing)}", hint)
        for _, suffix in find_targets(self.output, tables=True):
            if self.against is not None:
                check_chart(suffix, "published against predicted")
            elif suffix in TABLES:
                table_suffix(f"x{suffix}")
            elif self.front:
                check_suffix(suffix)
            else:
                require_suffix(
                    suffix, (*TABLES, ".html", ".mmd"), "a plan", "; with --front a picture"
                )


def plan(model: str, cluster: str, **options: Any) -> Plans:
    """Return the fastest plans for training a model within the memory of a number of GPUs.

    Steps are in seconds, memory is in bytes.

    Args:
        model: a name of the library, or a file.
        cluster: a name of the library, or a file.
        options: the options of ``ppsim plan`` by name, at least ``gpus`` and ``gbs`` (sequences in
            a step); lists of names may be Python lists.

    Raises:
        InputError: an option is refused, or no plan has these sizes.
        PpsimError: no plan fits the memory.
    """
    return _plan(ask(PlanRequest, {"model": model, "cluster": cluster} | options))


def answer(request: PlanRequest) -> Plans | PublishedRuns:
    """Search for plans, or predict the runs of a table."""
    if request.against is None:
        return _plan(request)
    if profiles := [name for name in request.anchor if _is_profile(name)]:
        raise InputError(
            f"'{profiles[0]}' has times of ops, and --against corrects by times of steps",
            "--anchor ROWS.json",
        )
    user_names = _user_names(request)
    runs = _measured_runs(request.anchor, user_names)
    return compare_runs(request, request.against, runs, user_names)


def _user_names(request: PlanRequest) -> UserNames:
    """Return the given model and cluster, which rows of a table may name."""
    from ppsim.workload.hardware.hardware import read_machine
    from ppsim.workload.model.model import read_model
    from ppsim.workload.plans.rows import user_names_of

    model, cluster = request.model, request.cluster
    return user_names_of(
        (model, read_model(model)) if model else None,
        (cluster, read_machine(cluster)) if cluster else None,
    )


def _plan(request: PlanRequest) -> Plans:
    """Search for plans, and correct the ones found by measured runs."""
    from ppsim.workload.plans.rows import user_names_of

    request = _add_software(request)
    task = make_task(request)
    user_names = user_names_of(
        (request.model or "", task.model), (request.cluster or "", task.machine)
    )
    runs = _measured_runs(request.anchor, user_names)
    task = replace(task, near=NEAR, launch=_required_framework(request, task))
    found = _search(task, request)
    if not found.rows and task.launch:  # plans without launch flags may fit
        task = replace(task, launch="")
        found = _search(task, request)
    if not found.rows:
        _raise_nothing_fits(task, found)
    corrections = correct_plans(task, request.runs.version, found, runs)
    return Plans(
        request, task, found, corrections, runs, inputs_of(TypedOptions.from_request(request))
    )


def _add_software(request: PlanRequest) -> PlanRequest:
    """Return the request with a software: the one that --flags is for, if none is named.

    Raises:
        InputError: the named software has other launch flags.
    """
    if request.flags is None:
        return request
    from ppsim.workload.plans.launcher import launcher_of

    usual = launcher_of(request.flags).software
    if request.runs.software is None:
        return replace(request, runs=replace(request.runs, software=usual))
    software = request.runs.version.software
    if software.launched_by not in ("", request.flags):
        raise InputError(
            f"{software.name} is launched by flags of {software.launched_by}, not of "
            f"{request.flags}",
            f"--flags {software.launched_by}, or --software {usual}",
        )
    return request


def _required_framework(request: PlanRequest, task: Task) -> str:
    """Return the framework whose launch flags must express every plan; empty if none must.

    None must with --any, if activations are offloaded (no launch flags express that), and if the
    framework cannot express the model at all.
    """
    framework = request.flags or request.runs.version.software.launched_by
    if not framework:
        return ""
    if (request.any_schedule or any(task.axes.offload)) and not request.flags:
        return ""
    from ppsim.workload.layout.layout import build_layout
    from ppsim.workload.plans.launcher import refusal

    model, base = task.model, task.axes.base
    one_stage = build_layout([model.layers], 1, model.mtp)
    return "" if refusal(framework, model, base, one_stage) else framework


def _is_profile(anchor: str) -> bool:
    return anchor.lower().endswith(".toml")


def _measured_runs(anchors: Sequence[str], user_names: UserNames) -> Nearby:
    """Return the measured runs that correct predictions: the library's and the user's anchors.

    With a profile only the user's anchors: the library's runs were predicted by the efficiency
    curve, which the profile replaces.

    Raises:
        InputError: an anchor cannot be read or predicted.
    """
    from ppsim.workload.plans.nearby import Measured, Nearby, published

    measured = user_names.machine and user_names.machine.measured
    tables = [name for name in anchors if not _is_profile(name)]
    if not tables:
        return Nearby() if measured else published()
    from ppsim.workload.plans.published import anchors_of
    from ppsim.workload.plans.rows import read_table, unknown_keys

    given = list[Measured]()
    for name in tables:
        rows = read_table(name)
        if unknown := unknown_keys(rows):
            note(f"{name}: unknown keys of rows, not read: {', '.join(unknown)}")
        given += anchors_of(rows, user_names, name)
    return Nearby(() if measured else published().runs, tuple(given))


def make_task(request: PlanRequest) -> Task:
    """Return the task of a search: model, cluster, choices and memory cap.

    Raises:
        InputError: a name is unknown, or no plan has these sizes.
    """
    from ppsim.workload.hardware.hardware import read_machine
    from ppsim.workload.model.model import read_trained
    from ppsim.workload.plans.space import check_axes
    from ppsim.workload.plans.task import Task, usable_bytes

    sizes = request.runs.sizes_of_ranks(vars(request.space), lambda size: [size])
    space = replace(request.space, **sizes)
    model = read_trained(request.model or "", space.seq)
    machine = read_machine(request.cluster or "")
    gpus, gbs = _gpu_count(request, machine), request.gbs or 0
    cap = _cap_bytes(space.cap) or usable_bytes(machine)
    note_above_gpu(space.cap, machine)
    base = parallel_with(request.runs, space.precision, model, machine.gpu)
    axes = make_axes(model, machine, space, base, _software_features(request, model))
    machine = use_profile_of(_with_anchor_profile(request, space), machine, model, base)
    machine.peak(space.precision)
    check_axes(model, machine.per_node, gpus, gbs, axes)
    return Task(model, machine, gpus, gbs, axes, cap, request.top, request.front)


def _gpu_count(request: PlanRequest, machine: Machine) -> int:
    """Return the number of GPUs, as given, of a file of ranks, or of the cluster.

    Raises:
        InputError: no number is known, two differ, or the cluster lacks so many GPUs.
    """
    ranks = request.runs.ranks
    gpus = request.gpus or (ranks.gpus if ranks else machine.gpus)
    if ranks and gpus != ranks.gpus:
        raise InputError(
            f"'{ranks.source}' has {ranks.gpus:,} ranks, and --gpus is {gpus:,}", "leave out --gpus"
        )
    if not gpus:
        raise InputError(
            "a plan needs --gpus",
            "--gpus 256, or a cluster file with [[nodes]] that states their number",
        )
    if machine.kinds and gpus != machine.gpus:
        raise InputError(
            f"a cluster of {machine.title} is planned whole, not {gpus:,} of its GPUs",
            f"--gpus {machine.gpus}",
        )
    machine.check_gpus(gpus)
    return gpus


def _cap_bytes(text: str | None) -> float | None:
    """Return --cap in bytes; None if not given (InputError: not a size in bytes)."""
    if not text:
        return None
    try:
        size, in_bytes = parse_size(text)
    except InputError as error:
        raise InputError(f"--cap: {error}", error.hint) from None
    if not in_bytes or not size:
        raise InputError(f"--cap: not a memory size: '{text}'; expected e.g. 75GiB")
    return float(size)


def _with_anchor_profile(request: PlanRequest, space: SpaceOptions) -> SpaceOptions:
    """Return the choices of a plan with the profile that --anchor names, if it names one.

    Raises:
        InputError: several profiles are given.
    """
    profiles = [name for name in request.anchor if _is_profile(name)]
    if len(profiles) + bool(space.profile) > 1:
        raise InputError(
            "several profiles are given, and plan uses one", "one --anchor FILE.toml, or --profile"
        )
    return replace(space, profile=profiles[0]) if profiles else space


def _software_features(request: PlanRequest, model: Model) -> SoftwareFeatures:
    """Return the features for the model of the software that plans may use; all with --any."""
    software = request.runs.version.software
    if request.any_schedule and not request.flags:
        return SoftwareFeatures(software.name, free=True)
    schedules = software.runs
    if request.flags:
        from ppsim.workload.plans.launcher import launcher_of

        able = launcher_of(request.flags).schedules
        schedules = tuple(name for name in schedules if name in able)
    undivided = software.undivided_layers(model)
    return SoftwareFeatures(software.name, schedules, software.divides, software.shards, undivided)


def _search(task: Task, request: PlanRequest) -> Findings:
    """Search on all cores or on Dask; after Ctrl-C return the plans found so far."""
    from ppsim.workload.plans.search import is_sound, search
    from ppsim.workload.plans.task import Findings

    found, tasks = Findings(), request.tasks

    def run(function: Any, candidates: Any) -> Any:
        index_of = {candidate.key: index for index, candidate in enumerate(candidates)}
        keyed = {candidate.key: candidate for candidate in candidates}
        run_in_process = index_of if len(index_of) < FEW and not tasks.dask else ()
        for key, row in run_keyed(function, keyed, run_in_process):
            yield index_of[key], row

    try:
        with (
            progress(request.shows_progress) as report,
            open_tasks(tasks, repr(task), count_cores(), is_sound=is_sound) as run_keyed,
        ):
            search(task, run, found, report)
    except KeyboardInterrupt:
        if not found.rows:
            raise
        note("Interrupted: the best plans found so far")
    return found


def _raise_nothing_fits(task: Task, found: Findings) -> NoReturn:
    """Raise PpsimError: no plan fits, with the smallest plan and the options that would help."""
    from ppsim.workload.plans.search import gpus_that_fit
    from ppsim.workload.plans.task import MISS

    if not found.total:
        chunks = "/".join(map(str, task.axes.vp)) if task.axes.vp else "any number of"
        raise InputError(
            f"no way to train {task.model.name or 'the model'} on {count_text(task.gpus, 'GPU')}: "
            f"no pipeline of these sizes has {chunks} chunks a device",
            "leave out --vp, --schedules or --layouts, or another --pp",
        )
    least = found.least_memory
    if least is None:
        raise PpsimError(
            f"all {found.total:,} candidates have sizes that their schedules refuse",
            "another --gbs, or --schedules",
        )
    needs = (
        f"the smallest needs {format_size(least[0])} a GPU "
        f"({describe(least[1].parallel(task.axes.base))})"
    )
    more = gpus_that_fit(task)
    hint = "" if "full" in task.axes.recompute else "--recomputes full, "
    if least[0] <= task.cap * (1 + MISS):
        from ppsim.questions.plans.room import cap_text

        hint += f"--cap {cap_text(least[0], ceil)} (predicted peaks were up to {MISS:.1%} off), "
    hint += (
        f"--gpus {more} with the same batch, or GPUs with more memory"
        if more
        else "GPUs with more memory"
    )
    raise PpsimError(
        f"none of {found.total:,} candidates fits {format_size(task.cap)} on "
        f"{count_text(task.gpus, 'GPU')}: {needs}",
        hint,
    )


@dataclass(frozen=True)
class Plans(Answer[PlanRequest]):
    """The fastest plans.

    Attributes:
        task: the model, the cluster and the choices of plans.
        findings: the plans, and the number of candidates that each rule left out.
        corrections: corrections of the plans by measured runs.
        runs: the measured runs.
        inputs: the command, version and settings that repeat the answer.
    """

    task: Task
    findings: Findings
    corrections: Corrections
    runs: Nearby
    inputs: Mapping[str, Any]

    @property
    def plans(self) -> list[dict[str, Any]]:
        """The plans as JSON objects, best first, each with the reason why it is slower."""
        rows = [_without_marks(row) for row in self.findings.rows]
        rows = [
            row | operating_costs(self.task, row["step_s"]) | (gain.to_json() if gain else {})
            for row, gain in zip(rows, self.gains, strict=True)
        ]
        return [
            {**row, "lost_by": worst_term(row, rows[0]) if place else ""}
            for place, row in enumerate(rows)
        ]

    @cached_property
    def gains(self) -> list[Gain | None]:
        """The gain of each plan's schedule over 1f1b with the same sizes; None if it has none."""
        return [gain_of_plan(self.task, row) for row in self.findings.rows]

    @property
    def table(self) -> list[dict[str, Any]]:
        """The plans, best first, as rows of numbers: times in seconds, memory in bytes."""
        return [
            {
                **{k: v for k, v in row.items() if k not in ("terms", "memory_parts")},
                **{f"{k}_s": v for k, v in row["terms"].items()},
                **{f"{k}_bytes": v for k, v in row["memory_parts"].items()},
            }
            for row in self.plans
        ]

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.plan/1``."""
        from ppsim.workload.plans.task import OUTCOMES

        task, found = self.task, self.findings
        return {
            "schema": "ppsim.plan/1",
            "inputs": dict(self.inputs),
            "model": task.model.name,
            "cluster": task.machine.name,
            "gpu": task.machine.title,
            "gpus": task.gpus,
            "gbs": task.gbs,
            "seq": task.model.seq,
            "cap_bytes": task.cap,
            **(
                {"profile": {"file": m.name, "taken": m.taken, "left": m.left}}
                if (m := task.machine.measured)
                else {}
            ),
            "unseen": list(self.corrections.unseen_parts),
            "anchors": list(self.corrections.anchors),
            "correction": {"step": self.corrections.factor},
            "complete": found.complete,
            "candidates": found.total,
            "outcomes": {name: found.counts[name] for name in OUTCOMES},
            "plans": self.plans,
            "near_miss": _without_marks(found.near_miss) if found.near_miss else None,
            "optimizer": asdict(self._optimizer),
            "run": self._run_line,
        }

    def line(self) -> Iterator[Block]:
        """The best plan in one sentence, with --flags also its launch flags."""
        yield self.headline
        yield from self._launch if self.request.flags and not self._refusal else ()

    def blocks(self) -> Iterator[Block]:
        """The best plans, the candidates left out by each rule, and remarks on the best plan."""
        task = self.task
        sequences = "sequence" if task.gbs == 1 else "sequences"
        yield (
            f"{task.model.name or 'the model'} on {gpu_label(task)} ({task.machine.name}), "
            f"{task.gbs:,} {sequences} of {task.model.seq:,} tokens a step, "
            f"{usable_memory_text(task)} a GPU\n"
        )
        if measured := task.machine.measured:
            yield Line(f"times of {measured.taken}: from {measured.name}; {measured.left}\n")
        yield from (Line(line) for line in self.corrections.lines)
        yield from self._counts()
        yield from self._rows()
        if self.request.front:
            yield "* on the front: no faster plan needs as little memory"
        yield ""
        yield from self._remarks()
        if self.request.ranks:
            yield from self._ranks()
        yield from self._launch_blocks()

    def _remarks(self) -> Iterator[Block]:
        """Lines on the certainty, shape, placement, command and cost of the best plan."""
        rows, task = self.findings.rows, self.task
        best = rows[0]
        certainty_and_shape = (
            certainty_text(rows),
            uneven_stages(best, task.model.layers, "" if self._refusal else self._framework),
            uneven_sides(best, task.model),
        )
        yield from (Line(line, 4) for line in certainty_and_shape if line)
        yield from (Line(line, 4) for line in self._memory_remarks())
        yield from (Line(line, 4) for line in rank_lines(best))
        if line := self._run_line:
            yield Line(f"run it: {line}", 8)
        if task.axes.base.pipeline_first and best["pp"] > 1 and not self._shows_flags:
            yield Line(
                "in Megatron-LM with --use-tp-pp-dp-mapping: ranks of a pipeline before the next "
                "replica",
                4,
            )
        if line := operation_line(operating_costs(task, best["step_s"])):
            yield Line(line, 4)
        if self.request.runs.optimizer:
            yield Line(optimizer_line(self._optimizer), 4)

    def _memory_remarks(self) -> Iterator[str]:
        """Lines on a best plan that barely fits, and on a faster plan that barely does not."""
        from ppsim.questions.plans.room import memory_remarks
        from ppsim.workload.plans.task import usable_bytes

        task, best, missed = self.task, self.findings.rows[0], self.findings.near_miss
        cap = cap_of(best, task)
        most = cap if task.machine.kinds else usable_bytes(task.machine)
        name = ""
        if missed:
            is_new = missed["layout"] != best["layout"]
            name = plan_name(missed) + f", {missed['layout']} layout" * is_new
        yield from memory_remarks(best, cap, most, missed, name)

    def _launch_blocks(self) -> Iterator[Block]:
        """The launch flags of the best plan, or a line that says why there are none."""
        if not self._framework:
            yield f"no launch flags are known for {self.request.runs.version.software.name}"
        elif refused := self._refusal:
            yield Line(f"no launch flags: {refused}", 4)
        elif self._shows_flags:
            yield from self._launch
        else:
            yield f"for its launch flags, add --flags {self._framework}"

    def error_after_output(self) -> PpsimError | None:
        """The error that the framework of --flags cannot run the best plan; else None."""
        return self._refusal if self.request.flags else None

    def writers(self, output: OutputOptions) -> Writers:
        """The writers of each -o: a table or a page of plans, a flowchart of the best plan's ranks,
        or the front.
        """

        def table(target: str, suffix: str) -> None:
            write_table(self.table, self.whole_object, self.inputs, target, suffix)

        def explore(target: str, suffix: str) -> None:
            with open_atomically(target) as out:
                out.write(self._page())

        def draw_ranks(target: str, suffix: str) -> None:
            from ppsim.workload.plans.ranks import flowchart

            with open_atomically(target) as out:
                out.write(flowchart(self._best_built[0], self._best_built[1]).encode())

        if self.request.front:
            points = (
                Point(
                    _label(row),
                    row["step_s"],
                    row["memory_bytes"] / 2**30,
                    row["schedule"] or "no pipeline",
                )
                for row in self.findings.rows
            )
            return tradeoff_writers(
                points,
                "step (s)",
                self.inputs,
                output,
                table=table,
                memory="memory (GiB)",
                page=explore,
                verdict=self.verdict,
            )
        targets = find_targets(output, tables=True)
        able = {".html": explore, ".mmd": draw_ranks, **dict.fromkeys(TABLES, table)}
        return [(target, partial(able[suffix], target, suffix)) for target, suffix in targets]

    def bars(self) -> Bars:
        """The step time of each plan, best first, as bars."""
        from ppsim.show.drawing.card_bars import Bar, Bars

        def bar(row: Mapping[str, Any]) -> Bar:
            sizes = " x ".join(f"{size} {row[size]}" for size in SIZES if row[size] > 1)
            name = f"{sizes or 'one GPU'} {row['schedule'] or ''}".rstrip() + f", mbs {row['mbs']}"
            return Bar(
                name, row["step_s"], f"{format_number(row['step_s'])} s{', tied' * row['tied']}"
            )

        return Bars("step (s)", [bar(row) for row in self.findings.rows])

    def _page(self) -> bytes:
        """The bytes of the page that explores the plans."""
        best, request = self.findings.rows[0], self.request
        fixed = {
            "model",
            "cluster",
            "gpus",
            "gbs",
            "seq",
            "precision",
            "dispatch",
            "rank_order",
            "cap",
            "profile",
        }
        given = TypedOptions.from_request(request)
        base = command_line(
            TypedOptions(given.command, given.values, [o for o in given.typed if o.name in fixed])
        )
        lost = align_decimals(
            [worst_term(row, best) if place else "" for place, row in enumerate(self.findings.rows)]
        )
        remarks = [*map(str.strip, self.corrections.lines), *self._memory_remarks()]
        return plan_page_of(
            self.task, self.findings, self.inputs, lost, base, self.verdict, remarks
        )

    @property
    def verdict(self) -> str:
        """The best plan in one sentence: sizes, step time, MFU, bubble, and memory."""
        task, found, best = self.task, self.findings, self.findings.rows[0]
        peak = NARROW.get(task.axes.base.precision)
        of_peak = f" of the {peak} peak" if peak else ""
        return (
            f"best: {plan_name(best)}: "
            f"{format_number(best['step_s'])} s a step, {best['tokens_per_s']:,.0f} tokens/s, MFU "
            f"{format_share(best['mfu'])}{of_peak}, bubble {format_share(best['bubble'])}, "
            f"{format_size(best['memory_bytes'])} of {format_size(cap_of(best, task))}"
            + self._tie()
            + ("" if found.complete else " (so far)")
        )

    def _tie(self) -> str:
        """Return a clause on faster plans that tie with the best one; empty without."""
        ahead = self.corrections.ahead
        if not ahead:
            return ""
        share = format_share(ahead)
        faster = "plans as fast" if share == format_share(0.0) else f"plans up to {share} faster"
        return f"; tied with {faster}, and the simplest of them"

    def _counts(self) -> Iterator[Block]:
        """The number of candidates, and of each outcome."""
        from ppsim.workload.plans.task import OUTCOMES

        found = self.findings
        yield f"{found.total:>10,} candidates"
        for outcome in OUTCOMES:
            if found.counts[outcome]:
                yield f"{found.counts[outcome]:>10,} {outcome}"
        if not found.complete:
            yield f"{found.total - sum(found.counts.values()):>10,} not tried yet"
        yield ""

    def _rows(self) -> Iterator[Block]:
        """A line on the settings that all plans share, and a table of the rest and the results."""
        found = self.findings.rows
        front = self.request.front  # of time against memory
        choices, results = _choice_columns(found), self._result_columns()
        may_be_shared = choices | {name: results[name] for name in ("MFU", "bubble", "memory")}
        alike = {
            name: cells[0]
            for name, cells in may_be_shared.items()
            if len(found) > 1 and len({*cells}) == 1
        }
        if alike:
            words = (f"{name} {cell}" for name, cell in alike.items())
            yield Line(
                f"all of these: {', '.join(words).replace('schedule -', 'no pipeline')}\n", 4
            )
        columns = {
            "": [f"{place + 1}{'*' * (row['pareto'] and front)}" for place, row in enumerate(found)]
        }
        columns |= {name: cells for name, cells in (choices | results).items() if name not in alike}
        # Columns to leave out on a narrow terminal, first ones first: other columns or the
        # sentence on the best plan contain most of them. Layout, step, MFU and bubble stay.
        spare = ["M", "tokens/s\nper GPU", "loses by", "range\ns", f"gain over\n{BASELINE}"]
        spare += ["dp", "MFU", "bubble", "memory"] if front else ["memory", "dp"]
        spare += ["mbs", "recompute", "ep", "cp", "vp", "tp", "pp", "schedule"]
        spare = [name for name in spare if name in columns]
        left = ["schedule", "recompute", "layout", "loses by"]
        yield Table([*columns], [*zip(*columns.values(), strict=True)], 160, spare, left)

    def _result_columns(self) -> dict[str, list[str]]:
        """The results of the plans as cells of a table, by heading."""
        rows = self.findings.rows
        columns = {
            "step\ns": [format_number(row["step_s"]) for row in rows],
            "range\ns": [
                format_range(row["low_s"], row["high_s"]) + (" tied" if row["tied"] else "")
                for row in rows
            ],
        }
        if any(self.gains):
            columns[f"gain over\n{BASELINE}"] = [gain.text if gain else "-" for gain in self.gains]
        return columns | {
            "tokens/s\nper GPU": [f"{row['tokens_per_s'] / self.task.gpus:,.0f}" for row in rows],
            "MFU": [format_share(row["mfu"]) for row in rows],
            "bubble": [format_share(row["bubble"]) for row in rows],
            "memory": [format_size(row["memory_bytes"]) for row in rows],
            "loses by": ["", *(worst_term(row, rows[0]) for row in rows[1:])],
        }

    def _ranks(self) -> Iterator[Block]:
        """The nodes of the best plan's ranks and the links of its groups."""
        from ppsim.workload.plans.ranks import MEANINGS, group_links, rank_grid, span

        machine, parallel, layout = self._best_built
        rows = [
            [
                links.kind,
                str(links.size),
                str(links.count),
                span(links.ranks),
                links.link,
                MEANINGS[links.kind],
            ]
            for links in group_links(machine, parallel)
        ]
        words = ["the first", "links", "traffic"]
        then = "pipeline, data" if parallel.pipeline_first else "data, pipeline"
        yield f"\nranks are numbered tensor first, then context, {then}"
        yield Table(["group", "ranks", "groups", *words], rows, 140, ["traffic", "groups"], words)
        grid = rank_grid(parallel)
        owners = place(
            find(parallel.schedule_name).placement, parallel.pp, layout.n_stages
        ).devices[0]
        yield ""
        lines = []
        for device in range(parallel.pp):
            ranks = grid[:, device].ravel()
            nodes = sorted(set(machine.nodes_of(ranks).tolist()))
            held = [layout.layers[stage] for stage in np.flatnonzero(owners == device)]
            runs = ranks.reshape(parallel.dp if parallel.pipeline_first else 1, -1)
            named = [f"{run[0]}-{run[-1]}" for run in runs]
            named[2:-1] = ["..."] * (len(named) > 3)
            lines.append([str(device), " ".join(named), span(nodes), " + ".join(map(str, held))])
        words = ["ranks", "nodes", "layers"]
        yield Table(["pipeline device", *words], lines, left=words)

    @cached_property
    def _best_built(self) -> tuple[Machine, Any, Any]:
        """The cluster in the device order of the best plan, the plan's parallel sizes, and its
        layers per stage.
        """
        best = self.findings.rows[0]
        return self.task.machine_of(best["layout"]), *layout_and_layers(self.task, best)

    @cached_property
    def _optimizer(self) -> OptimizerStep:
        """The optimizer step of the best plan, and its exposed part, both in seconds."""
        from ppsim.workload.cost.costs import stage_costs
        from ppsim.workload.cost.exposed import find_optimizer_step

        machine, parallel, layout = self._best_built
        model = self.task.model
        return find_optimizer_step(
            model, parallel, stage_costs(model, machine, parallel, layout), layout
        )

    @cached_property
    def _run_line(self) -> str:
        """The command that draws the best plan's pipeline; empty if it has no pipeline."""
        from ppsim.questions.plans.run_of_plan import run_line
        from ppsim.workload.cost.costs import stage_costs

        machine, parallel, layout = self._best_built
        return run_line(parallel, stage_costs(self.task.model, machine, parallel, layout))

    @property
    def _framework(self) -> str:
        """The framework whose launch flags express plans; empty if the software has none."""
        return self.request.flags or self.request.runs.version.software.launched_by

    @property
    def _shows_flags(self) -> bool:
        """True if launch flags are printed: --flags or --software is given."""
        return self.request.flags is not None or self.request.runs.software is not None

    @cached_property
    def _refusal(self) -> InputError | None:
        """The error that the framework cannot run the best plan; else None."""
        if not self._framework:
            return None
        from ppsim.workload.plans.launcher import refusal

        return refusal(
            self._framework, self.task.model, *layout_and_layers(self.task, self.findings.rows[0])
        )

    @property
    def _launch(self) -> Iterator[Block]:
        """The launch flags of the best plan."""
        from ppsim.workload.plans.launcher import launch_text, launcher_of

        parallel, layout = layout_and_layers(self.task, self.findings.rows[0])
        yield f"\n{launch_text(self._framework, self.task.model, parallel, layout).rstrip()}"
        if note := launcher_of(self._framework).note(parallel):
            yield Line(f"\n{note}")


def _choice_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the sizes and settings of plans as cells of a table, by heading.

    Sizes that are 1 in all plans, and usual settings of ZeRO and offload, have no column.
    """
    sizes = [name for name in SIZES if any(row[name] > 1 for row in rows)]
    columns = {name: [str(row[name]) for row in rows] for name in (*sizes, "mbs")}
    columns["M"] = [str(row["microbatches"]) for row in rows]
    columns["schedule"] = [row["schedule"] or "-" for row in rows]
    if any(row["zero"] != 1 for row in rows):
        columns["zero"] = [str(row["zero"]) for row in rows]
    if any(row["offload"] for row in rows):
        columns["offload"] = [f"{row['offload']:.0%}" for row in rows]
    columns["recompute"] = [_recompute_text(row) for row in rows]
    columns["layout"] = [row["layout"] for row in rows]
    return columns


def operating_costs(task: Task, seconds: float) -> dict[str, float]:
    """Return the price, energy (kWh) and goodput of a step, as far as the cluster file has them."""
    from ppsim.workload.plans.operation import goodput, step_kwh, step_price

    operation = task.machine.cluster.operation
    goodput_and_interval = goodput(operation, task.gpus)
    found = {
        "price": step_price(operation, task.gpus, seconds),
        "kwh": step_kwh(operation, task.gpus, seconds),
        "goodput": goodput_and_interval and goodput_and_interval[0],
        "checkpoint_every_s": goodput_and_interval and goodput_and_interval[1],
    }
    return {name: value for name, value in found.items() if value is not None}


def optimizer_line(step: OptimizerStep) -> str:
    """Return a line on an optimizer step: its work, time, state, and exposed time."""
    work = f"{format_number(step.flops / 1e12)} TFLOP and " if step.flops else ""
    text = (
        f"{step.name}: {work}{format_number(1e3 * step.seconds)} ms on the busiest GPU, "
        f"{format_size(step.state_bytes)} of state; exposed {format_number(1e3 * step.exposed)} ms"
    )
    if step.exposed_alone is None or step.exposed_alone >= step.exposed * (1 - WORTH):
        return text
    return (
        f"{text}, or {format_number(1e3 * step.exposed_alone)} ms where no device waits for "
        f"another (--post-validation)"
    )


def operation_line(found: Mapping[str, float]) -> str:
    """Return a line on the price, energy and goodput of a step; empty if none is known."""
    words = []
    if "price" in found:
        words.append(f"a step costs {found['price']:.4g}")
    if "kwh" in found:
        words.append(f"{found['kwh']:.4g} kWh" if words else f"a step takes {found['kwh']:.4g} kWh")
    if "goodput" in found:
        minutes = found["checkpoint_every_s"] / 60
        words.append(
            f"{found['goodput']:.1%} of the time trains, with a checkpoint every {minutes:.3g} min"
        )
    return "; ".join(words)


def worst_term(row: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """Return the term of a step that makes a plan slower than the best one, with seconds.

    The best plan may be slower than this one: the simplest of plans that tie.
    """
    if row["step_s"] < best["step_s"]:
        return f"tied: {format_number(best['step_s'] - row['step_s'])} s faster, not simpler"
    more = {name: row["terms"][name] - best["terms"][name] for name in TERMS}
    name = max(more, key=lambda term: more[term])
    return f"{name} +{format_part(more[name], best['step_s'])} s" if more[name] > 0 else "the same"


def describe(parallel: Any) -> str:
    """Return the sizes and settings of a plan as text."""
    sizes = {name: getattr(parallel, name) for name in SIZES}
    words = [f"{name} {size}" for name, size in sizes.items() if size > 1]
    words += [f"mbs {parallel.mbs}", f"recompute {parallel.recompute}"]
    return ", ".join([*words, *_unusual_settings(parallel.zero, parallel.offload)])


def plan_name(row: Mapping[str, Any]) -> str:
    """Return the sizes, schedule and settings of a plan as text."""
    parts = [f"{name} {row[name]}" for name in SIZES if row[name] > 1]
    if row["schedule"]:
        parts.append(row["schedule"])
    words = [f"microbatches of {row['mbs']}", *_unusual_settings(row["zero"], row["offload"])]
    if row["recompute"] != "none":
        layers = row["recompute_layers"]
        each = f" of {count_text(layers, 'layer')} a stage" if layers else ""
        words.append(f"{row['recompute']} recompute{each}")
    return ", ".join([" x ".join(parts) or "one GPU", *words])


def _without_marks(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's row without the keys that the search alone uses."""
    return {name: value for name, value in row.items() if name not in ("key", "outcome")}


def _recompute_text(row: Mapping[str, Any]) -> str:
    """Return the recompute of a plan as text: none, selective, full, or full with the number of
    recomputed layers of a stage.
    """
    return (
        row["recompute"] if row["recompute_layers"] is None else f"full, {row['recompute_layers']}"
    )


def _label(row: Mapping[str, Any]) -> str:
    """Return a short name of a plan for a point of a picture."""
    words = [f"{name}{row[name]}" for name in SIZES if name != "dp" and row[name] > 1]
    words.append(row["schedule"])
    if row["mbs"] > 1:
        words.append(f"mbs{row['mbs']}")
    words += _unusual_settings(row["zero"], row["offload"])
    if row["recompute"] != "none":
        layers = row["recompute_layers"]
        words.append(f"{row['recompute']} {layers}" if layers else row["recompute"])
    return " ".join(word for word in words if word) or "one GPU"


def _unusual_settings(zero: int, offload: float) -> list[str]:
    """Return texts on the ZeRO stage if it is not 1, and on the offloaded share if above 0."""
    words = [] if zero == 1 else [f"ZeRO-{zero}"]
    if offload > 0:
        words.append(f"{offload:.0%} of activations offloaded")
    return words
