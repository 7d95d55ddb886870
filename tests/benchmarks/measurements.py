"""Write the tables of published runs in gallery/measurements.md.

python -m tests.benchmarks.measurements [folds] [given] [runs]

Each stands between two marks with its name; folds and terms take minutes, the others are held by a
test to what is written.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, combinations
from math import log
from pathlib import Path
from statistics import mean, median
from typing import Any

import ppsim
from ppsim.real.runs.record import load
from ppsim.real.validation.analyse import validate
from ppsim.workload.hardware.efficiency import fitted
from ppsim.workload.plans import published
from ppsim.workload.plans.gains import HALF
from ppsim.workload.plans.published import Row, predict, read_table, setup_of, summarise
from tests.benchmarks.fit_efficiency import read_all
from tests.benchmarks.left_out import half_of, tables
from tests.benchmarks.worth import TERMS, worth

PAGE = Path("gallery/measurements.md")
DATA = Path("tests/data/published")
GPUS = {"H100": Path("tests/data/gpu/h100"), "H200": Path("tests/data/gpu/h200")}
GPU_RUNS = {
    "partitioned-p2": "six schedules, P = 2, parts of 64 multiprocessors",
    "partitioned-p4": "six schedules, P = 4, parts of 32 multiprocessors",
    "offload": "1F1B and V-Half, P = 2, with and without copies to the host",
}
NAMES = {
    "megatron_weak_scaling": "Megatron-LM's weak scaling on A100 (arXiv 2104.04473), every second "
    "row",
    "vtrain_a100": "vTrain's runs on one to 64 nodes of A100",
    "measured_runs": "Megatron-Bridge, NeMo, Megatron-LM, Primus and Llama-3 reports, H100 to "
    "GB300 and MI355X",
    "measured_runs_3": "LLM Foundry, torchtitan, ModelZoo, NeMo 24.12, DeepSpeed and others",
    "measured_runs_4": "FlagPerf, Seq1F1B, Pax",
}
# arXiv 2405.15362, table 3: the best MFU of a grid search, 98.5B on 40 A100, by tokens and
# sequences of a step.
GRID_SEARCH = {
    (1024, 160): {"zb-v": 57.58, "zb-1p": 54.52, "v-half": 52.6, "1f1b": 49.81, "v-min": 48.02},
    (3072, 640): {"v-half": 60.34, "1f1b": 57.25, "zb-v": 56.89, "zb-1p": 56.55, "v-min": 55.51},
}
SAID = (
    "dispatch",
    "overlap_a2a",
    "cuda_graphs",
    "recompute",
    "recompute_layers",
    "sequence_parallel",
    "offload",
    "layout",
)
GIVEN = {
    "all that the row says": (),
    "sizes, parallel layout, software and release alone": SAID,
    "the same without release and source": (*SAID, "release", "source"),
    "the same without software": (*SAID, "release", "source", "framework"),
}


def read(name: str) -> list[Row]:
    """Read a table of tests/data/published."""
    return read_table(str(DATA / (f"{name}.json" if "/" in name else f"{name}.json.gz")))


def against(rows: Sequence[Row]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Predict rows as the command does, each of them once: several tables have it."""
    found = [predicted(json.dumps(row)) for row in rows]
    return found, summarise(found)


@cache
def predicted(row: str) -> dict[str, Any]:
    """Predict a row of a table."""
    (found,), _ = published.against([json.loads(row)])
    return found


def sizes(rows: Sequence[dict[str, Any]], key: str) -> str:
    """Write the mean and median size of the errors of a prediction."""
    found = [
        abs(row[key] / row["measured_step_s"] - 1) * 100
        for row in rows
        if row["measured_step_s"] and key in row
    ]
    return f"{mean(found):.1f} / {median(found):.1f} %"


def folds() -> list[str]:
    """Errors of runs left out."""
    cases = read_all([str(path) for path in sorted(DATA.glob("*.json.gz"))])
    return tables(cases, fitted())


def terms() -> list[str]:
    """Errors of left-out sources without each term of the cost model."""
    return worth([str(path) for path in sorted(DATA.glob("*.json.gz"))], [*TERMS])


