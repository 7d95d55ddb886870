"""Run schedules for real, compare with predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block
from ppsim.ask.given import Need, TypedOptions
from ppsim.ask.groups import SHAPE, FaceOptions, OutputOptions, SeveralSchedules, ShapeOptions
from ppsim.ask.options import Request, common, flag, flatten, group, option
from ppsim.ask.request import ask
from ppsim.ask.types import COUNT, Share
from ppsim.ask.words import count_text, title_of
from ppsim.ask.write import Writers, command_line, find_targets
from ppsim.base.atomic_file import open_atomically, rehearse
from ppsim.base.notes import note, progress
from ppsim.errors import UNDECIDED, InputError, PpsimError
from ppsim.prices.build import build_schedule
from ppsim.questions.runs.stated import read_named_run, unit_option
from ppsim.questions.runs.validation_text import detail_lines, job_lines, picker_of, verdict_of
from ppsim.questions.runs.workload import (
    MODEL,
    WorkloadOptions,
    explain_module,
    module_option,
    workload,
)
from ppsim.real.calibration.user_module import find_module

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.real.runs.record import Record
    from ppsim.real.traces.run import RealRun
    from ppsim.real.validation.jobs import JobErrors
    from ppsim.real.validation.verdict import Validation


def _milliseconds(spelling: str, what: str) -> Any:
    kind = click.FloatRange(min=0)
    return option(
        spelling, type=kind, default=5.0, show_default=True, help=f"Timed ops: ms of a {what}."
    )


# Names of options: of ops that take their time, and of all that a run for real is asked for.
TIMED = ("tf", "ti", "tw", "t_beside", "message")
REQUEST = ("ops", "module", "runner", "device", *TIMED, "repeats", "warm_up", "real_time", *MODEL)


@dataclass(frozen=True)
class RunOptions:
    """The work of a real run and its repetitions; see :class:`ppsim.real.runs.session.Request`."""

    ops: str = common(
        "--ops",
        type=click.Choice(["compute", "timed"]),
        default="compute",
        help="Real transformer stages, or ops that only take their time (more devices than cores).",
    )
    runner: str = common(
        "--runner",
        type=click.Choice(["own", "torch", "partitioned"]),
        default="own",
        help="Our runner; torch.distributed.pipelining fed with our CSV; or all devices on parts "
        "of one GPU.",
    )
    device: str = common(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        help="What computes; auto: GPUs where there is one for each device.",
    )
    tf: float = _milliseconds("--tf", "forward per device")
    ti: float = _milliseconds("--ti", "backward for the input")
    tw: float = _milliseconds("--tw", "backward for the weights")
    t_beside: float = option(
        "--t-beside",
        type=click.FloatRange(min=0),
        default=1.0,
        help="Timed ops: ms of a copy, of a collective and of any other op beside F, B, I and W.",
    )
    message: int = option(
        "--message", type=COUNT, default=65536, help="Timed ops: bytes of a message."
    )
    model: WorkloadOptions = group(
        workload(hidden=256, heads=4, sequence=64, microbatch_size=4, layers=2, vocab=1000), "Model"
    )
    repeats: int = common("--repeats", type=COUNT, default=7, help="Measured repetitions.")
    warm_up: int = option(
        "--warm-up", type=click.IntRange(min=0), default=2, help="Repetitions thrown away."
    )
    real_time: bool = flag(
        "--real-time", help="Ask the system for real-time priority while a schedule runs."
    )


@dataclass(frozen=True)
class SourceOptions:
    """Sources of measurements without a new run, and the file that keeps them."""

    record: str | None = common(
        "--record", metavar="FILE", help="Keep the raw measurements, as JSON; .gz makes it small."
    )
    from_record: str | None = common(
        "--from-record",
        type=click.Path(),
        metavar="FILE",
        help="Analyse a record instead of running.",
    )
    trace: str | None = common(
        "--trace",
        type=click.Path(),
        metavar="DIR",
        help="Compare with a run made elsewhere: see ppsim read.",
    )
    iteration: str = option(
        "--iteration",
        default="median",
        help="Traces: which step; a number, a range, median or all.",
    )
    unit: str | None = unit_option()
    profile: str | None = option(
        "--profile", type=click.Path(), help="What ops and messages cost alone (ppsim calibrate)."
    )


@explain_module
@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request):
    """Run schedules for real, one process per device, and compare with the prediction.

    Exits with 0 where the errors are within --tolerance, with 1 where they are not, and with 4
    where they are no larger than the noise of the measurements, so that nobody can tell.

    {module}

    \b
      ppsim validate gpipe 1f1b zb-1p --devices 2 --mb 8
      ppsim validate gpipe 1f1b --devices 4 --mb 8 --ops timed --real-time -o overlay.png
      ppsim validate zb-1p --devices 4 --mb 8 --runner partitioned --hidden 4096
      ppsim validate gpipe 1f1b --devices 2 --mb 8 --module model.py:stage
      ppsim validate 1f1b vocab-1 interlaced --devices 2 --mb 8 --ops timed --t-beside 1
      ppsim validate --trace run/ --iteration 4-20
    """

    question: ClassVar[str] = "validate"
    place: ClassVar[tuple[str, int]] = ("How right it is on a machine of yours", 2)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("from_record", "trace", "record"),
            lambda g: sum(map(bool, (g["from_record"], g["trace"], g["record"]))) < 2,
            "{options} cannot be given together",
        ),
        Need(
            ("only",),
            lambda g: g.writes(),
            "{options} chooses what figures and pages show, and none is written",
            "add -o FILE.svg",
        ),
        Need(
            ("iteration", "unit"),
            lambda g: bool(g["trace"]),
            "{options} says how to read --trace, and there is none",
            "leave it out",
        ),
        Need(
            ("names", "schedule", *SHAPE, *REQUEST, "profile"),
            lambda g: not g["from_record"],
            "--from-record runs nothing, so {options} cannot be given too",
            "leave it out",
        ),
        Need(
            REQUEST,
            lambda g: not g["trace"],
            "--trace shows a run made elsewhere, so {options} cannot be given too",
            "leave it out",
        ),
        Need(
            TIMED,
            lambda g: g["ops"] == "timed",
            "{options} is for ops that only take their time",
            "add --ops timed",
        ),
        Need(
            MODEL,
            lambda g: g["ops"] == "compute",
            "{options} is for stages that compute, and --ops timed has none",
            "leave it out",
        ),
        Need(
            MODEL,
            lambda g: not g["profile"],
            "--profile brings the model, so {options} cannot be given too",
            "leave one out",
        ),
        Need(
            ("module",),
            lambda g: g["ops"] != "timed",
            "{options} has stages that compute, and --ops timed has none",
        ),
    )
    schedules: SeveralSchedules = group(SeveralSchedules, "Shape")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    run: RunOptions = group(RunOptions, "Run")
    module: str | None = module_option()
    calibrate_on: tuple[str, ...] = option(
        "--calibrate-on",
        multiple=True,
        metavar="NAME",
        help="Take costs from these runs only (timed ops: the first; else all others).",
    )
    only: tuple[str, ...] = option(
        "--only",
        multiple=True,
        metavar="NAME",
        help="Draw these schedules in -o files; repeatable (all).",
    )
    tolerance: float = common(
        "--tolerance",
        type=Share(),
        default=0.1,
        show_default="10%",
        help="Largest error that passes.",
    )
    source: SourceOptions = group(SourceOptions, "Measurements")
    output: OutputOptions = group(OutputOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")

    @property
    def specs(self) -> tuple[str, ...]:
        """The schedules, none where a record or a trace shows its own."""
        return (*self.schedules.names, *self.schedules.schedule)

    def check(self) -> None:
        """Refuse formats that cannot show the comparison before anything runs."""
        if targets := find_targets(self.output):
            from ppsim.real.validation.overlay import check_suffix

            for _, suffix in targets:
                check_suffix(suffix)


def validate(schedules: str | Sequence[str] = (), **options: Any) -> Validated | ValidatedJob:
    """Run schedules for real, one process per device, and compare times, in ms, with predictions.

    Args:
        schedules: names or files; none with ``from_record`` or ``trace``.
        options: as ``ppsim validate`` takes them, by name: ``devices``, ``microbatches``, ``ops``,
            ``record``, ...

    Raises:
        InputError: an option or a schedule that is refused, or a record or a trace that cannot be
            used.
        MissingDependency: torch is not installed, or there is no GPU where one is asked for.
        PpsimError: a process of the run died or hung.
    """
    return answer(ask(ValidateRequest, {"names": schedules or None} | options))


def answer(request: ValidateRequest) -> Validated | ValidatedJob:
    """Measure, or read measurements, and compare."""
    if request.source.trace:
        observed = _read_trace(request, request.source.trace)
        if observed.job is not None and not request.source.profile:
            from ppsim.real.validation.jobs import validate_job

            return ValidatedJob(request, observed, validate_job(observed.job))
        return _compare(request, _record_of(request, observed))
    if request.source.from_record:
        from ppsim.real.runs.record import load

        return _compare(request, load(request.source.from_record))
    return _compare(request, *_measure(request))


def _compare(request: ValidateRequest, record: Record, lost: str = "") -> Validated:
    """Predict the runs of a record."""
    from ppsim.real.validation.analyse import validate

    _refuse_unknown(request, [run.name for run in record.runs])
    validation = validate(record, request.calibrate_on)
    if record.settings["ops"] == "trace":
        from ppsim.real.validation.verdict import select_step

        validation = select_step(validation, request.source.iteration)
    return Validated(request, record, validation, lost)


@dataclass(frozen=True)
class ValidatedJob(Answer[ValidateRequest]):
    """A job and its predictions: every step of every replica.

    Attributes:
        run: as measured.
        errors: the errors of the predictions.
    """

    run: RealRun
    errors: JobErrors

    @property
    def passed(self) -> bool:
        """True if the median error is within the tolerance."""
        return bool(self.json_object()["passed"])

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.validate/1``."""
        from ppsim.real.validation.jobs import errors_object

        return errors_object(self.errors, self.request.tolerance)

    @property
    def verdict(self) -> str:
        """The error of the predictions, and whether it is within the tolerance."""
        value = self.json_object()
        return verdict_of(
            value, value["held_out"], f"steps of {count_text(value['replicas'], 'replica')}"
        )

    def blocks(self) -> Iterator[Block]:
        """The errors by source of the costs."""
        yield ""
        yield from job_lines(self.run, self.json_object())

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o: predicted above measured, of one replica."""
        return _compare(self.request, _record_of(self.request, self.run)).writers(output)


@dataclass(frozen=True)
class Validated(Answer[ValidateRequest]):
    """Runs and their predictions.

    Attributes:
        record: of the measurements.
        validation: the errors of the predictions.
        loss_note: the reason why there are fewer runs than asked for; empty where nothing is lost.
    """

    record: Record
    validation: Validation
    loss_note: str = ""

    @cached_property
    def _value(self) -> dict[str, Any]:
        from ppsim.real.validation.verdict import validation_object

        return validation_object(self.validation, self.record, self.request.tolerance)

    @property
    def passed(self) -> bool:
        """True if the errors are within the tolerance."""
        return bool(self._value["passed"])

    @property
    def exit_code(self) -> int:
        """The exit code: 0 or 1 by the tolerance, or 4 where noise is too large to decide."""
        return UNDECIDED if self._value["lost_in_noise"] else int(not self.passed)

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.validate/1``."""
        return self._value

    @property
    def verdict(self) -> str:
        """The error of the predictions, and whether it is within the tolerance."""
        verdicts = self.validation.verdicts
        held_out = any(verdict.held_out for verdict in verdicts)
        return verdict_of(self._value, held_out, count_text(len(verdicts), "run"))

    @property
    def tone(self) -> str:
        """Good within the tolerance, bad in the noise, the tone of a fault beyond."""
        return "bad" if self._value["lost_in_noise"] else "good" if self.passed else "fault"

    def blocks(self) -> Iterator[Block]:
        """The errors by schedule, device and level."""
        yield ""
        yield from detail_lines(self.validation, self.record, self._value)

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The first run, predicted and measured."""
        first = self.validation.verdicts[0]
        return [(f"{first.run.name} predicted", first.best.compute), ("measured", first.measured)]

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o: predicted above measured."""
        from ppsim.real.validation.overlay import names_of, save_overlay
        from ppsim.show.files.document import style_of

        drawn = choose_runs(self.validation, self.request.only)
        titles = [title_of(verdict.run.lowered.compute) for verdict in drawn.verdicts]
        titles = titles if len(set(titles)) == len(titles) else names_of(drawn)  # steps of one run
        made = {
            "command": command_line(TypedOptions.from_request(self.request)),
            "measured_by": self.record.provenance.get("command"),
        }
        record = replace(self.record, provenance={**self.record.provenance, **made})

        def write(target: str, suffix: str) -> None:
            style = style_of(suffix, output.style)
            # A difference of two timelines knows one stream.
            plain = not any(verdict.run.lowered.compute.has_lanes for verdict in drawn.verdicts)
            story = picker_of(drawn, titles) if suffix == ".html" and plain else None
            looks = style, output.width
            save_overlay(drawn, record, target, suffix, *looks, titles, story, self.verdict)

        return [(target, partial(write, target, suffix)) for target, suffix in find_targets(output)]

    def error_after_output(self) -> PpsimError | None:
        """Return the error for lost runs; None if all are there."""
        return PpsimError(self.loss_note) if self.loss_note else None

    @property
    def is_irreplaceable(self) -> bool:
        """True if the runs were made for this answer."""
        return not (self.request.source.from_record or self.request.source.trace)


