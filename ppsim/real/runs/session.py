"""A session: measure ops and messages alone, then run all schedules for real, into one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.base.priority import real_time_priority
from ppsim.base.signals import orderly_end
from ppsim.core.costs import Costs, costs_for, price_others
from ppsim.core.ops import COMPUTE, TIMED, Kind
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError, MissingDependency, PpsimError
from ppsim.inputs.profile import line_fit
from ppsim.inputs.profile.costs import costs_from
from ppsim.inputs.profile.profile import Message, Profile, Workload
from ppsim.real.calibration.calibrate import check_heads, step_counter
from ppsim.real.calibration.machine import device_for, provenance
from ppsim.real.calibration.processes import check_room, temporary_folder
from ppsim.real.calibration.user_module import UserModule
from ppsim.real.runs import own_runner, partitioned, torch_runner
from ppsim.real.runs.lanes import lower_lanes, refuse_streams
from ppsim.real.runs.record import Measured, Record
from ppsim.real.runs.record_file import Link
from ppsim.real.runs.turns import RunPlan, Settings
from ppsim.version import INSTALL_TORCH

Progress = Callable[[float, str], None]
OPS_SHARE, LINK_SHARE = 0.15, 0.1  # shares of the progress bar for ops and for messages
REST_S = 0.02  # seconds left to other programs between measured ops
COPIES_TIMED = 11
LEFT = 0.1  # share of an op's time below which the host issued it late
TIMED_OTHERS = tuple(kind for kind in TIMED if kind not in COMPUTE and not kind.info.side)
RUNNERS = {
    "own": own_runner.run_all,
    "torch": torch_runner.run_all,
    "partitioned": partitioned.run_all,
}


@dataclass(frozen=True)
class Request:
    """Options of ``ppsim validate`` by name; times in ms, sizes in bytes.

    A profile supplies the model, and the costs of ops and messages, which are measured without it.
    """

    ops: str = "compute"
    runner: str = "own"
    device: str = "auto"
    tf: float = 5.0
    ti: float = 5.0
    tw: float = 5.0
    t_other: float = 1.0
    message: int = 65536
    hidden: int = 256
    heads: int = 4
    sequence: int = 64
    microbatch_size: int = 4
    layers: int = 2
    vocab: int = 1000
    repeats: int = 7
    warm_up: int = 2
    real_time: bool = False
    command: str = ""
    profile: Profile | None = None
    module: UserModule | None = None

    @property
    def model(self) -> Workload:
        """The transformer whose stages compute, if there is no ``module``; the profile's if any."""
        if self.profile and self.profile.model:
            return self.profile.model
        dtype = "bfloat16" if self.device == "cuda" else "float32"
        return Workload(
            self.hidden,
            self.heads,
            self.sequence,
            self.microbatch_size,
            self.layers,
            dtype,
            self.vocab,
        )


def measure_session(
    schedules: Sequence[Schedule], request: Request, report: Progress
) -> tuple[Record, str]:
    """Measure ops and messages alone, then run all schedules in turn.

    Returns:
        The record, and the reason why it has fewer repetitions than requested, or ''.

    Raises:
        MissingDependency: torch is not installed.
        PpsimError: a process died, hung or failed before one repetition was complete.
    """
    _check(schedules, request)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency("running schedules for real needs torch", INSTALL_TORCH) from error
    lanes = request.runner == "own" and any(schedule.has_lanes for schedule in schedules)
    # a runner with a GPU per device has no streams for copies
    needs_cpu = request.device == "auto" and lanes
    device = "cpu" if needs_cpu else device_of(request, schedules[0].n_devices)
    request = replace(request, device=device)
    with orderly_end(), temporary_folder():
        return _measure(schedules, request, report)


def device_of(request: Request, devices: int) -> str:
    """Return where stages compute, cpu or cuda; ``auto`` is cuda if there is a GPU per device.

    Raises:
        InputError: there are fewer GPUs than devices.
        MissingDependency: a GPU is requested and none can be used.
    """
    import torch

    if request.ops == "timed":
        return "cpu"
    if request.runner == "partitioned":
        try:
            return device_for("cuda")
        except MissingDependency as error:
            raise MissingDependency(
                str(error), "--runner own, or run where nvidia-smi shows a GPU"
            ) from error
    if request.device == "cuda":
        device_for("cuda")
        if torch.cuda.device_count() < devices:
            raise InputError(
                f"{devices} devices need a GPU each, and there are {torch.cuda.device_count()}",
                "--runner partitioned to run them on parts of one GPU, or --device cpu",
            )
        return "cuda"
    found = device_for(request.device)
    return found if found == "cpu" or torch.cuda.device_count() >= devices else "cpu"


