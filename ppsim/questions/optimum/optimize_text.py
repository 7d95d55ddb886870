"""Texts of ``optimize``: the best schedule found, its proof, and time against memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.words import count_text, summary_line
from ppsim.base.numbers import format_number, format_share
from ppsim.prices.cap import OF_A_SHARE
from ppsim.version import INSTALL_OPTIMIZE

if TYPE_CHECKING:
    from ppsim.search.orders.optimize import Outcome
    from ppsim.search.problem import Problem

Rows = Sequence[tuple[float, "Outcome"]]


def outcome_line(found: Outcome) -> Line:
    """Return the numbers of the best schedule on one line."""
    problem, solution, unit = found.problem, found.solution, found.problem.costs.unit
    return Line(
        f"optimized {problem.n_devices}x{problem.microbatches}  span "
        f"{format_number(solution.span)} {unit}  makespan {format_number(solution.makespan)} "
        f"{unit}  bound {format_number(found.bound)} {unit}  {found.status}  peak "
        f"{_most_held(found)}"
    )


def outcome_verdict(found: Outcome) -> str:
    """Return a sentence on the best schedule: its time, its proof, and the best one of the list."""
    problem, unit = found.problem, found.problem.costs.unit
    time = f"the best order has a {problem.objective} of {format_number(found.value)} {unit}"
    microbatches = count_text(problem.microbatches, "microbatch")
    size = f"{count_text(problem.n_devices, 'device')} with {microbatches}"
    proof = "optimal, proved"
    if found.status != "optimal":
        proof = f"{format_share(found.gap)} above the bound at most"
    best = found.best_known
    if best is None:
        comparison = "no schedule of the list fits"
    else:
        value = best.score(problem.objective)[0]
        saving = 1 - found.value / value if value else 0.0
        relation = f"{format_share(saving)} less than" if saving > 1e-9 else "as long as"
        known = f"{best.origin} ({format_number(value)} {unit})"
        comparison = f"{relation} {known}, the best of the list that fits"
    return f"{time} on {size}: {proof}; {comparison}"


def front_verdict(rows: Rows) -> str:
    """Return a sentence on the times under the least and the largest cap, and their proofs."""
    problem, (least, first), (most, last) = rows[0][1].problem, rows[0], rows[-1]
    unit = problem.costs.unit
    proved = sum(found.status == "optimal" for _, found in rows)
    ends = f"is {format_number(last.value)} {unit} under cap {most:g}"
    if len(rows) > 1:
        ends = f"falls from {format_number(first.value)} {unit} under cap {least:g} to "
        ends += f"{format_number(last.value)} {unit} under cap {most:g}"
    return (
        f"the {problem.objective} {ends} (activations); {proved} of {len(rows)} are optimal, proved"
    )


def proof_lines(found: Outcome) -> Iterator[Line]:
    """Yield lines on the span, the bound, and the memory of devices."""
    problem, solution, unit = found.problem, found.solution, found.problem.costs.unit
    proof = ": optimal, proved"
    if found.status != "optimal":
        proof = f"; this one is {format_share(found.gap)} above it at most"
    shorter = f"no schedule has a shorter {problem.objective}"
    rows = [
        (
            "span",
            f"{format_number(solution.span)} {unit}",
            "longest time from a device's first start to its last end",
        ),
        ("bound", f"{format_number(found.bound)} {unit}", f"{shorter}{proof}"),
        ("held", format_number(solution.most_held), _held_note(found)),
    ]
    for name, value, note in rows:
        yield summary_line(name, value, note)


def _per_unit(problem: Problem) -> int:
    """Return the number of activations of the problem in one unit of ``--cap``."""
    return 1 if problem.layers else problem.placement.n_chunks


def _most_held(found: Outcome) -> str:
    """Return the peak activations of a device as text, also in 1/P shares if stages are smaller."""
    most, per_unit = found.solution.most_held, _per_unit(found.problem)
    text = format_number(most)
    return f"{text} ({format_number(most / per_unit)} {OF_A_SHARE})" if per_unit > 1 else text


def _held_note(found: Outcome) -> str:
    """Return the activations of each device and the cap, in both units if they differ, as text."""
    held, problem = found.solution.peak_activations, found.problem
    per_unit = _per_unit(problem)
    if len(held) > 16:
        by_device = f"{held.min():g} to {held.max():g}"
    else:
        by_device = " ".join(format_number(float(amount)) for amount in held)
    caps = dict.fromkeys(map(float, problem.caps))
    cap = "no cap"
    if problem.cap is not None:
        cap = f"cap {format_number(next(iter(caps)))}" if len(caps) == 1 else "each within its cap"
        if per_unit > 1 and len(caps) == 1:
            cap += f", which is {format_number(next(iter(caps)) / per_unit)} {OF_A_SHARE}"
    share = "" if problem.after_i == 1 else f", {problem.after_i:g} of one between I and W"
    return f"activations of one {problem.holder} at most ({by_device}), {cap}{share}"


def sentences(found: Outcome) -> list[str]:
    """Return sentences on the best schedule of the list, the origin of the found one, and the
    obstacle to a proof.
    """
    best, objective, lines = found.best_known, found.problem.objective, list[str]()
    if best is None:
        lines.append("no schedule of the list with this placement fits")
    else:
        value = best.score(objective)[0]
        saving = 1 - found.value / value if value else 0.0
        relation = f"this is {format_share(saving)} less" if saving > 1e-9 else "this is the same"
        lines.append(
            f"{best.origin}, the best of the list that fits, has a {objective} of "
            f"{format_number(value)}: {relation}"
        )
    lines.append(f"found by: {found.solution.origin}")
    if found.problem.costs.pair is not None:
        lines.extend(_pair_sentences(found))
    if found.interrupted:
        lines.append("interrupted: the best so far is kept")
    elif found.status != "optimal" and not found.solver:
        lines.append(f"a proof needs OR-tools: {INSTALL_OPTIMIZE}")
    return lines


def _pair_sentences(found: Outcome) -> list[str]:
    """Return a sentence on the schedules of the list that run pairs; nothing if none does."""
    paired = []
    for entry in found.known:
        solution = entry.solution
        if len(solution.schedule.second_of_pairs):
            value = format_number(solution.score(found.problem.objective)[0])
            paired.append(f"{solution.origin} {value}{'' if entry.fits else ' (does not fit)'}")
    if not paired:
        return []
    return [f"with pairs of F and B: {', '.join(paired)}; the search itself makes no pairs"]


def front_line(rows: Rows) -> Line:
    """Return the best time under each cap on one line."""
    problem = rows[0][1].problem
    each = "  ".join(f"{cap:g} {format_number(found.value)}" for cap, found in rows)
    proved = sum(found.status == "optimal" for _, found in rows)
    front = (
        f"front {problem.n_devices}x{problem.microbatches}  cap and {problem.objective} in "
        f"{problem.costs.unit}"
    )
    return Line(f"{front}: {each}  ({proved} of {len(rows)} optimal)")


def front_lines(rows: Rows) -> Iterator[Block]:
    """Yield a table with a row for each cap and its best schedule."""
    unit = rows[0][1].problem.costs.unit
    table = [
        {
            "cap": f"{cap:g}",
            "placement": found.problem.placement.name,
            f"span\n{unit}": format_number(found.solution.span),
            f"makespan\n{unit}": format_number(found.solution.makespan),
            f"bound\n{unit}": format_number(found.bound),
            "gap": format_share(found.gap),
            "status": found.status,
            "held": format_number(found.solution.most_held / _per_unit(found.problem)),
            "found by": found.solution.origin,
        }
        for cap, found in rows
    ]
    cells = [list(row.values()) for row in table]
    yield Table(
        list(table[0]), cells, 110, ("found by", "held"), ("placement", "status", "found by")
    )
    unit_of_cap = "of one layer" if rows[0][1].problem.layers else OF_A_SHARE
    yield Line(
        f"cap and held count activations {unit_of_cap}; no schedule has a shorter objective than "
        f"the bound"
    )
