"""The split of a model's layers over GPUs, as a figure, a page or a flowchart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ppsim.ask.groups import OutputOptions
from ppsim.ask.write import Writers, find_targets
from ppsim.base.atomic_file import open_atomically
from ppsim.errors import InputError
from ppsim.show.files.document import require_suffix

if TYPE_CHECKING:
    from ppsim.show.drawing.layer_map import LayerPanel
    from ppsim.workload.cost.tensor_split import LayerSplit

FLOWCHART = ".mmd"
SUFFIXES = (FLOWCHART, ".svg", ".html", ".png", ".pdf")


def check_output(output: OutputOptions, tp: int | None, ep: int | None) -> None:
    """Raise InputError for a format that cannot show a split, and where ``tp`` and ``ep`` are 1."""
    for _, suffix in find_targets(output):
        require_suffix(
            suffix, SUFFIXES, "how layers are split", "; --json has the numbers of a model"
        )
    if output.output and (tp or 1) == 1 and (ep or 1) == 1:
        raise InputError(
            "-o draws how layers are split over GPUs, which needs --tp or --ep above 1",
            "--tp 8, or --ep 8",
        )


@dataclass(frozen=True)
class Drawing:
    """A figure's data: the split of each kind of layer with remarks, the title, and the inputs."""

    splits: Sequence[LayerSplit]
    remarks: Sequence[Sequence[str]]
    title: str
    inputs: Mapping[str, Any]

    def writers(self, output: OutputOptions) -> Writers:
        """Return the writer of each -o."""
        return [
            (target, partial(self._write, output.width, target, suffix))
            for target, suffix in find_targets(output)
        ]

    def _write(self, width: float, target: str, suffix: str) -> None:
        if suffix == FLOWCHART:
            from ppsim.workload.plans.split_chart import flowchart

            source = f"ppsim {self.inputs['ppsim']}: {self.inputs.get('command', '')}".strip(": ")
            with open_atomically(target) as out:
                out.write(flowchart(self.splits, self.remarks, self.title, source).encode())
            return
        from ppsim.show.drawing.layer_map import figure_of
        from ppsim.show.files.chart import save_chart
        from ppsim.workload.plans.split_chart import table_rows

        save_chart(
            partial(figure_of, self.panels()),
            width,
            target,
            suffix,
            title=self.title,
            sentences="Forward of one microbatch. A column-parallel product gives each GPU some of "
            "the outputs; a row-parallel product gives each GPU partial sums of all outputs, which "
            "the next collective adds up.",
            inputs=self.inputs,
            headings=["layer", "part", "on each GPU", "bytes", "time"],
            rows=table_rows(self.splits),
            left=["part", "on each GPU", "bytes", "time"],
        )

    def panels(self) -> list[LayerPanel]:
        """Return the panel of each kind of layer."""
        from ppsim.show.drawing.layer_map import LayerPanel, LayerRow
        from ppsim.workload.plans.split_chart import (
            cut_of,
            layer_facts,
            layer_title,
            part_text,
            sides_of,
        )

        panels = []
        for split, remarks in zip(self.splits, self.remarks, strict=True):
            rows = []
            for part in split.parts:
                text = part_text(part)
                sides = sides_of(part)
                rows.append(LayerRow(*cut_of(part), sides, text.title, tuple(text.details)))
            facts = (*layer_facts(split), *remarks)
            panels.append(LayerPanel(layer_title(split), facts, tuple(rows)))
        return panels
