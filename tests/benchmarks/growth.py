"""How time grows with ops, over four decades, for ppsim, C and the peers that are installed; drawn
as SVG.

python -m tests.benchmarks.growth gallery/growth.svg
"""

import sys
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from ppsim.base.atomic_file import open_atomically
from ppsim.base.numbers import format_number
from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.palette import FAMILY_COLOURS, MUTED
from ppsim.version import VERSION
from tests.benchmarks.clock import compile_always, duration, machine, seconds
from tests.benchmarks.peers import models, ppsim

SHAPES = (
    (8, 64),
    (16, 128),
    (32, 256),
    (64, 512),
    (128, 1024),
    (256, 2048),
    (512, 4096),
    (1024, 4096),
    (1024, 8192),
)
# Number of the colour, marker, width, and how far up the name stands.
LOOKS = {
    "ppsim": (0, "o", 2.2, 6),
    "C": (2, "s", 1.6, -6),
    "SimPy": (1, "^", 1.2, 0),
    "networkx": (5, "v", 1.2, -7),
}
LOOKS["torch"] = (6, "D", 1.2, 7)
FONT = 7.5  # points
PATIENCE_S = 3.0  # a model that took longer is not tried on more ops


def measured() -> dict[str, tuple[list[int], list[float]]]:
    """Ops and processor seconds, shape to makespan, by model."""
    compile_always()
    ppsim(256, 1024)  # loads the compiled kernel and settles the allocator
    lines: dict[str, tuple[list[int], list[float]]] = {}
    for name, model in models().items():
        ops, times = lines[name] = [], []
        for devices, microbatches in SHAPES:
            ops.append(2 * devices * microbatches)
            times.append(seconds(partial(model, devices, microbatches), at_least=0.1, most=15))
            print(f"{name:10} {ops[-1]:>12,} ops {times[-1]:.6f} s", flush=True)
            if times[-1] > PATIENCE_S and name not in ("ppsim", "C"):
                break
    return lines


def draw(lines: dict[str, tuple[list[int], list[float]]], said: str) -> Figure:
    """One line per model on logarithmic axes, named at its end."""
    figure = Figure(figsize=(6.75, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, (ops, times) in lines.items():
        number, marker, width, up = LOOKS[name]
        colour = FAMILY_COLOURS[number][0]
        axes.plot(ops, times, color=colour, marker=marker, markersize=4, linewidth=width)
        look: dict[str, Any] = {
            "textcoords": "offset points",
            "color": colour,
            "va": "center",
            "fontsize": FONT,
        }
        axes.annotate(name, (ops[-1], times[-1]), (6, up), **look)
    axes.set(xscale="log", yscale="log")
    axes.set_xlim(right=1.2e8)
    axes.xaxis.set_major_formatter(lambda value, _: format_number(value))
    axes.yaxis.set_major_formatter(lambda value, _: duration(value))
    axes.set_xlabel("ops", fontsize=FONT)
    axes.set_ylabel("processor time, shape to makespan", fontsize=FONT)
    axes.tick_params(which="both", labelsize=FONT, length=2, width=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(said, fontsize=FONT, loc="left", color=MUTED)
    return figure


if __name__ == "__main__":
    said = f"1F1B, in process. {machine()}"
    inputs = {"ppsim": VERSION, "command": "python -m tests.benchmarks.growth"}
    with open_atomically(sys.argv[1]) as out:
        write_figure(partial(draw, measured(), said), out, ".svg", title=said, inputs=inputs)
