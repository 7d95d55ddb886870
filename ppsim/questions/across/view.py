"""Documents for the live page: from its fields, within limits and without files of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ppsim.ask.given import TypedOptions
from ppsim.ask.groups import SHAPE, NetworkOptions, SeveralSchedules, ShapeOptions
from ppsim.ask.option_names import GIVEN_COSTS, TIMING
from ppsim.ask.options import Option, Request, flatten, group, make
from ppsim.ask.request import ask, find_options
from ppsim.ask.words import run_verdict, title_of
from ppsim.ask.write import inputs_of
from ppsim.base.deadline import check_time
from ppsim.core.costs import Costs, costs_for
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import add_memory, build, measure_with_bound
from ppsim.prices.editable import make_editable
from ppsim.prices.options import CostOptions
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
MOST_STAGES = 512  # why devices wait is followed from stage to stage, for each of them
MOST_SEARCHED = 4_096  # of one schedule whose order is searched again for every cost


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
    """Simulate what fields such as ``{"names": ["1f1b", "zb-1p"], "devices": 4, "mb": 8}`` ask for,
    as one document.

    A dropped file that states times is shown with them, and the rest simulated with their medians,
    unless there are costs or messages among the fields: then all are simulated, the file's ops in
    its order.

    Args:
        fields: of JSON, by the names of options; ``names`` are schedules, ``dropped:NAME`` a file
            that was dropped.
        folder: where dropped files are.

    Raises:
        InputError: an option or a shape that is refused, too much work for a live page, or a file
            of this machine.
    """
    return _answer(_request_of(ViewRequest, fields), folder)


def plan_request(fields: Mapping[str, Any]) -> PlanPageRequest:
    """Read a page's request for ``ppsim plan`` (InputError: an option or a value that a page may
    not give).
    """
    return _request_of(PlanPageRequest, fields)


def explain_first(fields: Mapping[str, Any], folder: Path) -> PageExplanation:
    """Explain the time of the first schedule that fields ask for, and suggest changes.

    Raises:
        InputError: as :func:`view` does, and where there is nothing to explain: no schedule takes
            the shape, or the costs are a dropped file's.
    """
    from ppsim.questions.across.explain import ExplainRequest, answer

    request = _request_of(ViewRequest, fields)
    priced, _ = _costs_and_network(request)
    sources = [_schedule_path(spec, folder) for spec in request.schedules.specs]
    _refuse_work(sources, request.shape)
    stated, left = _read_stated(sources, request.shape)
    refused: PpsimError = InputError("no schedule takes this shape")
    for source in (each for each in sources if each not in left):
        if (
            stated
            and source not in stated
            and not TypedOptions.from_request(request).spellings(TIMING)
        ):
            raise InputError(
                "the times are those of a dropped file, which comes after this schedule"
            )
        own = flatten(request) | flatten(options_taken(source, request.shape))
        named = {
            name: own[name]
            for name in request.given - {"names", "schedule", *asdict(request.model)}
            if own[name] is not None
        }
        named = {
            name: value
            for name, value in named.items()
            if not (reads_ops(source) and name in SHAPE)
        }
        # as a command could be
        typed = {name for name in named if not (request.model.model and name == "cluster")}
        named |= {"names": (source,)} | (
            {"cluster": None, "costs": priced.costs} if request.model.model else {}
        )
        try:
            found = answer(make(ExplainRequest, named, {"names", *typed}))
        except PpsimError as error:
            refused = error
        else:
            return found.story
    raise refused


def load_kernels() -> None:
    """Load the machine code that every request may need, so that no later change waits for it."""
    from ppsim.engine.simple import longest_path
    from ppsim.search.rules import fill

    for name in ("1f1b", "bpipe"):
        schedule = generate(name, devices=2, microbatches=2)
        longest_path.compile_now(schedule, costs_for(schedule))
    fill.compile_now()


def _request_of(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Read the fields of a page, none of which names a file of this machine."""
    values = {
        declared.name: _texts(declared, value) for declared, value in find_options(kind, fields)
    }
    for declared, value in find_options(kind, values):
        check_field(declared, value)
    return ask(kind, values)


