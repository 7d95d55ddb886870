"""Say why devices are idle, what decides the time, what would help."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NoReturn

import click

from ppsim.cli._build import build
from ppsim.cli._fit import Part, echo_wrapped
from ppsim.cli._given import COSTS, DETAILED, LAYER_TIMES, SHAPE, UNEVEN, Given
from ppsim.cli._network import time_ops
from ppsim.cli._options import (
    CostOptions,
    FigureOptions,
    NetworkOptions,
    ShapeOptions,
    cost_options,
    figure_options,
    json_option,
    make_command,
    network_options,
    one_schedule,
    quiet_option,
    shape_options,
)
from ppsim.cli._stated import Stated, iteration_option, read_stated
from ppsim.cli._whatif import Base, change_run, try_rivals
from ppsim.cli._write import command_line, find_targets, inputs_of, make_documents, write_around
from ppsim.errors import InputError
from ppsim.version import VERSION

if TYPE_CHECKING:
    from ppsim.analysis.explain import Explanation, WhatIf
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution


CAUSE_INDENT = 22  # where the words of a row of causes begin


@make_command("explain")
@one_schedule
@click.option(
    "--trace",
    metavar="DIR|FILE",
    help="Explain a real run as it was measured: a folder or file of Primus' pp_rank_N.json, Kineto traces, or a "
    "record; -s chooses a run of a record of several.",
)
@iteration_option("median")
@shape_options
@cost_options
@network_options
@click.option(
    "--what-if",
    "changes",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Simulate a change; repeatable. mb=16 · schedule=zb-1p · tf.2=0.9 (forward of stage 2), tf.2=x0.9 (times "
    "0.9), tf=x0.9 (every stage) · comm=0.1 · link.0-1=0.5, link.0>1=x2 (one direction) · layers.3>2=1/8 (one of the "
    "eight layers of stage 3 to stage 2).",
)
@click.option("--device", "of_device", type=click.IntRange(min=0), help="Show every gap of this device.")
@click.option("--op", "of_op", metavar="OP", help="Show what an op waits for, and its slack: 2B5 or B5@2 (stage 2).")
@figure_options
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    spec: str,
    trace: str | None,
    iteration: str,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
    changes: tuple[str, ...],
    of_device: int | None,
    of_op: str | None,
    output: FigureOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say why devices are idle, what decides the time, and what would help.

    SCHEDULE is a name, which is simulated with the options given, or a file. A file that states times, and a real run
    given by --trace, are explained as they are; changes are simulated with the costs that their times show.

    \b
    What it prints:
      idle time by cause, which sums to all idle time, and the devices with most
      a critical path: the chain of ops that decides the makespan
      what the makespan gains where one time is 1 % less
      what changes would give, each simulated, and the best of them

    \b
      ppsim explain 1f1b --stages 4 --mb 8
      ppsim explain 1f1b --stages 4 --mb 8 --device 0 --op 2B5 -o bubbles.svg
      ppsim explain zb-1p --devices 8 --mb 32 --what-if tf.3=0.9 --what-if mb=64
      ppsim explain --trace traces/ --what-if 'layers.7>6=1/4'
    """
    from ppsim.analysis.explain import explain_object, own_changes, what_if

    find_targets(output)
    given = Given(ctx)
    stated = _stated(given, spec, shape, trace, iteration)
    if stated:
        (explanation, base), execution = _explain_stated(stated), None
        prices, inputs = stated.found.costs, {"ppsim": VERSION, "command": command_line(ctx), **stated.inputs}
    else:
        explanation, base, prices, execution = _explain_simulated(spec, shape, costs, network)
        inputs = inputs_of(ctx, prices)
    tried = [what_if(change, change, change_run(change, base)) for change in changes]
    if not changes:
        detailed = base.network.detailed
        tried = own_changes(
            explanation.base, prices, (lambda other: base.time(base.schedule, other)) if detailed else None
        )
        tried += [what_if(*each) for each in try_rivals(base)]
    views = _View(explanation, of_device, of_op)
    title = stated.title if stated else _title(explanation)
    written = make_documents([explanation.timeline], [title], inputs, output, idles=[explanation.idle])
    if execution:
        written = [(replace(each, executions=(execution,)), target, suffix) for each, target, suffix in written]
    with write_around(written):
        if as_json:
            from ppsim.cli._print import echo_json

            echo_json(explain_object(explanation, tried, inputs) | views.keys())
        elif "-" not in output.output:
            _print(explanation, tried, stated, views, quiet)