def _check(schedules: Sequence[Schedule], request: Request) -> None:
    """Refuse requests that cannot run, before anything is measured (InputError)."""
    computing = request.ops == "compute"
    _check_runner(request, schedules[0].n_devices)
    if request.module:
        _check_module(request)
    elif computing and request.profile and not request.profile.model:
        raise InputError(
            "a profile made from traces has no model to compute",
            "--trace DIR compares with that run",
        )
    if request.runner == "torch":
        message_bytes = request.message if request.ops == "timed" else torch_runner.FLOAT_BYTES
        torch_runner.check(schedules, message_bytes)
    if computing and not request.module:
        check_heads(request.model)
    for schedule in schedules:
        _check_schedule(schedule, request)


def _check_runner(request: Request, devices: int) -> None:
    """Refuse a runner with ops, a device or a profile that it cannot use (InputError)."""
    computing = request.ops == "compute"
    partitioned_gpu = request.runner == "partitioned"
    if not partitioned_gpu:
        check_room(devices)
    if partitioned_gpu and (not computing or request.device == "cpu"):
        problem = "--device cpu excludes it" if computing else "--ops timed computes nothing"
        raise InputError(
            f"--runner partitioned computes on parts of a GPU, and {problem}",
            "leave one of them out",
        )
    if not computing and request.device == "cuda":
        raise InputError("--ops timed only sleeps and uses no GPU", "leave out --device cuda")
    if partitioned_gpu and request.profile:
        raise InputError(
            "a profile's ops had the whole GPU, and --runner partitioned gives each device a part",
            "leave out --profile: ops are measured on a part first",
        )


def _check_schedule(schedule: Schedule, request: Request) -> None:
    """Refuse a schedule that the request's runner or model cannot run (InputError)."""
    computing = request.ops == "compute"
    if schedule.recomputed.any():
        raise InputError(
            f"{schedule.name} has ops that recompute (R), which no runner can run",
            "leave them out",
        )
    if schedule.n_slices > 1:
        raise InputError(
            f"{schedule.name} runs slices of sequences, which no runner can run: they attend "
            f"to each other",
            "a schedule of whole microbatches",
        )
    on_cpu = request.runner == "own" and request.device != "cuda"
    has_streams = (on_cpu or request.runner == "partitioned") and not request.module
    refuse_streams(schedule, timed=not computing, streams=has_streams)
    if not computing:
        _costs(schedule, request, None)
    layers = request.model.layers
    if computing and not request.module and layers * schedule.n_devices % schedule.n_stages:
        chunks = schedule.n_chunks
        raise InputError(
            f"{schedule.name} has {chunks} stages per device, which cannot share "
            f"{layers} layers evenly",
            f"--layers {-(-layers // chunks) * chunks}",
        )


def _check_module(request: Request) -> None:
    """Refuse options that exclude the user's stages (InputError)."""
    if request.runner == "partitioned":
        raise InputError(
            "--runner partitioned measures a transformer's stages, not those of --module",
            "--runner own",
        )
    if request.profile and not request.profile.stage:
        raise InputError(
            "the profile is not of a module's stages",
            "ppsim calibrate --module, or leave out --profile",
        )


def _measure(
    schedules: Sequence[Schedule], request: Request, report: Progress
) -> tuple[Record, str]:
    """Return the result of :func:`measure_session` for a checked request."""
    computing = request.ops == "compute"
    origin = provenance(request.device, request.command)
    profiles, link, emulation = _measure_alone(request, schedules, report)
    size = _message_bytes(request, profiles)
    lowered = torch_runner.lower_as_torch if request.runner == "torch" else lower_lanes
    plans = [
        RunPlan(
            schedule.name,
            lowered(schedule),
            _costs(schedule, request, profiles.get(schedule.n_stages)),
        )
        for schedule in schedules
    ]
    settings = Settings(
        repeats=request.repeats,
        warm_up=request.warm_up,
        message_bytes=size,
        real_time=request.real_time,
        model=(request.module or request.model) if computing else None,
        device=request.device,
    )
    begun = OPS_SHARE * computing + LINK_SHARE
    tick = step_counter(
        report, begun, 1 - begun, (settings.repeats + settings.warm_up) * len(plans)
    )
    runs, failure = RUNNERS[request.runner](plans, settings, tick)
    runs, dropped = drop_launch_bound(runs)
    recorded = {
        "ops": request.ops,
        "runner": request.runner,
        "device": request.device,
        "real_time": request.real_time,
        "message_bytes": size,
        "link": asdict(link),
        "cores": origin.cores if request.device == "cpu" else 0,
        "costs": "the profile" if request.profile else "measured alone",
        **({"module": str(request.module)} if request.module else {}),
        **emulation,
    }
    if request.device == "cuda":
        recorded |= {
            "issued_share": {run.name: issued_share(run) for run in runs},
            "launch_bound": dropped,
        }
    return Record(tuple(runs), recorded, asdict(origin)), failure


