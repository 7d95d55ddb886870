"""Dealing the sequences of --lengths again, and packing them under a limit of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ppsim.ask.blocks import Block, Line
from ppsim.base.notes import long_work
from ppsim.base.numbers import format_change, format_number, format_share
from ppsim.errors import InputError
from ppsim.prices.data_parallel.lengths import DealOptions, Load, load_map
from ppsim.prices.data_parallel.replicas import (
    AFTER_ONE_STEP,
    ReplicaOptions,
    StepEnds,
    costs_of_slowest,
    find_replicas,
    time_each,
)
from ppsim.prices.timing import refuse_rounds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.analysis.mending import Mending
    from ppsim.analysis.slowdown import Slowdown
    from ppsim.ask.groups import NetworkOptions
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.sequences import Sequences
    from ppsim.prices.options import CostOptions
    from ppsim.search.dealing.deal import Dealt
    from ppsim.search.dealing.problem import Pipeline
    from ppsim.show.drawing.load_map import LoadMap

MOST = 1 << 18  # sequences that are dealt
PAGE = 9.0  # inches of a figure in a page
TRIED = 6  # numbers of microbatches that packing tries
REFUSED = 16  # numbers that a schedule may refuse, one after the other
# the schedule of so many microbatches, and its costs
Build = Callable[[int], "tuple[Schedule, Costs]"]


@dataclass(frozen=True)
class DealtLoad:
    """Sequences dealt again.

    Attributes:
        schedule: with as many microbatches as the sequences are dealt to.
        costs: of mean microbatches, as they were before.
        load: the times of microbatches now.
        given_load: their times before.
        given_ends: shape (R,), the end of each replica's pipeline then.
        dealing: the best dealing found.
        steps_by_count: the step of every number of microbatches that packing tried.
    """

    schedule: Schedule
    costs: Costs
    load: Load
    given_load: Load
    given_ends: NDArray[np.float64]
    dealing: Dealt
    steps_by_count: dict[int, float]

    @property
    def given_step(self) -> float:
        """The step of the sequences as given."""
        return float(self.given_ends.max())

    def maps(self, unit: str) -> tuple[LoadMap, ...]:
        """The load as given and as dealt, for a picture."""
        given = load_map("as given", self.given_load, self.given_ends, unit)
        return given, load_map("dealt again", self.load, self.dealing.makespans, unit)

    @property
    def gap(self) -> float:
        """The distance of the bound below the step, as a share of the step."""
        return 1 - self.dealing.bound / self.dealing.step if self.dealing.step else 0.0

    def lines(self, unit: str) -> Iterator[Block]:
        """The steps before and after dealing, and the bound."""
        found, M = self.dealing, self.schedule.whole_microbatches
        change = format_change(found.step / self.given_step - 1) if self.given_step else "-"
        times = f"{format_number(self.given_step)} to {format_number(found.step)} {unit}"
        bound = (
            f"no dealing takes less than {format_number(found.bound)} "
            f"({format_share(self.gap)} below)"
        )
        packed = f" in {M} microbatches" if self.steps_by_count else ""
        yield Line(
            f"dealt      {times}{packed}, {change}; {bound}; "
            f"{found.simulated:,} pipelines simulated",
            11,
        )
        if len(self.steps_by_count) > 1:
            each = (
                f"{count}: {format_number(step)}" for count, step in self.steps_by_count.items()
            )
            yield Line(f"packed     step by microbatches: {', '.join(each)}", 11)
        if bare := self.load.empty_microbatches(M):
            yield Line(f"empty      {bare}", 11)

    def deal_object(self) -> dict[str, Any]:
        """Return the object of JSON: the step before and after, and its bound."""
        packed = {
            "steps_by_microbatches": {
                str(count): step for count, step in self.steps_by_count.items()
            }
        }
        return {
            "before": self.given_step,
            "step": self.dealing.step,
            "bound": self.dealing.bound,
            "tried": self.dealing.simulated,
            **(packed if self.steps_by_count else {}),
        }


def deal_load(
    options: DealOptions,
    build: Build,
    given: tuple[Schedule, Costs],
    load: Load,
    replica_options: ReplicaOptions,
) -> DealtLoad:
    """Deal the sequences of a load again.

    Args:
        options: how.
        build: makes the schedule of another number of microbatches, and its costs.
        given: the schedule of the load, and its costs.
        load: the times of microbatches as given.
        replica_options: the replicas, and which are slower.

    Raises:
        InputError: a sequence has more tokens than a microbatch may, or the schedule cannot be
            timed so.
    """
    if len(load.sequences) > MOST:
        raise InputError(
            f"{len(load.sequences):,} sequences, at most {MOST:,} are dealt", "leave out --deal"
        )
    schedule, costs = given
    pipeline = pipeline_of(schedule, costs, load, replica_options)
    ends = _ends(pipeline, load)
    with long_work("dealing sequences"):
        if options.max_tokens is None:
            found = _search(
                options, pipeline, load.sequences, schedule.whole_microbatches, options.deal_for
            )
            return DealtLoad(
                schedule, costs, _dealt_load(load, found, schedule), load, ends, found, {}
            )
        return _pack(options, build, given, load, replica_options, ends)


def pipeline_of(
    schedule: Schedule, costs: Costs, load: Load, replica_options: ReplicaOptions
) -> Pipeline:
    """Make the pipeline that times a load (InputError: as :func:`make_pipeline`)."""
    from ppsim.search.dealing.problem import make_pipeline

    slow = (
        replica_options.replicas.factors(schedule.n_devices) if replica_options.replicas else None
    )
    by_stage = load.factors.shape[1] > 1
    return make_pipeline(schedule, costs, load.n_replicas, slow, by_stage=by_stage)


def can_be_dealt(schedule: Schedule, costs: Costs, load: Load) -> bool:
    """Return True if a pipeline can time the replicas of a load together: no collectives, streams
    or times of single ops.
    """
    return load.collectives is None and not schedule.has_lanes and costs.op_times is None


def find_slowest(
    schedule: Schedule,
    costs: Costs,
    load: Load,
    replica_options: ReplicaOptions,
) -> int | None:
    """Find the replica that ends last; None where its ops must be timed one replica at a time.

    That is so where a collective runs in parallel with an op, ops run on several streams, or a
    function gives the durations.
    """
    if not can_be_dealt(schedule, costs, load):
        return None
    pipeline = pipeline_of(schedule, costs, load, replica_options)
    return int(_ends(pipeline, load).argmax())


def price_slowest(
    schedule: Schedule,
    prices: Costs,
    network: NetworkOptions,
    costs: CostOptions,
    replica_options: ReplicaOptions,
    load: Load | None = None,
) -> Costs:
    """Return the costs of the replica that ends last; ``prices`` where there is one alone."""
    replicas = find_replicas(replica_options, load)
    if replicas is None:
        return prices
    refuse_rounds(schedule, AFTER_ONE_STEP)
    if load and not network.detailed:
        found = find_slowest(schedule, prices, load, replica_options)
        if found is not None:
            return costs_of_slowest(schedule, prices, costs, replica_options, load, found)
    slowest = 0
    if load or len({*replicas.first_alike(schedule.n_devices, costs)}) > 1:
        ends = time_each(replicas, schedule, prices, network, costs, load)
        slowest = int(ends.max(axis=1).argmax())
    return costs_of_slowest(schedule, prices, costs, replica_options, load, slowest)


def _ends(pipeline: Pipeline, load: Load) -> NDArray[np.float64]:
    import numpy as np

    return pipeline.makespans(load.factors.transpose(0, 2, 1), np.arange(load.n_replicas))


def _search(
    options: DealOptions,
    pipeline: Pipeline,
    sequences: Sequences,
    microbatches: int,
    seconds: float,
) -> Dealt:
    """Search a dealing over the microbatches that the sequences are in."""
    from ppsim.search.dealing.deal import deal
    from ppsim.search.dealing.problem import Problem

    most = float("inf") if options.max_tokens is None else float(options.max_tokens)
    problem = Problem(
        pipeline,
        sequences.time,
        sequences.replica,
        sequences.microbatch,
        sequences.counts,
        microbatches,
        padded=sequences.padded,
        across=options.across,
        tokens=sequences.length.max(axis=1) if options.max_tokens is not None else None,
        most=most,
    )
    return deal(problem, seconds)


def _dealt_load(load: Load, found: Dealt, schedule: Schedule) -> Load:
    """Return the load with the sequences as dealt by the search."""
    sequences = load.sequences.moved(found.replica, found.microbatch, load.sequences.counts)
    return Load(sequences, sequences.factors(schedule.whole_microbatches))


def _pack(
    options: DealOptions,
    build: Build,
    given: tuple[Schedule, Costs],
    load: Load,
    replica_options: ReplicaOptions,
    ends: NDArray[np.float64],
) -> DealtLoad:
    """Try some numbers of microbatches, from the fewest that hold the tokens up to those given."""
    if not load.sequences.in_tokens:
        raise InputError("--max-tokens is of tokens, and the file has factors", "leave it out")
    from ppsim.search.dealing.deal import refuse_long_sequences

    most = float(options.max_tokens or 0)
    refuse_long_sequences(load.sequences.length.max(axis=1), most)
    M = given[0].whole_microbatches
    made: dict[int, tuple[Schedule, Costs]] = {}
    least = _least_microbatches(load.sequences, most, across=options.across)
    for count in _numbers(least, M):
        if count == M:
            made[M] = given
        elif accepted := _accepted_schedule(build, count, most=M if count < M else None):
            made.setdefault(accepted[0].whole_microbatches, accepted)
        if len(made) == TRIED:
            break
    best, tried, refusal = None, dict[int, float](), None
    for count, (schedule, costs) in sorted(made.items()):
        pipeline = pipeline_of(schedule, costs, load, replica_options)
        sequences = load.sequences if count == M else _sequences_in_order(load.sequences, count)
        try:
            found = _search(options, pipeline, sequences, count, options.deal_for / len(made))
        except InputError as error:
            refusal = error
            continue
        tried[count] = found.step
        if best is None or found.step < best.dealing.step:
            moved = _dealt_load(Load(sequences, load.factors), found, schedule)
            best = DealtLoad(schedule, costs, moved, load, ends, found, tried)
    if best is None:
        raise refusal or InputError(
            f"the schedule takes none of {least} to {M} microbatches", "another --mb"
        )
    return best


def _least_microbatches(sequences: Sequences, most: float, *, across: bool) -> int:
    """Count the microbatches that hold the tokens of the replica with most, or of all, at least."""
    import numpy as np

    tokens = sequences.length.max(axis=1)
    if across:
        return max(1, int(np.ceil(tokens.sum() / most / sequences.n_replicas)))
    held = np.bincount(sequences.replica, tokens, sequences.n_replicas)
    return max(1, int(np.ceil(held.max() / most)))


def _numbers(least: int, given: int) -> list[int]:
    """List the numbers of microbatches to try: up to the one given, or from the least where that is
    more.
    """
    if least >= given:
        return list(range(least, least + 2 * TRIED))
    between = [least + (given - least) * part // (TRIED - 2) for part in range(TRIED - 1)]
    return list(dict.fromkeys([given, least, least + 1, *between]))


def _accepted_schedule(build: Build, count: int, most: int | None) -> tuple[Schedule, Costs] | None:
    """Make the schedule of so many microbatches, or of the next number that it takes; None for
    none.
    """
    for each in range(count, count + REFUSED if most is None else min(count + REFUSED, most)):
        try:
            return build(each)
        except InputError:
            continue
    return None


def _sequences_in_order(sequences: Sequences, microbatches: int) -> Sequences:
    """Return the sequences of each replica spread over so many ``microbatches``, one after the
    other.
    """
    import numpy as np

    order = np.argsort(sequences.replica, kind="stable")
    number = np.bincount(sequences.replica, minlength=sequences.n_replicas)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(number) - number, number)
    return sequences.moved(
        sequences.replica, rank % microbatches, np.full(sequences.n_replicas, microbatches)
    )


@dataclass(frozen=True)
class DealtJob:
    """Recorded microbatches dealt again, step by step.

    Attributes:
        across: whether microbatches may go to other replicas.
        recorded_step: the mean step as recorded.
        given_step: the mean step as simulated with the times recorded, without what hosts wait.
        dealt_step: the mean step of the dealings found.
        bound: a mean step that no dealing beats.
    """

    across: bool
    recorded_step: float
    given_step: float
    dealt_step: float
    bound: float

    @property
    def as_mending(self) -> Mending:
        """The dealing as a change that mends a job."""
        from ppsim.analysis.mending import Mending

        where = "among replicas" if self.across else "within replicas"
        return Mending(f"microbatches dealt again {where}, searched", self.dealt_step)

    def line(self, unit: str) -> str:
        """The steps before and after dealing, and the recorded one, as a line."""
        change = format_change(self.dealt_step / self.given_step - 1) if self.given_step else "-"
        times = (
            f"{format_number(self.given_step)} to {format_number(self.dealt_step)} {unit}, {change}"
        )
        bound = f"no dealing takes less than {format_number(self.bound)}"
        return (
            f"dealt      {times} (simulated; recorded {format_number(self.recorded_step)}); {bound}"
        )

    def deal_object(self) -> dict[str, Any]:
        """Return the object of JSON."""
        return {
            "recorded": self.recorded_step,
            "before": self.given_step,
            "step": self.dealt_step,
            "bound": self.bound,
        }


def deal_job(options: DealOptions, slowdown: Slowdown) -> DealtJob:
    """Deal the microbatches of a recorded job again in each of its steps.

    A microbatch takes its times with it; messages and collectives take the times of their place.

    Raises:
        InputError: the job's ops are pairs or slices, or --max-tokens, as no file of ops has
            tokens.
    """
    import numpy as np

    from ppsim.core.lanes import refuse_lanes
    from ppsim.core.sequences import LinearTimes
    from ppsim.engine.simple.batch import find_order
    from ppsim.search.dealing.deal import deal
    from ppsim.search.dealing.problem import Pipeline, Problem

    job, ops = slowdown.job, slowdown.measured.ops
    schedule, M = job.schedule, job.schedule.n_microbatches
    if options.max_tokens is not None:
        raise InputError("--max-tokens is of tokens, and a table of ops has none", "--deal alone")
    refuse_lanes(schedule, "dealing")
    places = np.lexsort((schedule.microbatch, schedule.stage, schedule.kind))
    if len(schedule.second_of_pairs) or schedule.n_slices > 1 or len(places) % M:
        what = "a job is dealt again where each op is of one whole microbatch"
        raise InputError(what, "leave out --deal")
    table = places.reshape(-1, M)  # the ops of one kind and stage in a row
    row = np.empty(len(schedule), np.int64)
    row[table] = np.arange(table.size).reshape(table.shape)
    zero, one = np.zeros(len(schedule)), np.ones(len(schedule))
    times, order = LinearTimes(zero, one, zero, row, row), find_order(schedule)
    K, R = ops.shape[:2]
    replica, microbatch = np.divmod(np.arange(R * M), M)
    slow, counts = np.ones((R, schedule.n_devices)), np.full(R, M)
    moved, bounds = ops.copy(), np.zeros(K)
    with long_work("dealing microbatches"):
        for step in range(K):
            own = ops[step][:, table].transpose(0, 2, 1).reshape(R * M, -1)
            pipeline = Pipeline(schedule, order, times, slowdown.measured.transfer[step], slow)
            problem = Problem(pipeline, own, replica, microbatch, counts, M, across=options.across)
            found = deal(problem, options.deal_for / K)
            bounds[step] = found.bound
            for sequence, (r, m) in enumerate(
                zip(found.replica.tolist(), found.microbatch.tolist(), strict=True)
            ):
                moved[step, r, table[:, m]] = own[sequence]
    after = slowdown.step(replace(slowdown.measured, ops=moved))
    # a step is kept where its collectives undo what pipelines gain
    best = np.minimum(after, slowdown.steps)
    before = float(slowdown.steps.mean())
    return DealtJob(
        options.across, float(job.steps.mean()), before, float(best.mean()), float(bounds.mean())
    )


def assignment_rows(sequences: Sequences) -> list[dict[str, Any]]:
    """Return the rows of an assignment: whose each sequence is, and its place there."""
    import numpy as np

    order = np.lexsort((np.arange(len(sequences)), sequences.microbatch, sequences.replica))
    slot = (
        sequences.replica[order] * (int(sequences.microbatch.max()) + 1)
        + sequences.microbatch[order]
    )
    first = np.searchsorted(slot, slot)
    position = np.arange(len(slot)) - first
    name = "tokens" if sequences.in_tokens else "factor"
    rows = list[dict[str, Any]]()
    for at, place in zip(order.tolist(), position.tolist(), strict=True):
        base = {
            "replica": int(sequences.replica[at]),
            "microbatch": int(sequences.microbatch[at]),
            "position": place,
            "sequence": int(sequences.names[at]),
        }
        own = sequences.length[at].tolist()
        if len(own) == 1:
            rows.append(base | {name: _plain(own[0])})
        else:
            rows += [
                base | {"stage": stage, name: _plain(value)} for stage, value in enumerate(own)
            ]
    return rows


def _plain(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def assignment_object(sequences: Sequences) -> dict[str, list[Any]]:
    """Return the object of JSON of an assignment, by columns."""
    rows = assignment_rows(sequences)
    return {name: [row[name] for row in rows] for name in rows[0]}


def save_assignment(sequences: Sequences, inputs: dict[str, Any], target: str) -> None:
    """Write an assignment as CSV."""
    from ppsim.base.tables import save_table

    save_table(assignment_rows(sequences), target, ".csv", inputs)


def describe_lengths(replicas: StepEnds) -> str:
    """Return a note on the share of the step that is due to unequal lengths."""
    causes = replicas.causes
    lost = causes["length between replicas"] + causes["length within replicas"]
    if lost <= 0.001 * replicas.time:
        return "unequal lengths cost next to nothing"
    return f"unequal lengths are {format_share(lost / replicas.time)} of the step"


def maps_of(load: Load, replicas: StepEnds, dealt: DealtLoad | None) -> tuple[LoadMap, ...]:
    """Return the maps of a load, and of the load before it was dealt again."""
    if dealt:
        return dealt.maps(replicas.unit)
    return (load_map("microbatches", load, replicas.ends.max(axis=1), replicas.unit),)


def loads_section(load: Load, replicas: StepEnds, dealt: DealtLoad | None) -> str:
    """Return the section of a page on replicas and their loads."""
    from ppsim.show.files.workers import lines_of_page, loads_svg

    blocks = [*replicas.lines(), *(dealt.lines(replicas.unit) if dealt else ())]
    lines = [str(block.parts) for block in blocks if isinstance(block, Line)]
    return lines_of_page(lines) + loads_svg(maps_of(load, replicas, dealt), PAGE)