class _View:
    """The device and the op to show from near, if any."""

    def __init__(self, explanation: Explanation, device: int | None, op: str | None) -> None:
        from ppsim.analysis.views import find_op, gaps_of

        self.explanation, self.device = explanation, device
        self.op = None if op is None else find_op(explanation.timeline.schedule, op)
        if device is not None:
            gaps_of(explanation.idle, device)  # refuses a device that does not exist

    def keys(self) -> dict[str, object]:
        """The keys that it adds to the object of ``--json``."""
        from ppsim.analysis.views import view_object

        return view_object(self.explanation, self.device, self.op)

    def lines(self) -> list[str]:
        """What it says on a terminal; empty where nothing was asked for."""
        from ppsim.analysis.views import device_lines, op_lines

        device = [] if self.device is None else device_lines(self.explanation, self.device)
        return device + ([] if self.op is None else op_lines(self.explanation, self.op))


def _stated(given: Given, spec: str, shape: ShapeOptions, trace: str | None, iteration: str) -> Stated | None:
    """The run to explain as it is, or None for one to simulate.

    A file with times is timed anew where an option gives costs or messages.
    """
    from ppsim.schedules import require_shape

    simulated = given.spellings((*COSTS, *LAYER_TIMES, "layout", *UNEVEN, *DETAILED, "profile", "recompute", "message"))
    if trace:
        idle = [*simulated, *given.spellings(SHAPE)]
        if idle:
            raise InputError(f"--trace shows a run with its shape and times, so {', '.join(idle)} cannot be given too")
        return read_stated(trace, iteration, spec) or _refuse_trace(trace)
    if not simulated and (stated := read_stated(spec, iteration)):
        require_shape(spec, stated.found.timeline.schedule, asdict(shape))
        return stated
    if given.has("iteration"):
        raise InputError("--iteration chooses a step of a real run, and there is none", "--trace DIR")
    return None


def _refuse_trace(trace: str) -> NoReturn:
    """Say why a path shows no run.

    Raises:
        InputError: always.
    """
    from ppsim.runs.observed.read import read_run

    read_run([trace])
    raise InputError(f"'{trace}' shows no run", "a folder or file of a real run, or a file with times")


def _explain_stated(stated: Stated) -> tuple[Explanation, Base]:
    from ppsim.analysis.explain import explain_times
    from ppsim.cli._several import SIMPLE

    explanation = explain_times(stated.found)
    schedule = explanation.timeline.schedule
    shape = ShapeOptions(
        devices=schedule.n_devices,
        stages=schedule.n_stages,
        microbatches=schedule.n_microbatches,
        group_size=stated.group_size,
    )
    return explanation, Base(stated.family, schedule, shape, CostOptions(), SIMPLE, stated.found.costs)


def _explain_simulated(
    spec: str, shape: ShapeOptions, costs: CostOptions, network: NetworkOptions
) -> tuple[Explanation, Base, Costs, Execution | None]:
    from ppsim.analysis.explain import explain

    schedule, prices = build(spec, shape, costs, network)
    base = Base(spec, schedule, shape, costs, network)
    timeline, execution = time_ops(schedule, prices, network, costs.links)
    again = (lambda other: base.time(schedule, other).makespan) if execution else None
    return explain(timeline, prices, execution, again), base, prices, execution


def _print(explanation: Explanation, tried: list[WhatIf], stated: Stated | None, views: _View, quiet: bool) -> None:
    from ppsim.analysis.explain import advise
    from ppsim.cli._explain_text import explain_lines, heading_lines

    if quiet:
        click.echo(advise(explanation, tried))
    elif near := views.lines():
        for line in [*heading_lines(explanation, stated), "", *near]:
            echo_wrapped(line, indent=4)
    else:
        drawn = False
        for number, line in enumerate(explain_lines(explanation, tried, stated)):
            indent = CAUSE_INDENT if _is_row(line) else 4 if line.startswith(" ") else 2
            name, blanks, rest = line.partition("  ")
            echo_wrapped([(name, "name"), blanks + rest] if number == 0 else _toned(line), indent)
            if not line and not drawn:
                drawn = _draw(explanation)


def _draw(explanation: Explanation) -> bool:
    """The chart with bubbles in the colours of their causes, on a terminal that has them."""
    from ppsim.cli import _print as show
    from ppsim.drawing.terminal_marks import marks_of_idle

    if show.shows_colours(show.console()):
        show.print_gantt(explanation.timeline, explanation.metrics, marks_of_idle(explanation.idle))
        click.echo()
    return True


def _is_row(line: str) -> re.Match[str] | None:
    """Find time and cause where a line is a row of idle time."""
    return re.match(r" +[-+.e\d]+  \S+ ", line)


def _toned(line: str) -> list[Part]:
    """A line of what ``explain`` prints: time and cause of a row, and the advice, stand out."""
    if row := _is_row(line):
        return [(row[0], "name"), line[row.end() :]]
    return [("first:", "good"), line.removeprefix("first:")] if line.startswith("first:") else [line]


def _title(explanation: Explanation) -> str:
    from ppsim.cli._print import title_of

    return title_of(explanation.timeline.schedule)
