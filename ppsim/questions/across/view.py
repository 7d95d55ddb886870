"""Documents of the live page, from its fields: limited in size, and without local files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ppsim.ask.given import TypedOptions
from ppsim.ask.groups import SHAPE, NetworkOptions, SeveralSchedules, ShapeOptions
from ppsim.ask.options import Option, Request, flatten, group, make
from ppsim.ask.request import ask, find_options
from ppsim.ask.words import run_verdict, title_of
from ppsim.ask.write import inputs_of
from ppsim.base.deadline import check_time
from ppsim.base.text import shorten
from ppsim.core.costs import Costs, costs_for
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import add_memory, build, measure_with_bound
from ppsim.prices.editable import make_editable
from ppsim.prices.options import GIVEN_COSTS, TIMING, CostOptions
from ppsim.prices.several import options_taken
from ppsim.questions.across.view_fields import check_field
from ppsim.questions.across.view_model import ModelOptions, PlanPageRequest, price_of
from ppsim.questions.runs.stated import StatedRun, read_stated
from ppsim.questions.runs.timed import SIMULATED, TimedRun, explain_costs, show_stated
from ppsim.schedules import family_of, generate, reads_ops, split_chunks
from ppsim.show.files.document import Document, PageExplanation
from ppsim.show.server.app import DROPPED
from ppsim.version import VERSION

if TYPE_CHECKING:
    from ppsim.engine.simple.metrics import Metrics

R = TypeVar("R", bound=Request)
MOST_SCHEDULES = 8
MOST_CELLS = 65_536  # stages x microbatches of all schedules together: about 200,000 ops
MOST_STAGES = 512  # causes of waiting are followed from stage to stage, for each stage
MOST_SEARCHED = 4_096  # stages x microbatches of a schedule that is ordered again for every cost


@dataclass(frozen=True, kw_only=True)
class ViewRequest(Request):
    """Show schedules on the same devices, with their memory and the causes of idle time."""

    question: ClassVar[str] = "view"
    schedules: SeveralSchedules = group(SeveralSchedules)
    shape: ShapeOptions = group(ShapeOptions)
    costs: CostOptions = group(CostOptions)
    network: NetworkOptions = group(NetworkOptions)
    model: ModelOptions = group(ModelOptions)


def view(fields: Mapping[str, Any], folder: Path) -> Document:
    """Return the document of the schedules that fields of a page ask for.

    Fields are e.g. ``{"names": ["1f1b", "zb-1p"], "devices": 4, "mb": 8}``. A dropped file that
    states times is shown with them, and other schedules are simulated with their medians. If fields
    state costs or messages, all schedules are simulated; the file then gives only its order.

    Args:
        fields: the fields of the JSON, by the names of options; ``names`` are schedules, or
            ``dropped:NAME`` for a dropped file.
        folder: the folder of dropped files.

    Raises:
        InputError: an option or a shape is refused, the work is too much for a live page, or a
            field names a file of this machine.
    """
    return _answer(_request_of(ViewRequest, fields), folder)


def plan_request(fields: Mapping[str, Any]) -> PlanPageRequest:
    """Return a page's request for ``ppsim plan`` (InputError: a field that a page may not set)."""
    return _request_of(PlanPageRequest, fields)


def explain_first(fields: Mapping[str, Any], folder: Path) -> PageExplanation:
    """Return the explanation of the first schedule that fields ask for.

    Raises:
        InputError: as in :func:`view`; or no schedule supports the shape; or the times are those of
            a dropped file.
    """
    from ppsim.questions.across.explain import ExplainRequest, answer

    request = _request_of(ViewRequest, fields)
    priced, _ = _costs_and_network(request)
    sources = [_schedule_path(spec, folder) for spec in request.schedules.specs]
    _refuse_work(sources, request.shape)
    stated, failed = _read_stated(sources, request.shape)
    has_timing = TypedOptions.from_request(request).spellings(TIMING)
    refused: PpsimError = InputError("no schedule supports this shape")
    for source in sources:
        if source in failed:
            continue
        if stated and source not in stated and not has_timing:
            raise InputError(
                "the times are those of a dropped file, which comes after this schedule"
            )
        values, typed = _explain_values(request, source)
        if request.model.model:
            values |= {"cluster": None, "costs": priced.costs}
        try:
            explained = answer(make(ExplainRequest, values, typed))
        except PpsimError as error:
            refused = error
        else:
            return explained.story
    raise refused


