"""The split of layers over GPUs as text, as rows of a table, and as a Mermaid flowchart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ppsim.base.numbers import format_number
from ppsim.base.text import mermaid_line
from ppsim.base.units import format_size
from ppsim.workload.cost.tensor_split import (
    WHOLE,
    Collective,
    LayerSplit,
    Matrices,
    Mixing,
    Part,
    Product,
)
from ppsim.workload.model.model import Layer
from ppsim.workload.model.operators import ITEM

MOST_DRAWN = 4  # most GPUs of a group in a flowchart
NAMES = {"tp": "tensor", "ep": "expert", "cp": "context"}
MIXERS = {
    "window": "sliding-window attention",
    "chunk": "chunked attention",
    "sparse": "sparse attention",
    "csa": "compressed sparse attention",
    "hca": "heavily compressed attention",
    "mamba": "Mamba-2",
    "delta": "gated delta net",
    "kda": "Kimi delta attention",
    "linear": "lightning attention",
}


@dataclass(frozen=True)
class PartText:
    """A part of a layer as text.

    Attributes:
        title: its name and how it is split.
        size: the share of each GPU and the whole: matrices, heads, or a collective's tensors.
        amount: bytes of weights on each GPU, bytes that each GPU sends, or ''.
        time: time of a forward; '' without a cluster.
    """

    title: str
    size: str
    amount: str
    time: str

    @property
    def details(self) -> list[str]:
        """All but the title."""
        return [text for text in (self.size, self.amount, self.time) if text]


def part_text(part: Part) -> PartText:
    """Return a part of a layer as text."""
    time = "" if part.seconds is None else f"{format_number(part.seconds * 1e3)} ms"
    if isinstance(part, Mixing):
        return PartText(part.name, f"{part.heads:,} of {part.all_heads:,} heads", "", time)
    if isinstance(part, Collective):
        size = f"{part.carries}, {format_size(part.size)}"
        title = f"{part.name} over {part.ranks:,} {NAMES[part.group]}-parallel GPUs"
        return PartText(title, size, f"each sends {format_size(part.sent)}", time)
    size = f"{_size(part.held)} of {_size(part.whole)}"
    size = f"{_size(part.held)}, all of it" if part.way == WHOLE else size
    return PartText(
        f"{part.name}: {part.way}",
        size,
        f"{format_size(ITEM * part.held.parameters)} of weights",
        time,
    )


def _size(matrices: Matrices) -> str:
    text = f"{matrices.rows:,} x {matrices.columns:,}"
    return f"{matrices.number:,} x ({text})" if matrices.number > 1 else text


def layer_name(layer: Layer) -> str:
    """Return the name of a kind of layer: its mixer and its MLP."""
    mixer = MIXERS.get(layer.mixer, layer.mixer)
    mlp = {"dense": "MLP", "experts": "experts"}.get(layer.mlp, "")
    return " + ".join(word for word in (mixer, mlp) if word not in ("", "none"))


def layer_title(split: LayerSplit) -> str:
    """Return the name of a kind of layer with the number of its layers."""
    layers, extra = split.count
    counts = [f"{layers:,} layers"] * bool(layers)
    counts += [f"{extra:,} of multi-token prediction"] * bool(extra)
    return f"{layer_name(split.layer)}: {', '.join(counts)}".replace(": 1 layers", ": 1 layer")


def layer_facts(split: LayerSplit) -> list[str]:
    """Return sentences on a layer: weights and parameters on each GPU, copies, forward time."""
    weights = (
        f"each GPU holds {split.held:,} weights of a layer's products, "
        f"{format_size(ITEM * split.held)} in 16 bits"
    )
    facts = [
        f"{weights}; norms, biases and the like, {split.other_parameters:,} in all, are not drawn: "
        f"with them a GPU has {split.parameters_per_gpu:,.0f} parameters"
    ]
    if split.copies > 0.5:
        facts.append(f"{split.copies:,.0f} of the weights are copies of what other GPUs hold")
    if split.seconds is not None:
        facts.append(
            f"its forward of a microbatch takes {format_number(split.seconds * 1e3)} ms, overlap "
            f"included"
        )
    return facts


def flowchart(
    splits: Sequence[LayerSplit], remarks: Sequence[Sequence[str]], title: str, made: str
) -> str:
    """Return a Mermaid flowchart with a box for each product on each GPU, and for each collective.

    Of more than ``MOST_DRAWN`` GPUs, only the first ones and the last one are drawn. A product that
    is not split is drawn as one box.

    Args:
        splits: the split of each kind of layer.
        remarks: further sentences on each kind of layer.
        title: title of the chart.
        made: the command that made it, for a comment.
    """
    lines = [
        "---",
        f"title: {_yaml_string(title)}",
        "---",
        f"%% {mermaid_line(made)}",
        "flowchart TB",
    ]
    for number, (split, more) in enumerate(zip(splits, remarks, strict=True)):
        lines += [f'  subgraph L{number}["{layer_title(split)}"]', "    direction TB"]
        lines += [
            f"    {line}"
            for line in _layer_lines(split, f"L{number}", [*layer_facts(split), *more])
        ]
        lines.append("  end")
    return "\n".join(lines) + "\n"


def _layer_lines(split: LayerSplit, prefix: str, facts: Sequence[str]) -> Iterator[str]:
    yield f'{prefix}S["{"<br/>".join(facts)}"]'
    before = [f"{prefix}S"]
    for place, part in enumerate(split.parts):
        text, name = part_text(part), f"{prefix}N{place}"
        words = "<br/>".join([text.title, *text.details])
        if isinstance(part, Collective):
            boxes = {name: f'{{{{"{words}"}}}}'}
        elif isinstance(part, Product) and part.way == WHOLE:
            boxes = {name: f'["{words}"]'}
        else:
            ranks = part.all_heads // part.heads if isinstance(part, Mixing) else part.ranks
            boxes = {
                f"{name}G{gpu}": f'["GPU {gpu}{more}<br/>{words}"]'
                for gpu, more in _drawn_ranks(ranks)
            }
        yield from (f"{box}{shape}" for box, shape in boxes.items())
        after = list(boxes)
        if len(before) == len(after):
            pairs = zip(before, after, strict=True)
            yield from (f"{here} --> {there}" for here, there in pairs)
        else:
            yield f"{' & '.join(before)} --> {' & '.join(after)}"
        before = after


def _yaml_string(text: str) -> str:
    """Return a user's text as a YAML string; every JSON string is one."""
    return json.dumps(mermaid_line(text))


