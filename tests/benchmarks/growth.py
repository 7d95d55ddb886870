"""How time grows with ops, over four decades, for ppsim, C and the peers that are installed; drawn as SVG.

python -m tests.benchmarks.growth gallery/growth.svg
"""

import sys
from functools import partial
from typing import Any

from tests.benchmarks.clock import compile_always, machine, seconds
from tests.benchmarks.peers import models, ppsim

SHAPES = ((8, 64), (16, 128), (32, 256), (64, 512), (128, 1024), (256, 2048), (512, 4096), (1024, 4096), (1024, 8192))
# Colour, marker, width, and how far up the name stands.
LOOKS = {
    "ppsim": ("#124192", "o", 2.2, 6),
    "C": ("#116948", "s", 1.6, -6),
    "SimPy": ("#B4540A", "^", 1.2, 0),
    "networkx": ("#6A7482", "v", 1.2, -7),
    "torch": ("#7A4FA3", "D", 1.2, 7),
}
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


def draw(lines: dict[str, tuple[list[int], list[float]]], target: str) -> None:
    """One line per model on logarithmic axes, named at its end."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ppsim", "font.size": 9})
    figure, axes = plt.subplots(figsize=(6.75, 4.2), layout="constrained")
    for name, (ops, times) in lines.items():
        colour, marker, width, up = LOOKS[name]
        axes.plot(ops, times, color=colour, marker=marker, markersize=4, linewidth=width)
        axes.annotate(name, (ops[-1], times[-1]), (6, up), textcoords="offset points", color=colour, va="center")
    axes.set(xscale="log", yscale="log", xlabel="ops", ylabel="processor seconds, shape to makespan")
    axes.set_xlim(right=1.5e8)
    axes.grid(color="#F1F3F6")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"1F1B, in process\n{machine()}", fontsize=9, loc="left", color="#8A94A3")
    metadata: dict[str, Any] = {"Date": None}
    figure.savefig(target, metadata=metadata)


if __name__ == "__main__":
    draw(measured(), sys.argv[1])
