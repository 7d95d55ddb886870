"""A what-if is ``run`` with that option: random schedules, options and changes."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from ppsim.schedules import families
from tests.cases import SOME
from tests.commands import invoke

NUMBERS = st.sampled_from([0.5, 1.0, 1.5, 3.0])
STEPS = {"steps": ["1", "2", "3"], "t-optimizer": ["0.5", "2"], "t-reduce-grad": ["1.5"]}
COPIES = {"offload": ["1", "all", "50%"], "t-offload": ["0.5", "2"], "t-reload": ["0.5", "3"]}


def options(P: int, M: int) -> dict[str, st.SearchStrategy[str]]:
    """A value of each option that both commands take, as text."""
    number = NUMBERS.map(str)
    each = st.lists(NUMBERS, min_size=P, max_size=P).map(lambda values: ",".join(map(str, values)))
    factors = st.lists(NUMBERS, min_size=M, max_size=M).map(lambda row: ",".join(map(str, row)))
    return {
        **dict.fromkeys(("tf", "tb", "ti", "tw", "tfb", "tr", "comm"), number),
        "speed": each,
        "mb": st.integers(1, 9).map(str),
        "chunks": st.integers(1, 3).map(str),
        "group-size": st.integers(1, 4).map(str),
        "limit": st.integers(2, 12).map(str),
        "slices": st.integers(2, 4).map(str),
        "after-i": st.sampled_from(["0", "0.5"]),
        "cost-per": st.sampled_from(["device", "stage"]),
        "recompute": st.sampled_from(["full", "none", "first:1"]),
        "p2p": st.sampled_from(["overlap", "blocking", "batched"]),
        "order": st.sampled_from(["early", "even-first", "torch"]),
        "link": st.integers(0, max(P - 2, 0)).map(lambda d: f"{d}-{d + 1}=2.5"),
        "mb-scale": factors,
        **{name: st.sampled_from(values) for name, values in {**COPIES, **STEPS}.items()},
    }


NAMES = [family.name for family in families()]
MANY = ("link", "mb-scale")  # which add to those given before


@st.composite
def cases(draw) -> tuple[str, dict[str, str], dict[str, str], str]:
    """A schedule, options of a run, options that change, and the schedule afterwards."""
    P, M = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    every = options(P, M)
    given_first = draw(st.lists(st.sampled_from(sorted(every)), max_size=5, unique=True))
    if draw(st.booleans()):
        given_first += [name for name in COPIES if name not in given_first]
    changed = draw(st.lists(st.sampled_from(sorted(every)), max_size=2, unique=True))
    name = draw(st.sampled_from(NAMES))
    others = [*NAMES, name, name, name] if changed else NAMES
    other = draw(st.sampled_from(others))
    first = {"devices": str(P), "mb": str(M)} | {key: draw(every[key]) for key in given_first}
    return name, first, {key: draw(every[key]) for key in changed}, other


def spelled(options: dict[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def answered(*words: str) -> Any:
    """What a command says as JSON; None where it refuses."""
    result = invoke(*words, "--json")
    return json.loads(result.stdout) if result.exit_code == 0 else None


COPIED = {
    "devices": "3",
    "mb": "12",
    "comm": "0.25",
    "offload": "1",
    "t-offload": "0.5",
    "t-reload": "2",
}


@SOME
@given(cases())
@example(("v-half", COPIED, {"t-reload": "3"}, "v-half"))
@example(("1f1b", COPIED, {"speed": "1,0.5,1"}, "1f1b"))
@example(("interleaved", {"devices": "4", "mb": "8", "chunks": "3"}, {}, "looped-bfs"))
@example(("interleaved", {"devices": "4", "mb": "8", "chunks": "3"}, {}, "1f1b"))
@example(("1f1b-overlap", {"devices": "4", "mb": "8", "tfb": "2"}, {}, "1f1b"))
@example(("1f1b", {"devices": "2", "mb": "4"}, {"steps": "2"}, "1f1b"))
@example(("zb-1p", {"devices": "2", "mb": "4"}, {"t-optimizer": "2"}, "zb-1p"))
def test_a_what_if_is_the_run_with_that_option(case):
    """Queues follow costs as in ``run``; what another schedule does not take is named."""
    name, first, changed, other = case
    parts = [f"{key}={value}" for key, value in changed.items()]
    parts += [f"schedule={other}"] if other != name else []
    if not parts:
        return
    found = answered("explain", name, *spelled(first), "--what-if", ",".join(parts))
    together = {key: value for key, value in first.items() if key not in changed or key in MANY}
    if found is not None:
        (row,) = found["what_if"]
        left = row["change"].partition(" (without ")[2].rstrip(")").split(", ")
        together = {key: value for key, value in together.items() if f"--{key}" not in left}
    words = [*spelled(together), *spelled(changed)]
    ran = answered("run", other, *words)
    if found is None:
        if ran is None or answered("run", name, *spelled(first)) is None:
            return
        fewer = [{k: v for k, v in changed.items() if k != key} for key in changed]
        kept = [{k: v for k, v in first.items() if k not in each or k in MANY} for each in fewer]
        pairs = zip(kept, fewer, strict=True)
        less = [answered("run", other, *spelled(a), *spelled(b)) for a, b in pairs]
        # a change without effect is refused, which a run does not see
        assert ran["makespan"] in [each["makespan"] for each in less if each], case
    else:
        assert ran is not None, (case, row)
        assert abs(row["makespan"] - ran["makespan"]) <= 1e-9 * ran["makespan"], (case, row)