def _explain_values(request: ViewRequest, source: str) -> tuple[dict[str, Any], set[str]]:
    """Return values of ``ppsim explain`` for a schedule of a page, and the names of typed ones."""
    values = flatten(request) | flatten(options_taken(source, request.shape))
    is_file = reads_ops(source)
    given = {
        name: values[name]
        for name in request.given - {"names", "schedule", *asdict(request.model)}
        if values[name] is not None and not (is_file and name in SHAPE)
    }
    # with a model, the cluster becomes part of the costs
    typed = {name for name in given if not (request.model.model and name == "cluster")}
    return given | {"names": (source,)}, {"names", *typed}


def load_kernels() -> None:
    """Load the machine code that requests need, so that no later request waits for it."""
    from ppsim.engine.simple import longest_path
    from ppsim.search.rules import fill

    for name in ("1f1b", "bpipe"):
        schedule = generate(name, devices=2, microbatches=2)
        longest_path.compile_now(schedule, costs_for(schedule))
    fill.compile_now()


def _request_of(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Return a request made of a page's fields; none of them may name a file of this machine."""
    values = {
        declared.keyword: _texts(declared, value) for declared, value in find_options(kind, fields)
    }
    for declared, value in find_options(kind, values):
        check_field(declared, value)
    return ask(kind, values)


def _costs_and_network(request: ViewRequest) -> tuple[CostOptions, NetworkOptions]:
    """Return the costs and the messages: of the options, or of a model's stages on the cluster.

    Raises:
        InputError: there are costs and a model, a model without a cluster, or sizes without a
            model.
    """
    trained, network = request.model.trained, request.network
    given = TypedOptions.from_request(request)
    if trained is None:
        if sizes := given.spellings(("tp", "ep", "dp", "mbs")):
            raise InputError(f"{', '.join(sizes)} need a model", "choose one")
        return request.costs, network
    from ppsim.workload.hardware.hardware import read_machine

    if network.cluster is None:
        raise InputError("a model's times need a cluster", "choose one, such as dgx-h100")
    if typed := given.spellings((*GIVEN_COSTS, "message", "offload")):
        what = f"{', '.join(typed)} has no effect with a model, which gives the costs"
        raise InputError(what, "leave it out")
    costs = replace(request.costs, costs=price_of(trained, read_machine(network.cluster)))
    return costs, replace(network, cluster=None)


def _texts(declared: Option, value: Any) -> Any:
    """Return a value of JSON as a command line has it: a bool, a text, or texts."""
    if isinstance(value, bool):
        return value
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, bool) or not isinstance(part, str | int | float) for part in parts):
        raise InputError(
            f"{declared.keyword}: not a text, number, true, false, or list of texts or numbers"
        )
    texts = [str(part) for part in parts]
    return texts if declared.many else ",".join(texts)


@dataclass(frozen=True)
class _Shown:
    """The runs of a page.

    Attributes:
        sources: the schedules asked for, as names and paths.
        runs: the runs that could be timed, each with its title.
        failed: the reason why a schedule has no run, by its source.
        timed_by_file: True if a dropped file gives the times of all runs.
    """

    sources: list[str]
    runs: list[tuple[str, TimedRun]]
    failed: dict[str, PpsimError]
    timed_by_file: bool


def _answer(request: ViewRequest, folder: Path) -> Document:
    """Return the document of a page's request."""
    given = TypedOptions.from_request(request)
    costs, network = _costs_and_network(request)
    shown = _time_schedules(request, folder, costs, network)
    if not shown.runs:
        raise next(iter(shown.failed.values()))
    titles, runs = zip(*shown.runs, strict=True)
    executions = tuple(run.execution for run in runs if run.execution)
    metrics = [_run_metrics(run, costs) for run in runs]
    prices = [run.costs for run in runs]
    model = _model_object(request)
    if model:
        inputs = {"ppsim": VERSION, **model}
    else:
        inputs = _inputs(given, prices[0], shown.timed_by_file)
    document = Document(
        tuple(run.timeline for run in runs),
        titles,
        inputs,
        idles=tuple(run.idle for run in runs),
        executions=executions if len(executions) == len(runs) else (),
        bounds=tuple(each.bound for each in metrics),
        left=tuple(
            (spec, str(shown.failed[source]).replace(f"{folder}{os.sep}", ""))
            for spec, source in zip(request.schedules.specs, shown.sources, strict=True)
            if source in shown.failed
        ),
        verdict=_verdict(request, shown, metrics),
    )
    editable_with = None if shown.timed_by_file or model else given
    document = make_editable(_capped(document, request), prices, editable_with)
    return add_memory(document, prices, costs, asked=False, model=request.model.trained)


