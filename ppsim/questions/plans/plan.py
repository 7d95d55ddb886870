"""Plan how to train a model on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
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
    correct_plans,
    gain_of_plan,
    sureness,
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
FEW = 64  # candidates of a round that new processes would not run sooner
# precisions whose peak is not that of 16 bits
NARROW = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
# Parts of a step in which one plan loses against another.
TERMS = ("compute", "recompute", "communication", "bubble", "gradients", "optimizer")
SIZES = ("tp", "cp", "ep", "pp", "dp", "vp")
NAMES = ("schedules", "recomputes", "layouts")

# What --against has in its table, or does not plan.
PLANNED = (
    *("gpus", "gbs", "tp", "cp", "ep", "pp", "vp", "mbs", "schedules", "recomputes", "layouts"),
    *("zero", "offload", "precision", "seq", "cap", "top", "front", "flags", "ranks"),
)


@dataclass(frozen=True, kw_only=True)
class PlanRequest(Request):
    """Find the fastest ways to train a model on so many GPUs that fit their memory, and say why the
    others lose.

    Sizes of tensor, context, expert, pipeline and data parallelism, chunks, microbatch size,
    schedule, recompute and layout are free unless an option fixes them. -o writes the plans (csv,
    json, parquet), a page to explore them and where their ranks lie (html; --front adds those with
    less memory), or the layout of ranks as a flowchart (mmd), or draws: with --front time against
    memory, with --against published runs beside predicted ones.

    \b
      ppsim plan --model llama3-70b --cluster dgx-h100 --gpus 256 --gbs 1024
      ppsim plan --model gpt3-175b --cluster dgx-a100 --gpus 1024 --gbs 1536 --flags megatron
      ppsim plan --model qwen3-32b --cluster dgx-h100 --gpus 64 --gbs 256 -o plan.html
      ppsim plan --against measured_runs.json -o trust.html

    Memory counts weights, gradients, Adam's states, activations from their forward to their
    backward, and buffers of messages. 6 % of a GPU stay free for its driver, communicators and gaps
    between tensors; --cap sets another limit.

    A GPU that the library lacks is described in a file, which a file of the cluster names. With
    both beside each other, ppsim plan --cluster my-cluster.toml takes it:

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
            "{options} plans the runs of a table",
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
            "{options} is for long work, and predicting a table's runs is short",
            "add --improve, or leave it out",
        ),
        Need(
            ("ranks",),
            lambda g: not (g["as_json"] or g["quiet"] or "-" in g["output"]),
            "{options} prints more, where only the result is to be printed",
        ),
        Need(
            ("flags",),
            lambda g: not (g["as_json"] or "-" in g["output"]),
            "{options} prints launch flags, where only the result is to be printed",
        ),
    )
    model: str | None = common(
        "--model",
        metavar="NAME|FILE",
        help="The model: of the library (ppsim list --models), TOML, or config.json.",
    )
    cluster: str | None = common(
        "--cluster",
        metavar="NAME|FILE",
        help="The cluster: of the library (ppsim list --clusters), in words "
        "(h100x8,nvlink4,ib-400; "
        "without a card one node), or a file.",
    )
    gpus: int | None = common(
        "--gpus",
        type=click.IntRange(1, 1 << 20),
        help="GPUs in all (all of a cluster of several kinds of nodes).",
    )
    gbs: int | None = common(
        "--gbs", type=click.IntRange(1, 1 << 24), help="Sequences in a step (global batch size)."
    )
    space: SpaceOptions = group(SpaceOptions, "What plans may choose")
    runs: SoftwareOptions = group(SoftwareOptions, "Software")
    any_schedule: bool = flag(
        "--any", help="Also schedules, groups of ranks and ZeRO that the software lacks."
    )
    top: int = common(
        "--top",
        type=click.IntRange(1, 1000),
        default=5,
        help="How many plans to print, no near copies.",
    )
    front: bool = flag(
        "--front",
        help="Also the plans that need less memory: the front of time against memory.",
        common=True,
    )
    flags: str | None = common(
        "--flags",
        type=click.Choice(launcher_names()),
        help="Plan for this framework; print the best plan as launch flags, or as TOML.",
    )
    ranks: bool = flag(
        "--ranks", help="Print where the best plan's ranks lie, and the links that they use."
    )
    anchor: tuple[str, ...] = option(
        "--anchor",
        type=click.Path(),
        metavar="TABLE",
        multiple=True,
        help="Correct by runs that you measured: rows as --against takes them, or a profile of "
        "ppsim calibrate.",
    )
    against: str | None = option(
        "--against",
        type=click.Path(),
        metavar="TABLE",
        help="Predict runs of a table instead (json, csv, parquet); they may be of --model and "
        "--cluster too.",
    )
    improve: bool = flag(
        "--improve", help="With --against: plan each run again, and say what that would change."
    )
    tasks: TaskOptions = group(TaskOptions, "Work")
    output: OutputOptions = group(OutputOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")

    @property
    def shows_progress(self) -> bool:
        """Whether a person waits for the table."""
        return not self.face.as_json and not self.face.quiet

    def check(self) -> None:
        """Refuse a plan of nothing, and formats that no plan is written in."""
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
    """Find the fastest plans for training a model on a number of GPUs, within their memory; steps
    are in seconds, memory in GiB.

    Args:
        model: a name of the library, or a file.
        cluster: a name of the library, or a file.
        options: as ``ppsim plan`` takes them, by name: ``gpus`` and ``gbs`` (sequences in a step)
            at least; lists of names may be Python lists.

    Raises:
        InputError: an option that is refused, or sizes that nothing fits.
        PpsimError: no plan fits the memory.
    """
    several = {
        name: ",".join(value)
        for name, value in options.items()
        if name in NAMES and not isinstance(value, str)
    }
    return _plan(ask(PlanRequest, {"model": model, "cluster": cluster} | options | several))


def answer(request: PlanRequest) -> Plans | PublishedRuns:
    """Plan, or predict published runs."""
    if request.against is None:
        return _plan(request)
    if profiles := [name for name in request.anchor if _is_profile(name)]:
        raise InputError(
            f"'{profiles[0]}' has times of ops, and --against corrects steps", "--anchor ROWS.json"
        )
    own = _user_names(request)
    return compare_runs(request, request.against, _runs(request.anchor, own), own)


def _user_names(request: PlanRequest) -> UserNames:
    """Return the model and the cluster that rows of a table may name, where they are given."""
    from ppsim.workload.hardware.hardware import read_machine
    from ppsim.workload.model.model import read_model
    from ppsim.workload.plans.rows import user_names_of

    model, cluster = request.model, request.cluster
    return user_names_of(
        (model, read_model(model)) if model else None,
        (cluster, read_machine(cluster)) if cluster else None,
    )


def _plan(request: PlanRequest) -> Plans:
    """Search for the plans of a request."""
    from ppsim.workload.plans.rows import user_names_of

    request = _add_software(request)
    task = make_task(request)
    own = user_names_of((request.model or "", task.model), (request.cluster or "", task.machine))
    runs = _runs(request.anchor, own)
    task = replace(task, near=NEAR, launch=_launcher(request, task))
    found = _search(task, request)
    if not found.rows and task.launch:  # the request has no launch flags, but may fit
        task = replace(task, launch="")
        found = _search(task, request)
    if not found.rows:
        _refuse(task, found)
    corrections = correct_plans(task, request.runs.version, found, runs)
    return Plans(
        request, task, found, corrections, runs, inputs_of(TypedOptions.from_request(request))
    )


def _add_software(request: PlanRequest) -> PlanRequest:
    """Name the software of the launch flags that are asked for, where the request names none.

    Raises:
        InputError: the software is not launched by these flags.
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


def _launcher(request: PlanRequest, task: Task) -> str:
    """Return the framework that must have launch flags for each plan; empty if plans need none.

    They need none where the framework cannot express the model at all, with --any, and where
    activations are to be offloaded, which no launch flags can say.
    """
    from ppsim.workload.layout.layout import build_layout
    from ppsim.workload.plans.launcher import refusal

    model, base = task.model, task.axes.base
    framework = request.flags or request.runs.version.software.launched_by
    free = (request.any_schedule or any(task.axes.offload)) and not request.flags
    if (
        not framework
        or free
        or refusal(framework, model, base, build_layout([model.layers], 1, model.mtp))
    ):
        return ""
    return framework


def _is_profile(anchor: str) -> bool:
    return anchor.lower().endswith(".toml")


def _runs(anchors: Sequence[str], user_names: UserNames) -> Nearby:
    """Return the measured runs that correct predictions: the library's, and the user's anchors.

    Where a profile takes the place of the curve, by which published runs were predicted, the user's
    anchors alone.

    Raises:
        InputError: an anchor that cannot be read or predicted.
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
            note(f"{name}: keys of rows that are not read: {', '.join(unknown)}")
        given += anchors_of(rows, user_names, name)
    return Nearby(() if measured else published().runs, tuple(given))


def make_task(request: PlanRequest) -> Task:
    """Make the task of a search from options (InputError: a name that is unknown, or sizes that
    nothing fits).
    """
    from ppsim.workload.hardware.hardware import read_machine
    from ppsim.workload.model.model import read_trained
    from ppsim.workload.plans.space import check_axes
    from ppsim.workload.plans.task import Task, usable_bytes

    ranks, gbs = request.runs.ranks, request.gbs or 0
    sizes = request.runs.sizes_of_ranks(vars(request.space), lambda size: [size])
    space = replace(request.space, **sizes)
    model, machine = (
        read_trained(request.model or "", space.seq),
        read_machine(request.cluster or ""),
    )
    gpus = request.gpus or (ranks.gpus if ranks else machine.gpus)
    if ranks and gpus != ranks.gpus:
        raise InputError(
            f"'{ranks.source}' has {ranks.gpus:,} ranks, and --gpus is {gpus:,}", "leave out --gpus"
        )
    if not gpus:
        raise InputError(
            "a plan needs --gpus",
            "--gpus 256, or a cluster file with [[nodes]] that has their number",
        )
    if machine.kinds and gpus != machine.gpus:
        raise InputError(
            f"a cluster of {machine.title} is planned whole, not {gpus:,} GPUs of it",
            f"--gpus {machine.gpus}",
        )
    machine.check_gpus(gpus)
    cap = usable_bytes(machine)
    if space.cap:
        size, in_bytes = parse_size(space.cap)
        if not in_bytes or not size:
            raise InputError(f"--cap: not a memory size: '{space.cap}'", "e.g. 75GiB")
        cap = float(size)
    base = parallel_with(request.runs, space.precision, model, machine.gpu)
    axes = make_axes(model, machine, space, base, _software_features(request, model))
    profiles = [name for name in request.anchor if _is_profile(name)]
    if len(profiles) + bool(space.profile) > 1:
        raise InputError(
            "several profiles are given, and one is taken", "one --anchor FILE.toml, or --profile"
        )
    machine = use_profile_of(
        replace(space, profile=profiles[0]) if profiles else space, machine, model, base
    )
    machine.peak(space.precision)
    check_axes(model, machine.per_node, gpus, gbs, axes)
    return Task(model, machine, gpus, gbs, axes, cap, request.top, request.front)


def _software_features(request: PlanRequest, model: Model) -> SoftwareFeatures:
    """Return the features of the plan's software for the model."""
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
    """Search on all cores or on Dask; Ctrl-C ends the search and keeps its findings."""
    from ppsim.workload.plans.search import is_sound, search
    from ppsim.workload.plans.task import Findings

    found, tasks = Findings(), request.tasks

    def run(function: Any, candidates: Any) -> Any:
        place = {candidate.key: index for index, candidate in enumerate(candidates)}
        here = place if len(place) < FEW and not tasks.dask else ()
        for key, row in run_keyed(
            function, {candidate.key: candidate for candidate in candidates}, here
        ):
            yield place[key], row

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


def _refuse(task: Task, found: Findings) -> NoReturn:
    """Raise PpsimError that nothing fits, with the nearest that would."""
    from ppsim.workload.plans.search import gpus_that_fit

    assert found.total
    least = found.least_memory
    if least is None:
        raise PpsimError(
            f"their schedules refuse all {found.total:,} candidates",
            "another --gbs, or --schedules",
        )
    needs = (
        f"the smallest needs {format_size(least[0])} a GPU "
        f"({describe(least[1].parallel(task.axes.base))})"
    )
    more = gpus_that_fit(task)
    hint = "" if "full" in task.axes.recompute else "--recomputes full, "
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
        findings: the plans, and how many candidates each rule left out.
        corrections: corrections of the plans by measured runs.
        runs: the measured runs.
        inputs: how to make the answer again.
    """

    task: Task
    findings: Findings
    corrections: Corrections
    runs: Nearby
    inputs: Mapping[str, Any]

    @property
    def plans(self) -> list[dict[str, Any]]:
        """The plans, best first, with the reason why each but the best lost."""
        rows = [
            {k: v for k, v in row.items() if k not in ("key", "outcome")}
            for row in self.findings.rows
        ]
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
        """The gain of each plan's schedule over 1f1b in the same layout; None without one."""
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
        """The object of schema ``ppsim.plan/1``."""
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
            "optimizer": asdict(self._optimizer),
            "run": self._run_line,
        }

    def line(self) -> Iterator[Block]:
        """The best plan, and its launch flags where they are asked for."""
        yield self.headline
        yield from self._launch if self.request.flags and not self._refusal else ()

    def blocks(self) -> Iterator[Block]:
        """The plans, the candidates left out by each rule, and the reasons why the others lose."""
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
        if line := sureness(self.findings.rows):
            yield Line(line, 4)
        if line := uneven_stages(self.findings.rows[0], self.task.model.layers):
            yield Line(line, 4)
        if line := uneven_sides(self.findings.rows[0], self.task.model):
            yield Line(line, 4)
        yield from (Line(line, 4) for line in rank_lines(self.findings.rows[0]))
        if line := self._run_line:
            yield Line(f"run it: {line}", 8)
        if (
            self.task.axes.base.pipeline_first
            and self.findings.rows[0]["pp"] > 1
            and not self._shows_flags
        ):
            yield Line(
                "in Megatron-LM with --use-tp-pp-dp-mapping: ranks of a pipeline before the next "
                "replica",
                4,
            )
        if beside := operation_line(operating_costs(self.task, self.findings.rows[0]["step_s"])):
            yield Line(beside, 4)
        if self.request.runs.optimizer:
            yield Line(optimizer_line(self._optimizer), 4)
        if self.request.ranks:
            yield from self._ranks()
        if not self._framework:
            yield f"no launch flags are known of {self.request.runs.version.software.name}"
        elif refused := self._refusal:
            yield Line(f"no launch flags: {refused}", 4)
        elif self._shows_flags:
            yield from self._launch
        else:
            yield f"its launch flags: --flags {self._framework}"

    def error_after_output(self) -> PpsimError | None:
        """Why the framework whose flags are asked for does not run the best plan."""
        return self._refusal if self.request.flags else None

    def writers(self, output: OutputOptions) -> Writers:
        """Each file asked for: plans as a table or a page, the ranks of the best as a flowchart, or
        the front.
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
        """The step of each plan, the fastest first."""
        from ppsim.show.drawing.card_bars import Bar, Bars

        def bar(row: Mapping[str, Any]) -> Bar:
            sizes = " x ".join(f"{size} {row[size]}" for size in SIZES if row[size] > 1)
            name = f"{sizes or 'one GPU'} {row['schedule'] or ''}".rstrip() + f", mbs {row['mbs']}"
            return Bar(
                name, row["step_s"], f"{format_number(row['step_s'])} s{', tied' * row['tied']}"
            )

        return Bars("step (s)", [bar(row) for row in self.findings.rows])

    def _page(self) -> bytes:
        """The page to explore the plans."""
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
        return plan_page_of(self.task, self.findings, self.inputs, lost, base, self.verdict)

    @property
    def verdict(self) -> str:
        """The best plan: its sizes, its step, how much of the GPUs it uses, and its memory against
        the GPU's.
        """
        task, found, best = self.task, self.findings, self.findings.rows[0]
        parts = [f"{k} {best[k]}" for k in SIZES if best[k] > 1]
        if best["schedule"]:
            parts.append(best["schedule"])
        words = [
            f"microbatches of {best['mbs']}",
            *_unusual_settings(best["zero"], best["offload"]),
        ]
        if best["recompute"] != "none":
            layers = best["recompute_layers"]
            each = f" of {count_text(layers, 'layer')} a stage" if layers else ""
            words.append(f"{best['recompute']} recompute{each}")
        peak = NARROW.get(task.axes.base.precision)
        of_peak = f" of the {peak} peak" if peak else ""
        return (
            f"best: {' x '.join(parts) or 'one GPU'}, {', '.join(words)}: "
            f"{format_number(best['step_s'])} s a step, {best['tokens_per_s']:,.0f} tokens/s, MFU "
            f"{format_share(best['mfu'])}{of_peak}, bubble {format_share(best['bubble'])}, "
            f"{format_size(best['memory_bytes'])} of {format_size(cap_of(best, task))}"
            + self._tie()
            + ("" if found.complete else " (so far)")
        )

    def _tie(self) -> str:
        """Say that faster plans tie with the best, and why it is the best of them."""
        ahead = self.corrections.ahead
        if not ahead:
            return ""
        share = format_share(ahead)
        faster = "plans as fast" if share == format_share(0.0) else f"plans up to {share} faster"
        return f"; tied with {faster}, and the simplest of them"

    def _counts(self) -> Iterator[Block]:
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
        """A line with the settings that all listed plans share, and a table of the others and of
        results.
        """
        found = self.findings.rows
        sizes = [k for k in SIZES if any(row[k] > 1 for row in found)]
        unusual = [
            k for k, usual in (("zero", 1), ("offload", 0)) if any(row[k] != usual for row in found)
        ]
        choices: dict[str, list[str]] = {k: [str(row[k]) for row in found] for k in (*sizes, "mbs")}
        choices["M"] = [str(row["microbatches"]) for row in found]
        choices["schedule"] = [row["schedule"] or "-" for row in found]
        choices |= {
            k: [f"{row[k]:.0%}" if k == "offload" else str(row[k]) for row in found]
            for k in unusual
        }
        choices["recompute"] = [_recompute_text(row) for row in found]
        choices["layout"] = [row["layout"] for row in found]
        front = self.request.front  # of time against memory
        results = {
            "step\ns": [format_number(row["step_s"]) for row in found],
            "range\ns": [
                f"{format_range(row['low_s'], row['high_s'])}{' tied' * row['tied']}"
                for row in found
            ],
            f"gain over\n{BASELINE}": [gain.text if gain else "-" for gain in self.gains],
            "tokens/s\nper GPU": [f"{row['tokens_per_s'] / self.task.gpus:,.0f}" for row in found],
            "MFU": [format_share(row["mfu"]) for row in found],
            "bubble": [format_share(row["bubble"]) for row in found],
            "memory": [format_size(row["memory_bytes"]) for row in found],
            "loses by": [
                worst_term(row, found[0]) if place else "" for place, row in enumerate(found)
            ],
        }
        if not any(self.gains):
            del results[f"gain over\n{BASELINE}"]
        same = choices | {name: results[name] for name in ("MFU", "bubble", "memory")}
        alike = {
            name: cells[0] for name, cells in same.items() if len(found) > 1 and len({*cells}) == 1
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
        # Others, or the line of the best, say most of these.
        spare = ["M", "tokens/s\nper GPU", "loses by", "range\ns", f"gain over\n{BASELINE}"]
        spare += ["dp", "MFU", "bubble", "memory"] if front else ["memory", "dp"]
        # layout, step, MFU and bubble stay
        spare += ["mbs", "recompute", "ep", "cp", "vp", "tp", "pp", "schedule"]
        spare = [name for name in spare if name in columns]
        left = ["schedule", "recompute", "layout", "loses by"]
        yield Table([*columns], [*zip(*columns.values(), strict=True)], 160, spare, left)

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
        """The cluster as the best plan's pipeline lies on it, its parallel layout, and its layers
        per stage.
        """
        best = self.findings.rows[0]
        return self.task.machine_of(best["layout"]), *layout_and_layers(self.task, best)

    @cached_property
    def _optimizer(self) -> OptimizerStep:
        """The optimizer step of the best plan, in seconds, and the part that no compute hides."""
        from ppsim.workload.cost.costs import stage_costs
        from ppsim.workload.cost.exposed import find_optimizer_step

        machine, parallel, layout = self._best_built
        model = self.task.model
        return find_optimizer_step(
            model, parallel, stage_costs(model, machine, parallel, layout), layout
        )

    @cached_property
    def _run_line(self) -> str:
        """The command that draws the best plan's pipeline; empty without one."""
        from ppsim.questions.plans.run_of_plan import run_line
        from ppsim.workload.cost.costs import stage_costs

        machine, parallel, layout = self._best_built
        return run_line(parallel, stage_costs(self.task.model, machine, parallel, layout))

    @property
    def _framework(self) -> str:
        """The name of the launcher of the software; empty where there is none."""
        return self.request.flags or self.request.runs.version.software.launched_by

    @property
    def _shows_flags(self) -> bool:
        """Whether launch flags are printed: the flags asked for, or the flags of the software that
        is named.
        """
        return self.request.flags is not None or self.request.runs.software is not None

    @cached_property
    def _refusal(self) -> InputError | None:
        """Why the framework does not run the best plan."""
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


