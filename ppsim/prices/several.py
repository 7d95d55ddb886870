"""Time several schedules on the same devices, for commands that compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppsim.ask.groups import OWN, NetworkOptions, ShapeOptions
from ppsim.ask.words import count_text
from ppsim.base.notes import note
from ppsim.base.text import STANDARD_INPUT
from ppsim.errors import InputError, PpsimError, UnknownSchedule
from ppsim.prices.build import (
    build_costs,
    build_schedule,
    check_taken,
    check_used,
    measure_with_bound,
    stages_of,
)
from ppsim.prices.cap import Cap, measure_excess
from ppsim.prices.data_parallel.dealing import deal_load, price_slowest
from ppsim.prices.data_parallel.lengths import DealOptions, LengthOptions, find_load
from ppsim.prices.data_parallel.replicas import LoadedRuns, ReplicaOptions
from ppsim.prices.options import CostOptions, ask_costs
from ppsim.prices.parts.steps import has_period
from ppsim.prices.timing import SIMPLE, time_ops

if TYPE_CHECKING:
    from ppsim.analysis.compare import Row
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule

ONE_REPLICA, NO_LENGTHS, NO_DEALING = ReplicaOptions(), LengthOptions(), DealOptions()


def time_schedule(
    spec: str,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions = SIMPLE,
    cap: Cap | None = None,
    replica_options: ReplicaOptions = ONE_REPLICA,
    lengths: LengthOptions = NO_LENGTHS,
    dealing: DealOptions = NO_DEALING,
) -> Row:
    """Return the row of a schedule: its times, or the reason why it refuses the shape.

    Of several replicas, the slowest is timed.

    Raises:
        UnknownSchedule: there is no such schedule.
        InputError: the cap is in bytes and the bytes of an activation are not known, or the cap is
            for another number of devices.
    """
    from ppsim.analysis.compare import Row

    try:
        schedule = build_schedule(spec, options_taken(spec, shape), costs, network)
        prices = build_costs(schedule, costs, network)
        load = find_load(lengths, schedule, replica_options.count, costs)
        if load and dealing.is_asked:

            def build_with(count: int) -> tuple[Schedule, Costs]:
                other = options_taken(spec, replace(shape, microbatches=count))
                made = build_schedule(spec, other, costs, network, quiet=True)
                return made, build_costs(made, costs, network)

            dealt = deal_load(dealing, build_with, (schedule, prices), load, replica_options)
            schedule, prices, load = dealt.schedule, dealt.costs, dealt.load
        loaded = None
        if load:
            loaded = LoadedRuns(
                schedule, prices, costs, load, replica_options, network, costs.links
            )
        prices = price_slowest(schedule, prices, network, costs, replica_options, load)
        timeline, execution = time_ops(schedule, prices, network, costs.links)
    except UnknownSchedule:
        raise
    except PpsimError as error:
        return Row(spec, refused=error)
    metrics = measure_with_bound(timeline, prices, costs.tokens, detailed=execution is not None)
    excess = measure_excess(loaded or timeline, costs, cap) if cap else None
    return Row(spec, timeline, metrics, execution=execution, excess=excess)


def time_schedules(
    specs: Sequence[str],
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions = SIMPLE,
    cap: Cap | None = None,
    replica_options: ReplicaOptions = ONE_REPLICA,
    lengths: LengthOptions = NO_LENGTHS,
    dealing: DealOptions = NO_DEALING,
) -> list[Row]:
    """Return the row of each schedule on the same devices.

    Raises:
        InputError: all refuse the shape, their numbers of devices differ, or no schedule uses an
            option.
    """
    stated = stages_of(costs, shape.stages, shape.devices)
    if stated:
        shape = replace(shape, stages=stated)
    size, count = shape.stages or shape.devices, shape.microbatches or costs.chunked
    sizes: dict[str, Any] = {**find_sizes(specs, size, count)}
    shape = replace(shape, **sizes)
    check_taken(specs, shape)
    rows = [
        time_schedule(spec, shape, costs, network, cap, replica_options, lengths, dealing)
        for spec in specs
    ]
    schedules = {r.name: r.timeline.schedule for r in rows if r.timeline}
    if not schedules:
        raise _none_applies(rows)
    check_used(schedules.values(), costs)
    devices = {name: schedule.n_devices for name, schedule in schedules.items()}
    if len(set(devices.values())) > 1:
        from ppsim.schedules import reads_ops

        given = f"--stages {shape.stages}" if shape.stages else "what they state"
        given = f"--{ask_costs(costs).stage_option}" if stated else given
        counts = ", ".join(f"{n} for {name}" for name, n in devices.items())
        stated = all(reads_ops(name) for name in devices)
        raise InputError(
            f"schedules are compared on the same devices, and {given} is {counts}",
            "files of as many devices"
            if stated
            else f"--devices {shape.stages or max(devices.values())}",
        )
    _refuse_other_work(schedules)
    return rows


def _none_applies(rows: Sequence[Row]) -> InputError:
    """Return the error that no schedule takes the shape: the reason of each, and what to try for
    the first that names something.
    """
    refusals = {row.name: row.refused for row in rows if row.refused}
    hints = list(dict.fromkeys(error.hint for error in refusals.values() if error.hint))
    reasons = [f"  {row.name}: {row.reason if len(hints) > 1 else row.refused}" for row in rows]
    what = "none of these schedules takes this shape:"
    return InputError("\n".join([what, *reasons]), hints[0] if hints else "")


def _refuse_other_work(schedules: Mapping[str, Schedule]) -> None:
    """Raise InputError for schedules with different numbers of steps or microbatches.

    Schedules that all repeat are allowed, because they are compared by their rates.
    """
    refuse_other_steps(schedules)
    if all(map(has_period, schedules.values())):
        return
    microbatches = {name: schedule.run_microbatches for name, schedule in schedules.items()}
    if len(set(microbatches.values())) > 1:
        counts = ", ".join(f"{n} for {name}" for name, n in microbatches.items())
        raise InputError(
            f"schedules are compared over as many microbatches, and these have {counts}",
            "files of as many microbatches",
        )


def refuse_other_steps(schedules: Mapping[str, Schedule]) -> None:
    """Refuse to compare makespans of other numbers of steps (InputError); schedules that all go
    round are compared by their rates.
    """
    steps = {name: schedule.n_rounds for name, schedule in schedules.items()}
    if len(set(steps.values())) == 1 or all(map(has_period, schedules.values())):
        return
    counts = ", ".join(f"{n} for {name}" for name, n in steps.items())
    raise InputError(
        f"schedules are compared over as many steps, and these have {counts}",
        f"--steps {max(steps.values())}",
    )


def find_sizes(specs: Sequence[str], size: object, microbatches: object) -> dict[str, int]:
    """Return the numbers of devices and of microbatches that are not given: those that the files
    among the schedules state, which a note says; empty where every schedule is a file.

    Raises:
        InputError: no file states what is missing, or files state different numbers.
    """
    from ppsim.schedules import reads_ops, schedule_from

    missing = {"devices": not size, "microbatches": not microbatches}
    files = [spec for spec in specs if reads_ops(spec)]
    if len(files) == len(specs) or not any(missing.values()):
        return {}
    # standard input can be read only once
    made = {spec: schedule_from(spec) for spec in files if spec != STANDARD_INPUT}
    if not made and missing["devices"]:
        raise InputError("the number of devices is missing", "give --devices")
    if not made:
        raise InputError("the number of microbatches is missing", "give --mb")
    stated = {
        spec: {"devices": each.n_devices, "microbatches": each.whole_microbatches}
        for spec, each in made.items()
    }
    taken = [{name: sizes[name] for name in sizes if missing[name]} for sizes in stated.values()]
    if any(sizes != taken[0] for sizes in taken):
        each = "; ".join(f"{spec} has {_sizes_text(stated[spec])}" for spec in stated)
        hint = "give --devices and --mb, or files of one shape"
        raise InputError(f"files state different shapes: {each}", hint)
    state = "state" if len(stated) > 1 else "states"
    note(f"{_sizes_text(taken[0])}, as {' and '.join(stated)} {state}")
    return taken[0]


def _sizes_text(sizes: Mapping[str, int]) -> str:
    """Write numbers of devices and of microbatches."""
    words = {"devices": "device", "microbatches": "microbatch"}
    return " and ".join(count_text(size, words[name]) for name, size in sizes.items())


def options_taken(spec: str, shape: ShapeOptions) -> ShapeOptions:
    """Return the shape without the options that a schedule lacks."""
    from ppsim.schedules import family_of

    family = family_of(spec)
    known = family.options if family else ()
    return replace(shape, **{name: None for name in OWN if name not in known})