def _costs_and_network(request: ViewRequest) -> tuple[CostOptions, NetworkOptions]:
    """Return costs and network: from the options, or from the model's stages on the cluster.

    Raises:
        InputError: costs and a model together, a model without a cluster, or sizes without a model.
    """
    trained, network, given = (
        request.model.trained,
        request.network,
        TypedOptions.from_request(request),
    )
    if trained is None:
        if sizes := given.spellings(("tp", "ep", "dp", "mbs")):
            raise InputError(f"{', '.join(sizes)} need a model", "choose one")
        return request.costs, network
    from ppsim.workload.hardware.hardware import read_machine

    if network.cluster is None:
        raise InputError("a model's times need a cluster", "choose one, such as dgx-h100")
    if typed := given.spellings((*GIVEN_COSTS, "message", "offload")):
        what = f"{', '.join(typed)} would have no effect beside a model, whose stages have costs"
        raise InputError(what, "leave it out")
    costs = replace(request.costs, costs=price_of(trained, read_machine(network.cluster)))
    return costs, replace(network, cluster=None)


def _texts(declared: Option, value: Any) -> Any:
    """A value of JSON as true, false, or the text or texts that a command line would have."""
    if isinstance(value, bool):
        return value
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, bool) or not isinstance(part, str | int | float) for part in parts):
        raise InputError(
            f"{declared.name} is neither text, number, true, false, nor a list of texts or numbers"
        )
    texts = [str(part) for part in parts]
    return texts if declared.many else ",".join(texts)


def _answer(request: ViewRequest, folder: Path) -> Document:
    shape, given = request.shape, TypedOptions.from_request(request)
    costs, network = _costs_and_network(request)
    sources = [_schedule_path(spec, folder) for spec in request.schedules.specs]
    _refuse_work(sources, shape)
    typed = given.spellings(TIMING)
    stated, left = _read_stated(sources, shape)
    taken = next(iter(stated.items()), None) if not typed else None
    runs: list[tuple[str, TimedRun]] = []
    for source in sources:
        check_time()
        if source in left:
            continue
        try:
            if (own := stated.get(source)) and not typed:
                title, run = f"{own.title} (times of {Path(source).name})", show_stated(source, own)
            else:
                title, run = _simulate(source, shape, costs, network, taken)
                title = f"{own.title} (order of {Path(source).name})" if own else title
        except PpsimError as error:
            left[source] = error
            continue
        runs.append((title, run))
        schedules = [run.timeline.schedule for _, run in runs]
        _refuse_cells(
            sum(schedule.n_stages * schedule.n_microbatches for schedule in schedules), MOST_CELLS
        )
    if not runs:
        raise next(iter(left.values()))
    titles, shown = zip(*runs, strict=True)
    executions = tuple(run.execution for run in shown if run.execution)
    metrics = [_run_metrics(run, costs) for run in shown]
    document = Document(
        tuple(run.timeline for run in shown),
        titles,
        {"ppsim": VERSION, **model}
        if (model := _model_object(request))
        else _inputs(given, shown[0].costs, bool(taken)),
        idles=tuple(run.idle for run in shown),
        executions=executions if len(executions) == len(runs) else (),
        bounds=tuple(each.bound for each in metrics),
        left=tuple(
            (spec, str(left[source]).replace(f"{folder}{os.sep}", ""))
            for spec, source in zip(request.schedules.specs, sources, strict=True)
            if source in left
        ),
        verdict=_verdict(request, sources, left, runs, metrics),
    )
    prices, trained = [run.costs for run in shown], request.model.trained
    document = make_editable(_capped(document, request), prices, None if taken or model else given)
    return add_memory(document, prices, costs, asked=False, model=trained)


def _run_metrics(run: TimedRun, costs: CostOptions) -> Metrics:
    """Return the numbers of a run, with the bound and the round where it is simulated."""
    if run.source != SIMULATED:
        from ppsim.engine.simple.metrics import measure

        return measure(run.timeline)
    return measure_with_bound(
        run.timeline, run.costs, costs.tokens, detailed=run.execution is not None
    )


def _verdict(
    request: ViewRequest,
    sources: Sequence[str],
    left: Mapping[str, PpsimError],
    runs: Sequence[tuple[str, TimedRun]],
    metrics: Sequence[Metrics],
) -> str:
    """Return the sentence that ``run`` prints first of one schedule, or ``compare`` of several."""
    timelines = [run.timeline for _, run in runs]
    if len(sources) == 1:
        return run_verdict(timelines[0].schedule, metrics[0], timelines[0].unit)
    from ppsim.analysis.compare import Row, conclude

    specs = zip(request.schedules.specs, sources, strict=True)
    names = [spec.removeprefix(DROPPED) for spec, source in specs if source not in left]
    return conclude([*map(Row, names, timelines, metrics)])