def operating_costs(task: Task, seconds: float) -> dict[str, float]:
    """Return the cost of a step besides its time, if the cluster file states prices."""
    from ppsim.workload.plans.operation import goodput, step_kwh, step_price

    operation, whole = (
        task.machine.cluster.operation,
        goodput(task.machine.cluster.operation, task.gpus),
    )
    found = {
        "price": step_price(operation, task.gpus, seconds),
        "kwh": step_kwh(operation, task.gpus, seconds),
        "goodput": whole and whole[0],
        "checkpoint_every_s": whole and whole[1],
    }
    return {name: value for name, value in found.items() if value is not None}


def optimizer_line(step: OptimizerStep) -> str:
    """Return a line on an optimizer step: its time, its place, and its exposed part."""
    work = f"{format_number(step.flops / 1e12)} TFLOP and " if step.flops else ""
    took, seen = (f"{format_number(1e3 * seconds)} ms" for seconds in (step.seconds, step.exposed))
    text = (
        f"{step.name}: {work}{took} on the busiest GPU, {format_size(step.state_bytes)} of "
        f"state; exposed {seen}"
    )
    if step.exposed_alone is None or step.exposed_alone >= step.exposed * (1 - WORTH):
        return text
    return (
        f"{text}, or {format_number(1e3 * step.exposed_alone)} ms where no device waits for "
        f"another (--post-validation)"
    )