def given() -> list[str]:
    """Errors of rows that say less and less."""
    lines = ["| given | 224 rows, as modelled: mean / median | 76 rows |", "|---|---|---|"]
    for name, gone in GIVEN.items():
        rows: Iterator[list[Row]] = (
            [{k: v for k, v in row.items() if k not in gone} for row in read(table)]
            for table in list(NAMES)[2:4]
        )
        lines.append(
            f"| {name} | "
            f"{' | '.join(sizes(against(part)[0], 'modelled_step_s') for part in rows)} |"
        )
    return lines


def zero_bubble() -> list[str]:
    """Errors of steps, of gains over 1F1B, and of peaks of memory, by model and schedule."""
    rows = read("unseen/zero_bubble")
    lines = [
        "| model, devices | schedule | runs | step, as modelled | gain over 1F1B | peak of memory |"
    ]
    lines.append(f"|{'---|' * 6}")
    groups: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    first: Row = {}
    for row, found in zip(rows, against(rows)[0], strict=True):
        first = found if row["schedule"] == "1F1B" else first
        step, start = (run["modelled_step_s"] / run["measured_step_s"] for run in (found, first))
        off = (
            step - 1,
            start / step - 1,
            found["predicted_peak_gib"] / found["measured_peak_gib"] - 1,
        )
        groups.setdefault((f"{row['model']}, {row['pp']}", row["schedule"]), []).append(off)
    for (model, schedule), offs in groups.items():
        step, gain, peak = (f"{mean(column) * 100:+.1f} %" for column in zip(*offs, strict=True))
        lines.append(
            f"| {model} | {schedule} | {len(offs)} | {step} | {'' if schedule == '1F1B' else gain} "
            f"| {peak} |"
        )
    every = [
        [abs(off) for off in column if off] for column in zip(*chain(*groups.values()), strict=True)
    ]
    sizes = (f"{mean(column) * 100:.1f} % ({max(column) * 100:.1f})" for column in every)
    return [*lines, f"| all, sizes and the largest | | {len(rows)} | {' | '.join(sizes)} |"]


def vocabulary() -> list[str]:
    """Errors of steps whose last device has an output layer as long as many layers, by the size of
    the vocabulary.
    """
    rows = read("unseen/vocabulary")
    sizes = sorted({row["architecture"]["vocab"] for row in rows})
    lines = [
        f"| schedule, devices, tokens | {' | '.join(f'{size // 1000}k words' for size in sizes)} | "
        f"peak of memory |"
    ]
    lines.append(f"|{'---|' * (2 + len(sizes))}")
    groups: dict[str, dict[int, tuple[float, float]]] = {}
    for row, found in zip(rows, against(rows)[0], strict=True):
        name = f"{row['schedule']}, {row['pp']}, {row['seq']:,}"
        step = found["modelled_step_s"] / found["measured_step_s"] - 1
        peak = found["predicted_peak_gib"] / found["measured_peak_gib"] - 1
        groups.setdefault(name, {})[row["architecture"]["vocab"]] = step, peak
    for name, offs in groups.items():
        cells = " | ".join(
            f"{offs[size][0] * 100:+.1f} %" if size in offs else "" for size in sizes
        )
        lines.append(
            f"| {name} | {cells} | {mean(peak for _, peak in offs.values()) * 100:+.1f} % |"
        )
    return lines


def gains() -> list[str]:
    """Gains of schedules over 1F1B, measured and predicted, by setting; a setting is the rows of a
    name.
    """
    groups: dict[str, dict[str, tuple[float, float]]] = {}
    rows = read("unseen/schedules")
    for row, found in zip(rows, against(rows)[0], strict=True):
        name = f"{row['model']}, tp {row['tp']}, pp {row['pp']}, dp {row['dp']}"
        groups.setdefault(name, {})[row["schedule"]] = (
            found["measured_step_s"],
            found["modelled_step_s"],
        )
    names = [name for name in dict.fromkeys(row["schedule"] for row in rows) if name != "1F1B"]
    lines = [
        f"| setting | {' | '.join(f'{name}: measured, predicted' for name in names)} | regret |"
    ]
    lines.append(f"|{'---|' * (2 + len(names))}")
    off: dict[str, list[float]] = {name: [] for name in names}
    right, regrets = [], []
    for setting, steps in groups.items():
        first, cells = steps["1F1B"], []
        for name in names:
            if name not in steps:
                cells.append("")
                continue
            measured, predicted = (
                whole / part - 1 for whole, part in zip(first, steps[name], strict=True)
            )
            off[name].append(predicted - measured)
            cells.append(f"{measured * 100:+.1f}, {predicted * 100:+.1f} %")
        chosen = min(steps.values(), key=lambda both: both[1])
        regrets.append(chosen[0] / min(steps.values())[0] - 1)
        lines.append(f"| {setting} | {' | '.join(cells)} | {regrets[-1] * 100:.1f} % |")
        for one, two in combinations(steps.values(), 2):
            if max(one[0] / two[0], two[0] / one[0]) > 1.02:
                right.append((one[0] - two[0]) * (one[1] - two[1]) > 0)
    sizes = " | ".join(
        f"{mean(map(abs, column)) * 100:.1f} (mean {mean(column) * 100:+.1f})"
        for column in off.values()
    )
    lines.append(f"| off by, in points | {sizes} | {max(regrets) * 100:.1f} % at most |")
    return [*lines, "", f"Of {len(right)} pairs more than 2 % apart {sum(right)} are ranked right."]