def choose_runs(validation: Validation, only: Sequence[str]) -> Validation:
    """Select the schedules to draw, in the order of the record; all where none is named."""
    if not only:
        return validation
    return replace(validation, verdicts=tuple(v for v in validation.verdicts if v.run.name in only))


def _refuse_unknown(request: ValidateRequest, names: Sequence[str]) -> None:
    """Refuse names of runs that there are not."""
    for name in request.calibrate_on:
        if name not in names:
            raise InputError(
                f"--calibrate-on {name}: that schedule was not run", f"one of {', '.join(names)}"
            )
    for name in request.only:
        if name not in names:
            raise InputError(
                f"--only: no run of '{name}' was compared", f"one of {' '.join(names)}"
            )


def _read_trace(request: ValidateRequest, trace: str) -> RealRun:
    """Read a run made elsewhere, and refuse one of another schedule than named."""
    specs = request.specs
    if len(specs) > 1:
        raise InputError(
            f"a run shows one schedule, and {len(specs)} are named", "-s 1f1b, or none"
        )
    observed = read_named_run([trace], unit=request.source.unit or "")
    if observed.format == "record":
        raise InputError(f"{observed.source} is a record of ours", f"--from-record {trace}")
    if specs and observed.job is not None:
        from ppsim.real.validation.trace_records import refuse_other

        refuse_other(observed, build_schedule(specs[0], request.shape))
    return observed