def launch_bound(run: Measured) -> NDArray[np.bool_]:
    """Return whether a repetition was launch-bound, shape (repetitions,).

    It was if the host issued the last op only at the end, or if ops issued late make up more than a
    tenth of the time of ops. An op was issued late if less than a tenth of its time was left.
    """
    if run.issued is None:
        return np.zeros(len(run.makespans), bool)
    compute = run.lowered.compute_ops
    worked = (run.end - run.start)[:, compute]
    is_late = (run.end - run.issued)[:, compute] < LEFT * worked
    share = np.where(is_late, worked, 0.0).sum(axis=1) / np.maximum(worked.sum(axis=1), 1e-9)
    bound: NDArray[np.bool_] = (share > LEFT) | (run.issued.max(axis=1) >= run.makespans)
    return bound


def issued_share(run: Measured) -> float:
    """Return the median share of the makespan after which the host had issued all ops."""
    return 0.0 if run.issued is None else float(np.median(run.issued.max(axis=1) / run.makespans))


def drop_launch_bound(runs: Sequence[Measured]) -> tuple[list[Measured], dict[str, int]]:
    """Return the runs without launch-bound repetitions, and the number dropped by schedule.

    Raises:
        PpsimError: all repetitions of a schedule are launch-bound.
    """
    kept, dropped = [], {}
    for run in runs:
        bound = launch_bound(run)
        if bound.all():
            raise PpsimError(
                f"{run.name} is launch-bound: the host needed {issued_share(run):.0%} of the "
                f"makespan of "
                f"{np.median(run.makespans):.1f} ms to issue the ops, so the GPU waited for it",
                "ops of 5 ms or more, such as --hidden 4096 --heads 32 --seq 2048",
            )
        if bound.any():
            dropped[run.name] = int(bound.sum())
            run = run.repetitions(np.flatnonzero(~bound).tolist())
        kept.append(run)
    return kept, dropped


def _measure_alone(
    request: Request, schedules: Sequence[Schedule], report: Progress
) -> tuple[dict[int, Profile], Link, dict[str, object]]:
    """Measure ops and a message without contention.

    Returns:
        A profile for each number of stages, the link, and the settings of an emulation for the
            record.
    """
    stages = sorted({schedule.n_stages for schedule in schedules})
    if request.profile:
        size = _message_bytes(request, {0: request.profile})
        return dict.fromkeys(stages, request.profile), link_of(request.profile.message, size), {}
    if request.runner == "partitioned":
        size = request.model.message_bytes
        alone = partitioned.measure_alone(
            request.model,
            schedules[0].n_devices,
            request.device,
            _message_sizes(size),
            lambda step: report(OPS_SHARE, step),
        )
        profile = Profile(
            provenance(request.device, request.command), request.model, alone.busy_ops
        )
        emulation = {
            "emulation": partitioned.LABEL,
            "partition_sms": alone.sms,
            "interference": alone.interference,
        }
        return dict.fromkeys(stages, profile), link_of(alone.messages, size), emulation
    profiles = _measure_ops(request, stages, report) if request.ops == "compute" else {}
    return profiles, _measure_link(_message_bytes(request, profiles), request, report), {}


def _message_bytes(request: Request, profiles: Mapping[int, Profile]) -> int:
    """Return the bytes of a message; the largest of a user's stages."""
    if request.ops == "timed":
        return request.message
    if not request.module:
        return request.model.message_bytes
    return max((profile.message_bytes or 1 for profile in profiles.values()), default=1)


