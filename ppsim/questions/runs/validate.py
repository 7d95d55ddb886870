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


def _milliseconds(spelling: str, noun: str) -> Any:
    """Declare an option for the time of a kind of timed op, in ms."""
    kind = click.FloatRange(min=0)
    return option(
        spelling, type=kind, default=5.0, show_default=True, help=f"Timed ops: ms of a {noun}."
    )


# Options of timed ops, and all options of a real run.
TIMED = ("tf", "ti", "tw", "t_other", "message")
REQUEST = ("ops", "module", "runner", "device", *TIMED, "repeats", "warm_up", "real_time", *MODEL)


@dataclass(frozen=True)
class RunOptions:
    """The work of a real run and its repetitions; see :class:`ppsim.real.runs.session.Request`."""

    ops: str = common(
        "--ops",
        type=click.Choice(["compute", "timed"]),
        default="compute",
        help="The ops: transformer stages that compute, or timed ops, which only wait for their "
        "time (allows more devices than cores).",
    )
    runner: str = common(
        "--runner",
        type=click.Choice(["own", "torch", "partitioned"]),
        default="own",
        help="The runner: ppsim's own; torch.distributed.pipelining with ppsim's CSV; or ppsim's "
        "own with all devices on partitions of one GPU.",
    )
    device: str = common(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        help="The devices that compute; auto: GPUs if there is one for each device.",
    )
    tf: float = _milliseconds("--tf", "forward per device")
    ti: float = _milliseconds("--ti", "backward for the input")
    tw: float = _milliseconds("--tw", "backward for the weights")
    t_other: float = option(
        "--t-other",
        type=click.FloatRange(min=0),
        default=1.0,
        help="Timed ops: ms of every op other than F, B, I and W, such as a copy or collective.",
    )
    message: int = option(
        "--message", type=COUNT, default=65536, help="Timed ops: bytes of a message."
    )
    model: WorkloadOptions = group(
        workload(hidden=256, heads=4, sequence=64, microbatch_size=4, layers=2, vocab=1000), "Model"
    )
    repeats: int = common("--repeats", type=COUNT, default=7, help="Measured repetitions.")
    warm_up: int = option(
        "--warm-up",
        type=click.IntRange(min=0),
        default=2,
        help="Repetitions before those, not counted.",
    )
    real_time: bool = flag(
        "--real-time", help="Ask the system for real-time priority while a schedule runs."
    )


@dataclass(frozen=True)
class SourceOptions:
    """Sources of measurements instead of a new run, and the file that keeps them."""

    record: str | None = common(
        "--record", metavar="FILE", help="Write the raw measurements as JSON; .gz compresses them."
    )
    from_record: str | None = common(
        "--from-record",
        type=click.Path(),
        metavar="FILE",
        help="Read the measurements from a record instead of running.",
    )
    trace: str | None = common(
        "--trace",
        type=click.Path(),
        metavar="DIR",
        help="Read the measurements from a run made elsewhere: see ppsim read.",
    )
    iteration: str = option(
        "--iteration",
        default="median",
        help="The step of --trace: a number, a range, median or all.",
    )
    unit: str | None = unit_option()
    profile: str | None = option(
        "--profile",
        type=click.Path(),
        help="A profile of ppsim calibrate: times of ops and messages measured alone.",
    )


