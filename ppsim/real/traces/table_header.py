"""What the headers of a run's files say of each other: whether they are of one run, and whether one is missing."""

from __future__ import annotations

from collections.abc import Sequence

from ppsim.base.source import name_of
from ppsim.errors import InputError
from ppsim.real.traces.table_file import File

MOST_DEVICES = 1 << 20
UNKNOWN = -1


def check_headers(source: str, files: Sequence[File]) -> None:
    """Refuse files that are, by the recorder's headers, of two runs or lack a device's (InputError)."""
    first = files[0]
    for file in files[1:]:
        runs = [each.header.get("run") for each in (first, file)]
        if None not in runs and runs[0] != runs[1]:
            raise InputError(
                f"{source} holds files of two runs: '{name_of(file.path)}' is of another than '{name_of(first.path)}'",
                "a folder for each run, without files of an older one",
            )
    told = [tuple(file.header.get(name, UNKNOWN) for name in ("replica", "device", "devices")) for file in files]
    if not all(isinstance(n, int) and n > UNKNOWN for row in told for n in row[1:]):
        return
    devices = min(max(row[2] for row in told), MOST_DEVICES)
    for replica in sorted({row[0] for row in told}):
        have = {row[1] for row in told if row[0] == replica}
        missing = next((device for device in range(devices) if device not in have), None)
        if missing is not None:
            which = f" of replica {replica}" if len({row[0] for row in told}) > 1 else ""
            raise InputError(
                f"{source}: there is no file of device {missing}{which}, of {devices}",
                "the files of all processes in one folder",
            )