# Tables with runs that differ in schedule alone, and how a source of them is called.
WITH_SCHEDULES = (
    *("measured_runs", "measured_runs_3", "measured_runs_4"),
    *("unseen/schedules", "unseen/zero_bubble"),
)
SAME = ("tp", "pp", "dp", "cp", "ep", "mbs", "microbatches", "precision", "recompute")


def gain_errors() -> dict[str, list[float]]:
    """Errors of predicted gains by source: logarithms of predicted over measured gain, of runs that
    differ in schedule or chunks alone; without sequences in slices, of which one source has runs.
    """
    settings: dict[tuple[Any, ...], list[tuple[bool, str, int, float, float]]] = {}
    for row in chain(*map(read, WITH_SCHEDULES)):
        (found,), _ = against([row])
        if "error" not in found:
            continue
        setup = setup_of(row)
        run, _ = predict(setup)
        name = run.schedule_name
        if run.pp == 1 or run.pieces > 1:
            continue
        source = str(row.get("source", "")).partition(",")[0].partition("@")[0].partition(":")[0]
        sizes = (getattr(run, each) for each in (*SAME, "recompute_layers"))
        model = (setup.model.name, setup.model.layers, setup.model.seq, setup.model.vocab)
        key = (source, found["gpu"], found["software"], row.get("framework"), *model, *sizes)
        step = found["measured_step_s"], found["modelled_step_s"]
        known = settings.setdefault(key, [])
        if (name != "1f1b", name, run.vp, *step) not in known:
            known.append((name != "1f1b", name, run.vp, *step))
    errors: dict[str, list[float]] = {}
    for key, steps in settings.items():
        first, *others = sorted(steps)
        for other in others:
            if other[:3] != first[:3]:
                measured, modelled = first[3] / other[3], first[4] / other[4]
                errors.setdefault(key[0], []).append(log(modelled / measured))
    return errors


def gain_ranges() -> list[str]:
    """How many measured gains lie in the range that the other sources give."""
    errors = gain_errors()
    lines = ["| source | gains | half-width from the others | inside it | inside the printed one |"]
    lines.append(f"|{'---|' * 5}")
    counts = [0, 0, 0]
    for source, here in errors.items():
        half = half_of([rest for other, rest in errors.items() if other != source], 0.8)
        found = [len(here)]
        found += [sum(abs(error) <= width for error in here) for width in (half, HALF)]
        counts = [whole + part for whole, part in zip(counts, found, strict=True)]
        lines.append(f"| {source} | {found[0]} | {half * 100:.1f} % | {found[1]} | {found[2]} |")
    half = half_of(list(errors.values()), 0.8)
    lines.append(f"| all | {counts[0]} | {half * 100:.1f} % | {counts[1]} | {counts[2]} |")
    return lines