def operation_line(found: Mapping[str, float]) -> str:
    """Return a line on the cost of a step besides its time."""
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
    """Name the term in which a plan loses most against the best, which may be a simpler one that it
    ties with.
    """
    if row["step_s"] < best["step_s"]:
        return f"tied: {format_number(best['step_s'] - row['step_s'])} s faster, not simpler"
    more = {name: row["terms"][name] - best["terms"][name] for name in TERMS}
    name = max(more, key=lambda term: more[term])
    return f"{name} +{format_part(more[name], best['step_s'])} s" if more[name] > 0 else "the same"


def describe(parallel: Any) -> str:
    """The sizes of a plan in words."""
    p = parallel
    words = [
        f"{name} {getattr(p, name)}"
        for name in ("tp", "cp", "ep", "pp", "dp")
        if getattr(p, name) > 1
    ]
    words += [f"vp {p.vp}"] * (p.vp > 1) + [f"mbs {p.mbs}", f"recompute {p.recompute}"]
    return ", ".join([*words, *_unusual_settings(p.zero, p.offload)])


def _recompute_text(row: Mapping[str, Any]) -> str:
    """Return a plan's recompute: none, selective, full, or full with the number of a stage's
    layers.
    """
    return (
        row["recompute"] if row["recompute_layers"] is None else f"full, {row['recompute_layers']}"
    )


def _label(row: Mapping[str, Any]) -> str:
    words = [f"{k}{row[k]}" for k in SIZES if k != "dp" and row[k] > 1] + [row["schedule"]]
    words += [f"mbs{row['mbs']}"] * (row["mbs"] > 1) + _unusual_settings(
        row["zero"], row["offload"]
    )
    if row["recompute"] != "none":
        words.append(
            row["recompute"] + (f" {row['recompute_layers']}" if row["recompute_layers"] else "")
        )
    return " ".join(word for word in words if word) or "one GPU"


def _unusual_settings(zero: int, offload: float) -> list[str]:
    """Name ZeRO's stage where it is not 1, and the share of activations that waits on the host."""
    return [f"ZeRO-{zero}"] * (zero != 1) + [f"{offload:.0%} of activations offloaded"] * (
        offload > 0
    )
