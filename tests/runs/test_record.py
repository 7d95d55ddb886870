"""Records of runs as files."""

import gzip
import json
from pathlib import Path

import numpy as np

from ppsim.core.ops import Kind
from ppsim.runs.record import dump, load

RECORD = Path(__file__).parent.parent / "data/records/compute-p2-torch.json.gz"
COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")


def test_records_hold_names_of_kinds_and_older_ones_with_codes_load_alike(tmp_path):
    """A record with codes, as written before, loads as the one with names that is written now."""
    old = load(str(RECORD))
    assert isinstance(json.loads(gzip.decompress(RECORD.read_bytes()))["runs"][0]["queues"]["kind"][0], int)
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
            assert all(np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in COLUMNS)
