"""Measure op times and messages on this machine."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import click

from ppsim.ask.given import Need, TypedOptions
from ppsim.ask.groups import FaceOptions, iteration_option
from ppsim.ask.options import Request, common, flag, group, option
from ppsim.ask.request import ask
from ppsim.ask.types import COUNT
from ppsim.ask.write import Writers, command_line
from ppsim.base.atomic_file import rehearse
from ppsim.base.notes import progress
from ppsim.base.signals import orderly_end
from ppsim.errors import InputError
from ppsim.inputs.profile.profile import Profile, Workload, write
from ppsim.questions.runs.profile import ShownProfile
from ppsim.questions.runs.workload import (
    MODEL,
    WorkloadOptions,
    explain_module,
    module_option,
    workload,
)
from ppsim.real.calibration.machine import device_for
from ppsim.real.calibration.user_module import find_module

LARGEST = {"cpu": 16 << 20, "cuda": 256 << 20}  # bytes of the largest message by default
# Options of a measurement, without effect on a profile of a real run.
MEASURING = (
    *MODEL,
    "module",
    "dtype",
    "device",
    "repeats",
    "warm_up",
    "max_bytes",
    "sizes",
    "note",
    "real_time",
)


@dataclass(frozen=True)
class ProfileOutput:
    """The file of the profile."""

    output: tuple[str, ...] = common(
        "--output",
        "-o",
        multiple=True,
        required=True,
        metavar="FILE",
        help="The profile to write, TOML; - is stdout.",
    )
    force: bool = flag("--force", "-F", help="Overwrite a file that exists.", common=True)


@explain_module
@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(Request):
    """Measure the times of a transformer stage's ops and of messages on this machine.

    {module}

    \b
      ppsim calibrate -o profile.toml
      ppsim run 1f1b --stages 4 --mb 8 --profile profile.toml
      torchrun --nproc-per-node 8 -m ppsim calibrate -o profile.toml
      ppsim calibrate -o profile.toml --module model.py:stage --stages 4
      ppsim calibrate --from-trace rank0.json rank1.json -o profile.toml
    """

    question: ClassVar[str] = "calibrate"
    place: ClassVar[tuple[str, int]] = ("How accurate it is on your machine", 1)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("iteration",),
            lambda g: bool(g["from_trace"]),
            "{options} chooses iterations of a real run, and needs --from-trace",
            "leave it out",
        ),
        Need(
            ("module",),
            lambda g: bool(g["stages"] or g["from_trace"]),
            "{options} needs the number of stages",
            "add --stages 4",
        ),
        Need(
            ("stages",),
            lambda g: bool(g["module"]),
            "{options} is the number of stages of a module, and needs --module",
            "leave it out",
        ),
        Need(
            MEASURING,
            lambda g: not g["from_trace"],
            "--from-trace measures nothing, so {options} cannot be given too",
            "leave it out",
        ),
        Need(
            ("sizes", "max_bytes"),
            lambda g: not (g["sizes"] and g["max_bytes"]),
            "{options} both set the largest message",
        ),
    )
    output: ProfileOutput = group(ProfileOutput, "Output")
    model: WorkloadOptions = group(
        workload(hidden=512, heads=8, sequence=256, microbatch_size=1, layers=2, vocab=4096),
        "Model",
    )
    dtype: str | None = option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16", "float64"]),
        help="Type of parameters and activations (float32 on a CPU, bfloat16 on a GPU).",
    )
    device: str = common(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        help="The device that computes; auto: a GPU if there is one.",
    )
    repeats: int = common(
        "--repeats", type=COUNT, default=10, help="Measured repetitions of every op."
    )
    warm_up: int = option(
        "--warm-up",
        type=click.IntRange(min=0),
        default=2,
        help="Repetitions before those, not counted.",
    )
    max_bytes: int | None = option(
        "--max-bytes",
        type=click.IntRange(min=1024, max=1 << 30),
        help="Largest message; the smallest is 1 KiB (default: 16 MiB on a CPU, 256 MiB on a GPU).",
    )
    sizes: list[int] | None = option(
        "--sizes", metavar="BYTES", help="All sizes of messages: 1024,65536 or 1024:65536:x4."
    )
    real_time: bool = flag(
        "--real-time", help="Ask the system for real-time priority while messages travel."
    )
    note: str = option(
        "--note", default="", help="A remark for the profile, e.g. on other load of the machine."
    )
    module: str | None = module_option()
    stages: int | None = common("--stages", type=COUNT, help="Stages of --module.")
    from_trace: tuple[str, ...] = common(
        "--from-trace",
        multiple=True,
        type=click.Path(),
        metavar="FILE...",
        help="Derive the profile from a real run instead: a folder, or files such as Kineto "
        "traces, one per rank.",
    )
    more_traces: tuple[str, ...] = option(nargs=-1, type=click.Path(), metavar="")
    iteration: str = iteration_option("all")
    face: FaceOptions = group(FaceOptions, "Output")

    @property
    def traces(self) -> tuple[str, ...]:
        """The files of a real run."""
        return (*self.from_trace, *self.more_traces)

    def check(self) -> None:
        """Raise InputError for -o files that could not be written after the measurement."""
        if self.more_traces and not self.from_trace:
            raise InputError(
                f"unexpected argument '{self.more_traces[0]}'", "traces come after --from-trace"
            )
        for target in self.output.output:
            if target != "-" and os.path.isfile(target) and not self.output.force:
                raise InputError(
                    f"'{target}' exists and is not overwritten", "another name, or --force"
                )
            rehearse(target, plain=True)


def calibrate(**options: Any) -> Calibration | None:
    """Measure the times of a transformer stage's ops and of messages on this machine, in ms.

    ``save("profile.toml")`` of the answer writes them.

    Args:
        options: the options of ``ppsim calibrate`` by name: ``hidden``, ``layers``, ``module``,
            ``from_trace``, ...

    Returns:
        The measurements; None in all processes of torchrun but the first.

    Raises:
        InputError: an option is refused.
        MissingDependency: torch is not installed, or a GPU is asked for and there is none.
    """
    return answer(ask(CalibrateRequest, options))


def answer(request: CalibrateRequest) -> Calibration | None:
    """Measure the costs, or derive them from a real run; None in later processes of torchrun."""
    command = command_line(TypedOptions.from_request(request))
    if request.traces:
        from ppsim.real.traces.profile import profile_from

        profile: Profile | None = profile_from(request.traces, command, request.iteration)
    else:
        profile = _measure(request, command)
    if profile is None:
        return None
    return Calibration(request, profile, next(iter(request.output.output), None))


class Calibration(ShownProfile):
    """Measured costs of ops and messages, to be written as a profile."""

    def writers(self, output: ProfileOutput) -> Writers:
        """Return the writer of each -o: the profile, TOML."""
        return [(target, partial(write, self.profile, target)) for target in output.output]


def _measure(request: CalibrateRequest, command: str) -> Profile | None:
    """Measure the costs on this machine; None in all processes of torchrun but the first."""
    from ppsim.real.calibration.calibrate import CalibrationPlan, calibrate
    from ppsim.real.calibration.links import launched
    from ppsim.real.calibration.p2p import sizes_up_to
    from ppsim.real.calibration.processes import temporary_folder

    device = device_for(request.device)
    dtype = request.dtype or ("bfloat16" if device == "cuda" else "float32")
    transformer = Workload(**asdict(request.model), dtype=dtype)
    plan = CalibrationPlan(
        find_module(request.module) if request.module else transformer,
        device,
        request.repeats,
        request.warm_up,
        tuple(request.sizes or sizes_up_to(request.max_bytes or LARGEST[device])),
        command,
        request.note,
        request.real_time,
        request.stages or 0,
    )
    with orderly_end(), temporary_folder(), progress(launched()[0] == 0) as report:
        return calibrate(plan, report)