@explain_module
@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request):
    """Run schedules for real, one process per device, and compare with the prediction.

    Exits with 0 if the errors are within --tolerance, with 1 if they are not, and with 4 if they
    exceed it by no more than the noise of the measurements, which then cannot decide.

    {module}

    \b
      ppsim validate gpipe 1f1b zb-1p --devices 2 --mb 8
      ppsim validate gpipe 1f1b --devices 4 --mb 8 --ops timed --real-time -o overlay.png
      ppsim validate zb-1p --devices 4 --mb 8 --runner partitioned --hidden 4096
      ppsim validate gpipe 1f1b --devices 2 --mb 8 --module model.py:stage
      ppsim validate 1f1b vocab-1 interlaced --devices 2 --mb 8 --ops timed --t-other 1
      ppsim validate --trace run/ --iteration 4-20
    """

    question: ClassVar[str] = "validate"
    place: ClassVar[tuple[str, int]] = ("How accurate it is on your machine", 2)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("from_record", "trace", "record"),
            lambda g: sum(map(bool, (g["from_record"], g["trace"], g["record"]))) < 2,
            "{options} cannot be given together",
        ),
        Need(
            ("only",),
            lambda g: g.writes(),
            "{options} needs -o FILE",
            "add -o FILE.svg",
        ),
        Need(
            ("iteration", "unit"),
            lambda g: bool(g["trace"]),
            "{options} needs --trace",
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
            "--trace reads a run made elsewhere, so {options} cannot be given too",
            "leave it out",
        ),
        Need(
            TIMED,
            lambda g: g["ops"] == "timed",
            "{options} is for timed ops",
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
            "--profile has its model, so {options} cannot be given too",
            "leave one out",
        ),
        Need(
            ("module",),
            lambda g: g["ops"] != "timed",
            "{options} makes stages that compute, and --ops timed has none",
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
        help="Derive costs from these runs only (default: timed ops from the first run, else from "
        "all other runs).",
    )
    only: tuple[str, ...] = option(
        "--only",
        multiple=True,
        metavar="NAME",
        help="Draw only these schedules in -o files; repeatable (default: all).",
    )
    tolerance: float = common(
        "--tolerance",
        type=Share(),
        default=0.1,
        show_default=False,
        help="Largest error that passes (10%).",
    )
    source: SourceOptions = group(SourceOptions, "Measurements")
    output: OutputOptions = group(OutputOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")

    @property
    def specs(self) -> tuple[str, ...]:
        """The spellings of the schedules; none for a record or a trace."""
        return (*self.schedules.names, *self.schedules.schedule)

    def check(self) -> None:
        """Raise InputError for a format that cannot show the comparison."""
        if targets := find_targets(self.output):
            from ppsim.real.validation.overlay import check_suffix

            for _, suffix in targets:
                check_suffix(suffix)


def validate(schedules: str | Sequence[str] = (), **options: Any) -> Validated | ValidatedJob:
    """Run schedules for real, one process per device, and compare times (in ms) with predictions.

    Args:
        schedules: names or files; none with ``from_record`` or ``trace``.
        options: the options of ``ppsim validate`` by name: ``devices``, ``microbatches``, ``ops``,
            ``record``, ...

    Raises:
        InputError: an option or a schedule is refused, or a record or a trace cannot be used.
        MissingDependency: torch is not installed, or a GPU is asked for and there is none.
        PpsimError: a process of the run died or hung.
    """
    return answer(ask(ValidateRequest, {"names": schedules or None} | options))


def answer(request: ValidateRequest) -> Validated | ValidatedJob:
    """Measure, or read measurements, and compare them with predictions."""
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
    """Predict the runs of a record; ``lost`` is a sentence on runs that failed."""
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
        run: the measured run.
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
        """The error of the predictions against the tolerance."""
        value = self.json_object()
        return verdict_of(
            value, value["held_out"], f"steps of {count_text(value['replicas'], 'replica')}"
        )

    def blocks(self) -> Iterator[Block]:
        """The errors, by source of the costs."""
        yield ""
        yield from job_lines(self.run, self.json_object())

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o: the predicted above the measured timeline of a replica."""
        record = _record_of(self.request, self.run)
        shown = f"costs from {record.settings['costs']}"
        if len(self.errors.job.replicas) > 1:
            shown = f"replica {self.run.replica} alone, {shown}"
        record = replace(record, settings={**record.settings, "shown": shown})
        return replace(_compare(self.request, record), whole_verdict=self.verdict).writers(output)


@dataclass(frozen=True)
class Validated(Answer[ValidateRequest]):
    """Runs and their predictions.

    Attributes:
        record: the measurements.
        validation: the errors of the predictions.
        loss_note: the reason why runs are missing; empty if none is.
        whole_verdict: the verdict on the job of which these runs are a part; empty if none is.
    """

    record: Record
    validation: Validation
    loss_note: str = ""
    whole_verdict: str = ""

    @cached_property
    def _value(self) -> dict[str, Any]:
        """The object of schema ``ppsim.validate/1``."""
        from ppsim.real.validation.verdict import validation_object

        return validation_object(self.validation, self.record, self.request.tolerance)

    @property
    def passed(self) -> bool:
        """True if the errors are within the tolerance."""
        return bool(self._value["passed"])

    @property
    def exit_code(self) -> int:
        """The exit code: 0 or 1 by the tolerance, or 4 if noise is too large to decide."""
        return UNDECIDED if self._value["lost_in_noise"] else int(not self.passed)

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.validate/1``."""
        return self._value

    @property
    def verdict(self) -> str:
        """The error of the predictions against the tolerance."""
        if self.whole_verdict:
            return self.whole_verdict
        verdicts = self.validation.verdicts
        held_out = any(verdict.held_out for verdict in verdicts)
        return verdict_of(self._value, held_out, count_text(len(verdicts), "run"))

    @property
    def tone(self) -> str:
        """The tone: good within the tolerance, bad within the noise, else that of a fault."""
        return "bad" if self._value["lost_in_noise"] else "good" if self.passed else "fault"

    def blocks(self) -> Iterator[Block]:
        """The errors by schedule, device and level."""
        yield ""
        yield from detail_lines(self.validation, self.record, self._value)

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The predicted and the measured timeline of the first run."""
        first = self.validation.verdicts[0]
        return [(f"{first.run.name} predicted", first.best.compute), ("measured", first.measured)]

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o: the predicted above the measured timelines."""
        from ppsim.real.validation.overlay import names_of, save_overlay
        from ppsim.show.files.document import style_of

        drawn = choose_runs(self.validation, self.request.only)
        titles = [title_of(verdict.run.lowered.compute) for verdict in drawn.verdicts]
        if len(set(titles)) < len(titles):  # several steps of one run
            titles = names_of(drawn)
        made_by = {
            "command": command_line(TypedOptions.from_request(self.request)),
            "measured_by": self.record.provenance.get("command"),
        }
        record = replace(self.record, provenance={**self.record.provenance, **made_by})

        def write(target: str, suffix: str) -> None:
            look = style_of(suffix, output.style), output.width
            # differences of two timelines are known for one stream only
            has_lanes = any(verdict.run.lowered.compute.has_lanes for verdict in drawn.verdicts)
            picker = None if has_lanes or suffix != ".html" else picker_of(drawn, titles)
            save_overlay(drawn, record, target, suffix, *look, titles, picker, self.verdict)

        return [(target, partial(write, target, suffix)) for target, suffix in find_targets(output)]

    def error_after_output(self) -> PpsimError | None:
        """Return the error that runs are missing; None if none is."""
        return PpsimError(self.loss_note) if self.loss_note else None

    @property
    def is_irreplaceable(self) -> bool:
        """True if the runs were made for this answer, and not read from a file."""
        return not (self.request.source.from_record or self.request.source.trace)


def choose_runs(validation: Validation, only: Sequence[str]) -> Validation:
    """Return the runs to draw, in the order of the record; all if none is named."""
    if not only:
        return validation
    return replace(validation, verdicts=tuple(v for v in validation.verdicts if v.run.name in only))


def _refuse_unknown(request: ValidateRequest, names: Sequence[str]) -> None:
    """Raise InputError for a name in --calibrate-on or --only that no run has."""
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
    """Return a run made elsewhere (InputError: it is of another schedule than the named one)."""
    specs = request.specs
    if len(specs) > 1:
        raise InputError(
            f"a run is of one schedule, and {len(specs)} are named", "-s 1f1b, or none"
        )
    observed = read_named_run([trace], unit=request.source.unit or "")
    if observed.format == "record":
        raise InputError(
            f"{observed.source} is a record of ppsim validate", f"--from-record {trace}"
        )
    if specs and observed.job is not None:
        from ppsim.real.validation.trace_records import refuse_other

        refuse_other(observed, build_schedule(specs[0], request.shape))
    return observed


def _record_of(request: ValidateRequest, observed: RealRun) -> Record:
    """Return a run made elsewhere as a record; of a job, one replica."""
    from ppsim.inputs.profile.profile import read
    from ppsim.real.validation.trace_records import record_of

    schedule = observed.schedule
    if request.specs:
        schedule = build_schedule(request.specs[0], request.shape)
    profile = read(request.source.profile) if request.source.profile else None
    command = command_line(TypedOptions.from_request(request))
    return record_of(observed.in_milliseconds(), schedule, profile, command)


def _measure(request: ValidateRequest) -> tuple[Record, str]:
    """Run the schedules; return the measurements, and a sentence on failures; empty without any."""
    from ppsim.inputs.profile.profile import read
    from ppsim.real.runs.session import Request as Session
    from ppsim.real.runs.session import measure_session

    if not request.specs:
        raise InputError(
            "no schedule to run",
            "-s 1f1b (repeatable), --from-record FILE or --trace DIR",
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
        raise InputError("--record needs a file, not standard output", "--record run.json.gz")
    if target:
        rehearse(target, plain=True)
    with progress(not (request.face.quiet or request.face.as_json)) as report:
        record, failure = measure_session(schedules, session, report)
    if failure:
        failure += "; the repetitions before it were kept"
    write_error = _write_record(record, target) if target else ""
    return record, "; ".join(filter(None, (failure, write_error)))


def _write_record(record: Record, target: str) -> str:
    """Write the record; return the error as text, because its numbers can still be printed."""
    from ppsim.real.runs.record import dump

    try:
        with open_atomically(target) as out:
            out.write(dump(record, target))
    except InputError as error:
        return str(error)
    note(f"wrote {target}")
    return ""


def _build_schedules(specs: tuple[str, ...], shape: ShapeOptions) -> list[Schedule]:
    """Return the schedules to run, each with a name of its own.

    Raises:
        InputError: a schedule refuses the shape, or they need different numbers of devices.
    """
    schedules = [build_schedule(spec, shape) for spec in specs]
    names = [schedule.name for schedule in schedules]
    # names identify runs, and several files may have one name
    for at, schedule in enumerate(schedules):
        if names.count(schedule.name) > 1:
            number = names[: at + 1].count(schedule.name)
            schedules[at] = replace(schedule, name=f"{schedule.name} {number}")
    if len({schedule.n_devices for schedule in schedules}) > 1:
        sizes = ", ".join(f"{s.name} {s.n_devices}" for s in schedules)
        raise InputError(
            f"schedules that run together need the same number of devices, not {sizes}",
            "give --devices",
        )
    return schedules