def best_of_each() -> list[str]:
    """The best plan of each schedule beside the best run that the authors of V-Half and V-Min found
    (table 3).
    """
    lines = [
        "| tokens, sequences a step | schedule | MFU, measured best | planned best | planned / "
        "measured | plan |"
    ]
    lines.append(f"|{'---|' * 6}")
    for (seq, gbs), best in GRID_SEARCH.items():
        for name, measured in best.items():
            sizes: dict[str, Any] = {
                "gpus": 40,
                "gbs": gbs,
                "seq": seq,
                "pp": [5, 10, 20, 40],
                "recomputes": "none",
                "zero": [1],
            }
            found = ppsim.plan(
                str(DATA / "unseen/gpt-98.5b.toml"),
                "dgx-a100",
                software="zero-bubble",
                schedules=name,
                **sizes,
            ).plans[0]
            mfu = found["mfu"] * 100
            plan = (
                f"tp {found['tp']}, pp {found['pp']}, dp {found['dp']}, microbatches of "
                f"{found['mbs']}"
            )
            cells = (
                f"{seq:,}, {gbs}",
                name,
                f"{measured} %",
                f"{mfu:.1f} %",
                f"{mfu / measured:.2f}",
                plan,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def runs() -> list[str]:
    """Errors of each table."""
    lines = ["| table | runs | as modelled: mean / median | corrected |", "|---|---|---|---|"]
    parts = {title: read(name) for name, title in NAMES.items()}
    most = parts[NAMES["measured_runs"]]
    parts["of the third table, dense models with a pipeline"] = [
        r for r in most if (r["pp"] or 1) > 1 >= (r.get("ep") or 1)
    ]
    parts["of it, mixtures of experts"] = [row for row in most if (row.get("ep") or 1) > 1]
    for title, rows in parts.items():
        found, summary = against(rows)
        both = " | ".join(sizes(found, key) for key in ("modelled_step_s", "predicted_step_s"))
        lines.append(f"| {title} | {summary['compared']} of {len(rows)} | {both} |")
    return lines


def gpu() -> list[str]:
    """Costs of a split backward on each GPU."""
    lines = [
        "| GPU | width | tokens | layers | (I + W) / B, autograd | issued ahead | deferred "
        "products | issued ahead | host, W by autograd |",
        f"|{'---|' * 9}",
    ]
    for name, folder in GPUS.items():
        rows = json.loads((folder / "results.json").read_text())["split"]
        for at in range(0, len(rows), 4):
            ms = [row["ms"] for row in rows[at : at + 4]]
            ratios = " | ".join(f"{(each['I'] + each['W']) / each['B']:.2f}" for each in ms)
            first = rows[at]
            size = f"{name} | {first['hidden']} | {first['tokens']} | {first['layers']}"
            lines.append(
                f"| {size} | {ratios} | {first['host_ms']['W'] / first['layers']:.1f} ms a layer |"
            )
    return lines


def gpu_runs() -> list[str]:
    """Errors of runs on parts of each GPU."""
    lines = [
        "| GPU | session | nominal costs | held-out | replay | pairs ranked right |",
        f"|{'---|' * 6}",
    ]
    for gpu_name, folder in GPUS.items():
        for name, title in GPU_RUNS.items():
            result = validate(load(str(folder / f"{name}.json.gz")))
            cells = [
                f"{median(errors) * 100:.1f} / {errors.max() * 100:.1f} %"
                for errors in map(result.errors, ("nominal", "held-out", "replay"))
            ]
            ranked = f"{result.ranked_right} of {result.pairs}"
            lines.append(f"| {gpu_name} | {title} | {' | '.join(cells)} | {ranked} |")
    return lines


BLOCKS: dict[str, Callable[[], list[str]]] = {
    "folds": folds,
    "terms": terms,
    "given": given,
    "runs": runs,
    "zero-bubble": zero_bubble,
    "gains": gains,
    "gain-ranges": gain_ranges,
    "vocabulary": vocabulary,
    "best-of-each": best_of_each,
    "gpu": gpu,
    "gpu-runs": gpu_runs,
}


def parts_of(name: str) -> list[str]:
    """Split the page at a block: what is before it, the block, and what follows."""
    return re.split(
        rf"(?<=<!-- {name}: python -m tests.benchmarks.measurements {name} -->\n)(.*?)(?=<!-- end "
        rf"-->)",
        PAGE.read_text(),
        maxsplit=1,
        flags=re.DOTALL,
    )


def main(names: list[str]) -> None:
    """Write the blocks of those names, or all."""
    for name in names or BLOCKS:
        new = "\n".join([*BLOCKS[name](), ""])
        head, _, foot = parts_of(name)
        PAGE.write_text(head + new + foot)


if __name__ == "__main__":
    main(sys.argv[1:])