def _time_schedules(
    request: ViewRequest, folder: Path, costs: CostOptions, network: NetworkOptions
) -> _Shown:
    """Time the schedules of a page: dropped files by their own times, others by simulation.

    Raises:
        InputError: they are too much work for a live page.
    """
    shape = request.shape
    sources = [_schedule_path(spec, folder) for spec in request.schedules.specs]
    _refuse_work(sources, shape)
    stated, failed = _read_stated(sources, shape)
    has_timing = bool(TypedOptions.from_request(request).spellings(TIMING))
    timed_by = None if has_timing else next(iter(stated.items()), None)
    runs: list[tuple[str, TimedRun]] = []
    cells = 0
    for source in sources:
        check_time()
        if source in failed:
            continue
        own, name = stated.get(source), Path(source).name
        try:
            if own and not has_timing:
                title, run = f"{own.title} (times of {name})", show_stated(source, own)
            else:
                title, run = _simulate(source, shape, costs, network, timed_by)
                if own:
                    title = f"{own.title} (order of {name})"
        except PpsimError as error:
            failed[source] = error
            continue
        runs.append((title, run))
        schedule = run.timeline.schedule
        cells += schedule.n_stages * schedule.n_microbatches
        _refuse_cells(cells, MOST_CELLS)
    return _Shown(sources, runs, failed, timed_by is not None)


def _run_metrics(run: TimedRun, costs: CostOptions) -> Metrics:
    """Return the numbers of a run; of a simulated one also the bound and the round."""
    if run.source != SIMULATED:
        from ppsim.engine.simple.metrics import measure

        return measure(run.timeline)
    return measure_with_bound(
        run.timeline, run.costs, costs.tokens, detailed=run.execution is not None
    )


def _verdict(request: ViewRequest, shown: _Shown, metrics: Sequence[Metrics]) -> str:
    """Return the verdict of ``run`` for one schedule, or that of ``compare`` for several."""
    timelines = [run.timeline for _, run in shown.runs]
    if len(shown.sources) == 1:
        return run_verdict(timelines[0].schedule, metrics[0], timelines[0].unit)
    from ppsim.analysis.compare import Row, compared_two, conclude

    specs = zip(request.schedules.specs, shown.sources, strict=True)
    names = [spec.removeprefix(DROPPED) for spec, source in specs if source not in shown.failed]
    rows = [*map(Row, names, timelines, metrics)]
    two = compared_two(rows) if request.model.model else None
    cuts = any(row.timeline and row.timeline.schedule.n_slices > 1 for row in two or ())
    return conclude(rows, "this gain is predicted and unchecked" if cuts else "")


def _capped(document: Document, request: ViewRequest) -> Document:
    """Return a document with the memory of the model's GPU as its cap, if there is one kind."""
    if not (request.model.model and request.network.cluster):
        return document
    from ppsim.workload.hardware.hardware import read_machine

    machine = read_machine(request.network.cluster)
    if machine.kinds:
        return document
    return replace(document, cap=int(machine.gpu.memory_gib * 2**30))


def _read_stated(
    sources: Sequence[str], shape: ShapeOptions
) -> tuple[dict[str, StatedRun], dict[str, PpsimError]]:
    """Return the runs of dropped files with times, and the errors of files, by their paths."""
    stated: dict[str, StatedRun] = {}
    failed: dict[str, PpsimError] = {}
    for source in sources:
        try:
            if run := _read_times(source, shape):
                stated[source] = run
        except PpsimError as error:
            failed[source] = error
    return stated, failed


def _read_times(source: str, shape: ShapeOptions) -> StatedRun | None:
    """Read the times of a dropped file; None for a file without times, and for a family's name.

    Raises:
        InputError: the page asks for another shape than the file's.
    """
    if family_of(source) is not None:
        return None
    stated = read_stated(source)
    if stated is None:
        return None
    schedule = stated.observed.timeline.schedule
    _refuse_stages(schedule)
    for word, asked, own in (
        ("devices", shape.devices, schedule.n_devices),
        ("microbatches", shape.microbatches, schedule.n_microbatches),
    ):
        if asked not in (None, own):
            raise InputError(
                f"{Path(source).name} has {own} {word}, not {asked}",
                f"{word}: {own}, or leave out the file",
            )
    return stated