def _record_of(request: ValidateRequest, observed: RealRun) -> Record:
    """Make a record of a run made elsewhere, of one replica where it has several."""
    from ppsim.inputs.profile.profile import read
    from ppsim.real.validation.trace_records import record_of

    schedule = (
        build_schedule(request.specs[0], request.shape) if request.specs else observed.schedule
    )
    profile = read(request.source.profile) if request.source.profile else None
    return record_of(
        observed.in_milliseconds(),
        schedule,
        profile,
        command_line(TypedOptions.from_request(request)),
    )


def _measure(request: ValidateRequest) -> tuple[Record, str]:
    """Run the schedules; return the measurements, and a sentence on a failure that leaves them
    usable.
    """
    from ppsim.inputs.profile.profile import read
    from ppsim.real.runs.session import Request as Session
    from ppsim.real.runs.session import measure_session

    if not request.specs:
        raise InputError(
            "no schedule to run",
            "-s 1f1b, as often as you like; --from-record or --trace runs none",
        )
    target, profile = request.source.record, request.source.profile
    schedules = _build_schedules(request.specs, request.shape)
    _refuse_unknown(request, [schedule.name for schedule in schedules])
    session = Session(
        **flatten(request.run),
        command=command_line(TypedOptions.from_request(request)),
        profile=read(profile) if profile else None,
        module=find_module(request.module) if request.module else None,
    )
    if target == "-":
        raise InputError("--record wants a file, not standard output", "--record run.json.gz")
    if target:
        rehearse(target, plain=True)
    with progress(not (request.face.quiet or request.face.as_json)) as report:
        record, failure = measure_session(schedules, session, report)
    failure += "; the repetitions before it were kept" if failure else ""
    lost = _keep(record, target) if target else ""
    return record, "; ".join(filter(None, (failure, lost)))


def _keep(record: Record, target: str) -> str:
    """Write the record; returns why it could not be written, as its numbers can still be
    printed.
    """
    from ppsim.real.runs.record import dump

    try:
        with open_atomically(target) as out:
            out.write(dump(record, target))
    except InputError as error:
        return str(error)
    note(f"wrote {target}")
    return ""


def _build_schedules(specs: tuple[str, ...], shape: ShapeOptions) -> list[Schedule]:
    schedules = [build_schedule(spec, shape) for spec in specs]
    named = [schedule.name for schedule in schedules]
    # A run is known by its name: a file is one with and without copies to the host, as a rule.
    schedules = [
        replace(each, name=f"{each.name} {named[: at + 1].count(each.name)}")
        if named.count(each.name) > 1
        else each
        for at, each in enumerate(schedules)
    ]
    if len({schedule.n_devices for schedule in schedules}) > 1:
        sizes = ", ".join(f"{s.name} {s.n_devices}" for s in schedules)
        raise InputError(
            f"schedules that run together need the same number of devices, not {sizes}",
            "give --devices",
        )
    return schedules