def _message_sizes(size: int) -> list[int]:
    """Return the sizes to measure for a line around ``size`` bytes."""
    return sorted({1024, max(size // 4, 1), size, 2 * size})


def _measure_ops(request: Request, stages: Sequence[int], report: Progress) -> dict[int, Profile]:
    """Return a profile of ops alone for each number of stages."""
    from ppsim.real.calibration.ops import measure_ops, rounds
    from ppsim.real.calibration.user_ops import measure_stages

    model, repeats, warm_up = request.model, 5, 1
    total = (repeats + warm_up) * sum(stages) if request.module else rounds(model, repeats, warm_up)
    report_step = step_counter(report, 0.0, OPS_SHARE, total)

    def tick(step: str) -> None:
        pace(False)  # leave time to other programs
        report_step(step)
        time.sleep(REST_S)
        pace(True)

    origin, profiles = provenance(request.device, request.command), dict[int, Profile]()
    with real_time_priority(request.real_time) as pace:
        pace(True)
        if request.module:
            for count in stages:
                times, sizes = measure_stages(
                    request.module,
                    count,
                    request.device,
                    repeats=repeats,
                    warm_up=warm_up,
                    tick=tick,
                    together=False,
                )
                profiles[count] = Profile(origin, op=tuple(times), stage=tuple(sizes))
        else:
            ops = measure_ops(model, request.device, repeats=repeats, warm_up=warm_up, tick=tick)
            profiles = dict.fromkeys(stages, Profile(origin, model, tuple(ops)))
    if request.device == "cuda":
        import torch

        torch.cuda.empty_cache()  # the first process computes on the same GPU
    return profiles


def _measure_link(size: int, request: Request, report: Progress) -> Link:
    """Return the link's latency and bandwidth near ``size`` bytes, and a late receive's cost."""
    from ppsim.real.calibration.links import measure_links

    def tick(step: str) -> None:
        report(OPS_SHARE, step)

    rows = measure_links(
        request.device,
        _message_sizes(size),
        repeats=20,
        warm_up=3,
        tick=tick,
        real_time=request.real_time,
    )
    return link_of(rows, size)


def link_of(messages: Sequence[Message], size: int) -> Link:
    """Return the link fitted to the 10th percentiles of messages' times.

    The 10th percentiles show the link; the medians would include delays by the scheduler. A late
    receive costs a handshake, at most the time of another message; more is due to the scheduler.
    """
    best = {(row.pattern, row.bytes): row.p10_ms for row in messages}
    pattern = "early" if any(row.pattern == "early" for row in messages) else "ping-pong"
    rows = [
        (row.bytes, row.p10_ms) for row in messages if row.pattern == pattern and row.p10_ms > 0
    ]
    if not rows:
        return Link()
    line = line_fit.fit_line(*zip(*rows, strict=True))
    late = best.get(("late", size), 0.0) - best.get(("early", size), 0.0)
    return Link(line.alpha, line.slope, min(max(late, 0.0), line.time_at(size)))


def _costs(schedule: Schedule, request: Request, profile: Profile | None) -> Costs:
    """Return the intended costs of a schedule's ops in ms: sleeping times, or a profile's times."""
    if profile is None or request.ops == "timed":
        others = dict.fromkeys(TIMED_OTHERS, request.t_other)
        return costs_for(
            schedule, tf=request.tf, ti=request.ti, tw=request.tw, unit="ms", others=others
        )
    costs = costs_from(profile, schedule)
    costs = replace(costs, comm=0.0, pair=costs.pair if request.module else None)
    if not schedule.has_lanes:
        return costs
    out, back = host_copies(request.model.message_bytes, request.device)
    copies = {Kind.OFFLOAD: out, Kind.RELOAD: back}
    return replace(costs, others=price_others(schedule, copies, "stage"))


def host_copies(size: int, device: str) -> tuple[float, float]:
    """Return the median ms of a copy of ``size`` bytes to the host, and of one back.

    A CPU copies within its memory; a GPU copies to and from pinned memory of the host.
    """
    import torch

    source = torch.zeros(size, dtype=torch.uint8, device=device)
    on_host = torch.zeros(size, dtype=torch.uint8, pin_memory=device == "cuda")

    def median(copy: Callable[[], object]) -> float:
        samples = []
        for _ in range(COPIES_TIMED):
            begin = time.perf_counter()
            copy()
            samples.append(time.perf_counter() - begin)
        return sorted(samples)[len(samples) // 2] * 1e3

    return median(lambda: on_host.copy_(source)), median(lambda: source.copy_(on_host))