def _simulate(
    source: str,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
    timed_by: tuple[str, StatedRun] | None,
) -> tuple[str, TimedRun]:
    """Simulate a schedule; return its title and its run.

    ``timed_by`` is a dropped file with its run, whose median times replace the costs of options.
    """
    measured = timed_by[1].observed.costs if timed_by else None
    schedule, prices = build(
        source, options_taken(source, shape), costs, network, quiet=True, measured=measured
    )
    _refuse_stages(schedule)
    title = title_of(schedule)
    if timed_by:
        title += f" (median times of {Path(timed_by[0]).name})"
    return title, explain_costs(source, schedule, prices, network, costs.links)


def _inputs(given: TypedOptions, prices: Costs, timed_by_file: bool) -> dict[str, Any]:
    """Return the inputs that repeat the page, with the command that does so.

    No command compares the times of a file with two or more schedules.
    """
    count = len(given["names"]) + len(given["schedule"])
    if timed_by_file:
        command = {1: "explain", 2: "diff"}.get(count, "")
    else:
        command = "run" if count == 1 else "compare"
    named = {
        name: [spec.removeprefix(DROPPED) for spec in given[name]] for name in ("names", "schedule")
    }
    of_file = ("devices", "stages", "microbatches") if timed_by_file else ()
    typed = [option for option in given.typed if option.name not in of_file]
    inputs = inputs_of(TypedOptions(command, {**given.values, **named}, typed), prices)
    if not command:
        inputs.pop("command", None)
    return inputs


def _model_object(request: ViewRequest) -> dict[str, Any]:
    """Return the model and its cluster as inputs, because no command repeats such a page; empty
    without a model.
    """
    if not request.model.model:
        return {}
    return asdict(request.model) | {"cluster": request.network.cluster}


def _schedule_path(spec: str, folder: Path) -> str:
    """Return the spelling of a schedule, or the path of a dropped file (InputError: no such file,
    or one that a page may not read).
    """
    if not spec.startswith(DROPPED):
        return spec
    name = spec.removeprefix(DROPPED)
    path = folder / name
    if Path(name).name != name or not os.path.isfile(path):
        raise InputError(f"no file '{shorten(name)}' was dropped here", "drop it on the page again")
    if path.suffix == ".py":
        raise InputError(f"'{name}' is code, which a page does not run", "ppsim run in a terminal")
    if not path.suffix:
        from ppsim.inputs.drafts.read import readable

        raise InputError(
            f"'{name}' has no suffix that names a format", "one of .toml " + " ".join(readable())
        )
    return str(path)


def _refuse_work(specs: Sequence[str], shape: ShapeOptions) -> None:
    """Raise InputError for too many or too large schedules: a reader waits while dragging."""
    if len(specs) > MOST_SCHEDULES:
        raise InputError(
            f"{len(specs)} schedules are too many for one page", f"{MOST_SCHEDULES} at most"
        )
    cells = 0
    for spec in specs:
        family = family_of(spec)
        if family is None:  # a file of ops, whose size is known once it is read
            continue
        chunks = split_chunks(spec)[1] or shape.chunks or family.chunks
        stages = shape.stages or (shape.devices or 1) * chunks
        of_schedule = stages * (shape.microbatches or 1) * (shape.slices or 1)
        most = MOST_SEARCHED if family.uses_costs else MOST_CELLS
        _refuse_cells(of_schedule, most, family.name)
        cells += of_schedule
    _refuse_cells(cells, MOST_CELLS)


def _refuse_stages(schedule: Schedule) -> None:
    if schedule.n_stages > MOST_STAGES:
        raise InputError(
            f"{schedule.n_stages:,} stages are too much work for a live page ({MOST_STAGES} at "
            f"most)",
            "ppsim run in a terminal",
        )


def _refuse_cells(cells: int, most: int, name: str = "") -> None:
    if cells > most:
        raise InputError(
            f"{name + ': ' if name else ''}{cells:,} stages x microbatches are too much work for "
            f"a live page ({most:,} at most)",
            "fewer schedules, devices or microbatches, or ppsim run in a terminal",
        )