def _capped(document: Document, request: ViewRequest) -> Document:
    """A document with the memory of the GPU that a model runs on as its cap; of several kinds of
    GPU none.
    """
    from ppsim.workload.hardware.hardware import read_machine

    machine = (
        read_machine(request.network.cluster)
        if request.model.model and request.network.cluster
        else None
    )
    return (
        document
        if machine is None or machine.kinds
        else replace(document, cap=int(machine.gpu.memory_gib * 2**30))
    )


def _read_stated(
    sources: Sequence[str], shape: ShapeOptions
) -> tuple[dict[str, StatedRun], dict[str, PpsimError]]:
    """The dropped files that have times, and why others leave."""
    stated: dict[str, StatedRun] = {}
    left: dict[str, PpsimError] = {}
    for source in sources:
        try:
            run = _read_times(source, shape)
        except PpsimError as error:
            left[source] = error
        else:
            stated |= {source: run} if run else {}
    return stated, left


def _read_times(source: str, shape: ShapeOptions) -> StatedRun | None:
    """Read the times of a dropped file, None for a file without times (InputError: the shape asked
    for is not its own).
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
    taken: tuple[str, StatedRun] | None,
) -> tuple[str, TimedRun]:
    """Simulate a schedule with the costs of the options, or the median times of a dropped run; its
    title first.
    """
    measured = taken[1].observed.costs if taken else None
    schedule, prices = build(
        source, options_taken(source, shape), costs, network, quiet=True, measured=measured
    )
    _refuse_stages(schedule)
    title = title_of(schedule)
    if taken:
        title += f" (median times of {Path(taken[0]).name})"
    return title, explain_costs(source, schedule, prices, network, costs.links)


def _inputs(given: TypedOptions, prices: Costs, stated: bool) -> dict[str, Any]:
    """Return the inputs that make the page again; no command if a dropped file's times are compared
    with several schedules.
    """
    count = len(given["names"]) + len(given["schedule"])
    command = (
        ("explain", "diff", "")[min(count, 3) - 1] if stated else "run" if count == 1 else "compare"
    )
    named = {
        name: [spec.removeprefix(DROPPED) for spec in given[name]] for name in ("names", "schedule")
    }
    own = ("devices", "stages", "microbatches") if stated else ()  # which are the file's
    typed = [each for each in given.typed if each.name not in own]
    inputs = inputs_of(TypedOptions(command, {**given.values, **named}, typed), prices)
    return (
        inputs if command else {name: value for name, value in inputs.items() if name != "command"}
    )


def _model_object(request: ViewRequest) -> dict[str, Any]:
    """The model and where it runs, for which there is no command; empty without one."""
    return (
        asdict(request.model) | {"cluster": request.network.cluster} if request.model.model else {}
    )


def _schedule_path(spec: str, folder: Path) -> str:
    """The schedule a word names: one of the list, or the path of a dropped file."""
    if not spec.startswith(DROPPED):
        return spec
    name = spec.removeprefix(DROPPED)
    path = folder / name
    if Path(name).name != name or not path.is_file():
        raise InputError(f"no file '{name}' was dropped here", "drop it on the page again")
    if path.suffix == ".py":
        raise InputError(
            f"'{name}' is code, which a page does not run", "ppsim run in a terminal takes it"
        )
    if not path.suffix:
        from ppsim.inputs.drafts.read import readable

        raise InputError(
            f"'{name}' has no suffix that names a format", "one of .toml " + " ".join(readable())
        )
    return str(path)


def _refuse_work(specs: Sequence[str], shape: ShapeOptions) -> None:
    """Refuse more than a page can show while somebody drags a control."""
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
        own = (
            (shape.stages or (shape.devices or 1) * chunks)
            * (shape.microbatches or 1)
            * (shape.slices or 1)
        )
        _refuse_cells(own, MOST_SEARCHED if family.uses_costs else MOST_CELLS, family.name)
        cells += own
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
