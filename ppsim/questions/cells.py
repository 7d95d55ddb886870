"""The cells of a sweep: schedules over sizes, each timed on its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ppsim.errors import InputError
from ppsim.questions.build import times_used
from ppsim.questions.groups import OWN, CostOptions, GridOptions, NetworkOptions, ShapeOptions
from ppsim.questions.several import time_schedule
from ppsim.questions.tasks import SentFile, send_files

SCALES = ("mb_scale", "slice_scale")
USED = "times_used"  # kept with a row, and no part of the answer


class Cell(NamedTuple):
    """One shape of the grid: the schedule's spelling, its devices (a fraction where it fits none), its microbatches."""

    spec: str
    devices: float
    microbatches: int

    @property
    def key(self) -> str:
        """The cell as text."""
        return f"{self.spec} {self.devices}x{self.microbatches}"


@dataclass(frozen=True)
class TimeCell:
    """A function of a cell and its shape that gives its row."""

    costs: CostOptions  # what ops cost
    network: NetworkOptions  # how messages travel
    # the user's files that these and the schedules name, by path; empty where all run on this machine
    files: Mapping[str, SentFile] = field(default_factory=dict)

    def __call__(self, task: tuple[Cell, ShapeOptions]) -> dict[str, Any]:
        """Time one cell."""
        from ppsim.analysis.compare import row_object

        cell, shape = task
        placed = {path: sent.place() for path, sent in self.files.items()}
        moved = {there: path for path, there in placed.items() if there != path}
        source, colon, rest = cell.spec.partition(".py")
        spec = placed.get(source + colon, source + colon) + rest
        given: dict[str, Any] = {name: getattr(self.costs, name) or "" for name in ("profile", "segments", "encoder")}
        given = {name: placed.get(path, path) or None for name, path in given.items()}
        for name in SCALES:
            parts = (text.rpartition("=") for text in getattr(self.costs, name))
            given[name] = tuple(kinds + equals + placed.get(path, path) for kinds, equals, path in parts)
        costs, cluster = replace(self.costs, **given), self.network.cluster
        network = replace(self.network, cluster=placed.get(cluster, cluster) if cluster else None)
        timed = time_schedule(spec, shape, costs, network)
        row = _plain(row_object(timed, "rows", "sweep"))
        if timed.timeline:
            row[USED] = sorted(times_used(timed.timeline.schedule, costs))
        for there, path in moved.items():
            row |= {name: row[name].replace(there, path) for name in ("name", "reason") if name in row}
        return row


def files_of(specs: tuple[str, ...], costs: CostOptions, network: NetworkOptions) -> dict[str, SentFile]:
    """Read the files that options and schedules name, to send them with the tasks."""
    code = [source + ".py" for source, found, _ in (spec.partition(".py") for spec in specs) if found]
    factors = [text.rpartition("=")[2] for name in SCALES for text in getattr(costs, name)]
    return send_files([*specs, *code, *factors, costs.profile, costs.segments, costs.encoder, network.cluster])


def inputs_of_cells(
    grid: GridOptions, costs: CostOptions, network: NetworkOptions, files: Mapping[str, SentFile]
) -> object:
    """Gather what the row of a cell depends on beside the cell: not on the grid, which may grow."""
    contents = {path: sha256(sent.content).hexdigest() for path, sent in files.items()}
    return [_own(grid), asdict(costs), asdict(network), contents]


def cells_of(specs: tuple[str, ...], grid: GridOptions) -> Iterator[tuple[Cell, ShapeOptions]]:
    """Yield the shape of each cell: devices as given, or by chunks (InputError: --chunks where all have theirs)."""
    from ppsim.schedules import family_of, schedule_from, split_chunks

    families = {spec: family_of(spec) for spec in specs}
    varied = {spec for spec, family in families.items() if family and family.chunks > 1 and not split_chunks(spec)[1]}
    if grid.chunks and not varied:
        raise InputError(f"--chunks has no effect: none of {', '.join(specs)} takes several", "NAME:V, or leave it out")
    for spec in specs:
        family = families[spec]
        if family is None:
            made = schedule_from(spec)  # a file of ops, which states its own shape
            yield Cell(spec, made.n_devices, made.n_microbatches), ShapeOptions(**_own(grid))
            continue
        spelled = [f"{spec}:{chunks}" for chunks in grid.chunks] if grid.chunks and spec in varied else [spec]
        for each, size, m in product(spelled, grid.stages or grid.devices or (), grid.microbatches or ()):
            stages, devices = (size, None) if grid.stages else (None, size)
            share = size / (split_chunks(each)[1] or family.chunks) if grid.stages else size
            yield (
                Cell(each, int(share) if share == int(share) else share, m),
                ShapeOptions(stages, devices, None, m, **_own(grid)),
            )


def _own(grid: GridOptions) -> dict[str, Any]:
    return {name: getattr(grid, name) for name in OWN}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without arrays."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value for name, value in row.items()
    }
