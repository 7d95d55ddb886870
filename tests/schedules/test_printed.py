"""What ``ppsim run`` prints of a schedule with an author is what the author's program makes."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.commands import invoke
from tests.golden import COSTS, NAMES, RECORDS

LANES = Path(__file__).parents[1] / "data" / "lanes"
FACTORS = (1, 1.25, 0.8, 1.1, 0.9)  # of stages, where the costs of a row are uneven
EVERY = 19  # of the records, which the fast gear takes


@cache
def rows(file: str, key: str = "") -> list[list[Any]]:
    table = json.loads(gzip.decompress((LANES / f"{file}.json.gz").read_bytes()))
    return list(table[key] if key else table)


def printed(*words: object) -> dict[str, Any]:
    """The numbers that ``ppsim run WORDS --json`` prints."""
    result = invoke("run", *map(str, words), "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def every(found: list[Any], step: int = EVERY) -> list[Any]:
    """Mark as slow what the fast gear leaves out: all but the first and each ``step`` after it."""
    return [
        pytest.param(each, marks=[pytest.mark.slow] if n % step else [])
        for n, each in enumerate(found)
    ]


def schedule_words(record: dict[str, Any], folder: Path) -> list[object]:
    """The words that make a record's schedule; those of a file where it is planned with costs of
    its own.
    """
    name, shape = NAMES[record["schedule"]], ["--devices", record["P"], "--mb", record["M"]]
    if record["placement"] != "bidirectional":
        shape += ["--chunks", record["V"]]
    if record["schedule"] == "interleaved":
        shape += ["--group-size", record["microbatch_group_size_per_vp_stage"]]
    if record.get("overlap_moe_expert_parallel_comm"):
        name = "kimi"  # Megatron's order does not say which ops it fuses
    # nothing is held after I: W waits freely
    if name == "zb-v" and record["mem_setting"] == "mf1_mw0":
        shape += ["--limit", 2 * max(record["M"], record["P"])]
    if name == "zb-auto":  # 1p and 2p are how many times the memory of 1F1B
        shape += ["--limit", int(record["schedule"][3]) * record["P"]]
        shape += ["--after-i", {"mf1_mw0": 0.0, "paperlike": 32 / 87}[record["mem_setting"]]]
    if not (cost := record.get("search_cost")):
        return [name, *shape]
    file = folder / "planned.csv"
    planned = {"tf": cost["F"], "ti": cost["B"], "tw": cost["W"], "comm": cost["comm"]}
    printed(name, *shape, *cost_words(planned), "-o", file)
    return [file]


def cost_words(costs: dict[str, Any]) -> list[object]:
    """The options that give these costs of each stage."""
    return [
        "--cost-per",
        "stage",
        *(word for name, value in costs.items() for word in (f"--{name}", value)),
    ]


@pytest.mark.parametrize("name", every(list(RECORDS)))
def test_numbers_are_the_originals(name, tmp_path):
    """Makespan, longest span, idle time and peaks at every cost model; a pair is one op here, as in
    keys with ``|``.
    """
    record = RECORDS[name]
    pairs = any("|" in key for key in record["makespan"])
    words = schedule_words(record, tmp_path)
    keys = [key for key in record["makespan"] if ("|" in key) == pairs]
    assert len(keys) >= 4
    for key in keys:
        found = printed(*words, *cost_words(COSTS[key.removesuffix("|pair_atomic")]))
        assert found["makespan"] == record["makespan"][key], key
        assert found["span"] == record["rank_span_max"].get(key, found["span"]), key
        assert sum(found["idle"]) == record["idle_total"].get(key, sum(found["idle"])), key
        assert found["peak_activations"] == record["peak_W"], key


@pytest.mark.parametrize("words", [("run",), ("run", "-q"), ("run", "--json"), ("compare", "1f1b")])
def test_what_microbatches_count_is_said_where_no_step_ends_in_a_flush(words):
    """By 2BW, whose idle share is of the fill and drain of the steps shown; by no schedule with a
    flush.
    """
    said = "M counts the microbatches of one optimizer step, and no step ends in a flush"
    assert said in invoke(*words, "pipedream-2bw", "--devices", "4", "--mb", "8").output
    assert said not in invoke(*words, "zb-1p", "--devices", "4", "--mb", "8").output


@pytest.mark.parametrize("row", every(rows("offload", "alone")))
def test_numbers_of_grouped_and_uniform_are_pipeoffloads(row):
    """W runs right behind its I, so that the gradient leaves before it."""
    name, devices, chunks, microbatches, group, costs, makespan, peaks = row
    uneven = costs.startswith("uneven")
    factors = [FACTORS[stage % 5] if uneven else 1 for stage in range(devices * chunks)]
    times = zip(("--tf", "--ti", "--tw"), (1, 1.2, 0.7) if uneven else (1, 1, 1), strict=True)
    words = [
        word
        for option, time in times
        for word in (option, ",".join(str(time * factor) for factor in factors))
    ]
    words += ["--group-size", group] if name == "gis" else []
    found = printed(
        name,
        "--devices",
        devices,
        "--chunks",
        chunks,
        "--mb",
        microbatches,
        "--cost-per",
        "stage",
        *words,
    )
    assert found["makespan"] == pytest.approx(makespan)
    assert found["peak_activations"] == peaks
