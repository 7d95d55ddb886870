"""Records of runs as files."""

import gzip
import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.ops import Kind
from ppsim.errors import InputError, PpsimError
from ppsim.real.runs.record import dump, load
from ppsim.real.validation.analyse import validate
from ppsim.real.validation.verdict import validation_object

RECORD = Path(__file__).parents[2] / "data/records/compute-p2-torch.json.gz"
COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")


def test_records_hold_names_of_kinds_and_older_ones_with_codes_load_alike(tmp_path):
    """A record with codes, as written before, loads as the one with names that is written now."""
    old = load(str(RECORD))
    assert isinstance(
        json.loads(gzip.decompress(RECORD.read_bytes()))["runs"][0]["queues"]["kind"][0], int
    )
    text = dump(old, "new.json", resolution_us=1)
    kinds = {kind for run in json.loads(text)["runs"] for kind in run["queues"]["kind"]}
    assert {"F", "B", "SEND_F", "RECV_B"} <= kinds <= {kind.name for kind in Kind}
    path = tmp_path / "new.json"
    path.write_bytes(text)
    for before, after in zip(old.runs, load(str(path)).runs, strict=True):
        for ours, theirs in (
            (before.lowered.schedule, after.lowered.schedule),
            (before.lowered.compute, after.lowered.compute),
        ):
            assert all(
                np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in COLUMNS
            )


SMALL = json.loads(gzip.decompress((RECORD.parent / "timed-p4.json.gz").read_bytes()))
PAIRED = next(i for i, run in enumerate(SMALL["runs"]) if max(run["queues"]["pair"]) >= 0)
SMALL["runs"] = [SMALL["runs"][0], SMALL["runs"][PAIRED]]
WRONG: tuple[Any, ...] = (
    "DROP",
    -(2**31),
    -3,
    -2,
    -1,
    0,
    1,
    7,
    200,
    2**30,
    2**31 - 1,
    2**63,
    1.5,
    "x",
    None,
    [],
    {},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON value; of a long list its first, middle and last."""
    yield path
    keys: Any = ()
    if isinstance(value, dict):
        keys = value
    elif isinstance(value, list) and value:
        keys = sorted({0, 1 % len(value), len(value) // 3, len(value) // 2, len(value) - 1})
    for key in keys:
        yield from places(value[key], (*path, key))


PLACES = list(places(SMALL))[1:]


CHANGES = st.tuples(st.sampled_from(PLACES), st.sampled_from(WRONG))


def change_one(change: tuple[tuple[Any, ...], Any], path: Path) -> None:
    """Set or drop one value of the record, and analyse what loads; anything but our own errors is a
    fault.
    """
    changed, (place, value) = deepcopy(SMALL), change
    *outer, last = place
    holder: Any = changed
    for key in outer:
        holder = holder[key]
    if value == "DROP":
        del holder[last]
    else:
        holder[last] = value
    path.write_text(json.dumps(changed))
    try:
        record = load(str(path))
    except InputError:
        return
    with suppress(PpsimError), np.errstate(all="ignore"):
        validation_object(validate(record), record, 0.1)


@pytest.mark.slow
@given(change=CHANGES)
def test_one_changed_value_is_refused_or_analysed(change, tmp_path_factory):
    """Anywhere in the file: a record with a fault is refused, and never reaches compiled code."""
    change_one(change, tmp_path_factory.mktemp("r") / "r.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda run: run["queues"]["stage"].__setitem__(0, 2**31 - 1),
            "stage 2147483647 of entry 0 is outside 0 to 3",
        ),
        (lambda run: run["queues"]["offsets"].__setitem__(1, 10**9), "offsets do not ascend"),
        (
            lambda run: run["queues"]["microbatch"].__setitem__(0, 1),
            r"runs\[0\]: gpipe: the lowered queues have other ops",
        ),
        (lambda run: run["queues"]["kind"].__setitem__(1, "SEND_B"), r"runs\[0\]: gpipe: "),
        (lambda run: run["worked"][0].__setitem__(5, -1), "a time waited or worked below 0"),
        (
            lambda run: run["costs"]["time"][0].__setitem__(0, -1),
            "the time of an op must be zero or more",
        ),
    ],
)
def test_a_record_that_no_run_left_is_bad_input(change, says, tmp_path):
    changed = deepcopy(SMALL)
    change(changed["runs"][0])
    path = tmp_path / "r.json"
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match=says) as caught:
        load(str(path))
    assert caught.value.exit_code == 2