def _drawn_ranks(ranks: int) -> list[tuple[int, str]]:
    """Return the drawn GPUs, each with a note on GPUs left out after it, or ''."""
    if ranks <= MOST_DRAWN:
        return [(gpu, "") for gpu in range(ranks)]
    hidden = f" and {ranks - MOST_DRAWN:,} more"
    return [
        *((gpu, hidden if gpu == MOST_DRAWN - 2 else "") for gpu in range(MOST_DRAWN - 1)),
        (ranks - 1, ""),
    ]


def table_rows(splits: Sequence[LayerSplit]) -> list[list[str]]:
    """Return the rows of a table of parts: layer, part, share of each GPU, bytes, time."""
    rows = []
    for split in splits:
        for part in split.parts:
            text = part_text(part)
            rows.append(
                [
                    layer_name(split.layer),
                    text.title,
                    text.size,
                    text.amount or "-",
                    text.time or "-",
                ]
            )
    return rows


def cut_of(part: Part) -> tuple[str, int]:
    """Return how a part is divided, and into how many shares; a collective's group and GPUs."""
    if isinstance(part, Collective):
        return part.group, part.ranks
    if isinstance(part, Mixing):
        return "heads", part.all_heads // part.heads
    return part.way, part.ranks


def sides_of(part: Part) -> tuple[int, int]:
    """Return the rows and columns of a part's weights, zeros if it has none."""
    return (part.whole.rows, part.whole.columns) if isinstance(part, Product) else (0, 0)
