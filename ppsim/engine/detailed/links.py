"""Changes of single links: ``6-7=30`` (latency, both ways), ``0>3=0.1,25GB/s`` (one way)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.base.times import MICROSECONDS
from ppsim.engine.detailed.named_links import NAMED
from ppsim.engine.detailed.spec import Network, Value
from ppsim.errors import InputError

HINT = "A-B=LATENCY, A>B=LATENCY for one direction, A-B=LATENCY,25GB/s or A-B=LATENCY,ib-400"


@dataclass(frozen=True)
class LinkChange:
    """One link as a user gives it."""

    source: int  # a device
    target: int  # another device
    both_ways: bool  # whether the link back is the same
    latency: float  # in the costs' unit
    gb_per_s: float | None = None  # bandwidth in 10^9 bytes per second, or None for no limit

    @property
    def ways(self) -> list[tuple[int, int]]:
        """The directed links that the change applies to."""
        return [(self.source, self.target), (self.target, self.source)][: 1 + self.both_ways]


def parse_link(text: str, devices: int) -> LinkChange:
    """Return the link that a text describes (InputError: not a link, or an unknown device)."""
    number = r"[0-9]*\.?[0-9]+(?:e-?[0-9]{1,3})?"
    match = re.fullmatch(
        rf"([0-9]{{1,9}})([->])([0-9]{{1,9}})=({number})(?:,({number})GB/s|,([a-z].*))?",
        text.strip(),
    )
    if match is None:
        raise InputError(f"not a link: '{text[:40]}'", HINT)
    if match[6] and match[6] not in NAMED:
        raise InputError(f"unknown name of a link in '{text[:40]}'", f"one of {', '.join(NAMED)}")
    source, target = int(match[1]), int(match[3])
    if source == target or max(source, target) >= devices:
        raise InputError(
            f"'{text[:40]}' does not join two of {devices} devices", f"two of 0 to {devices - 1}"
        )
    speed = NAMED[match[6]][1] if match[6] else None if match[5] is None else float(match[5])
    if speed == 0:
        raise InputError(f"'{text[:40]}' has no bandwidth", "more than zero, or leave it out")
    return LinkChange(source, target, match[2] == "-", float(match[4]), speed)


def without_ways(texts: Sequence[str], ways: Sequence[tuple[int, int]], devices: int) -> list[str]:
    """Return the texts of links without those from and to these devices; a text of both directions
    keeps the other one.
    """
    found = list[str]()
    for text in texts:
        of_text = parse_link(text, devices).ways
        others = [way for way in of_text if way not in ways]
        if others == of_text:
            found.append(text)
        else:
            value = text.partition("=")[2]
            found += [f"{source}>{target}={value}" for source, target in others]
    return found


def change_links(
    network: Network, devices: int, unit: str, changes: Sequence[LinkChange]
) -> Network:
    """Return the network with these links changed.

    Raises:
        InputError: a link is changed twice, or has a bandwidth, and the costs have no unit of time.
    """
    if not changes:
        return network
    _refuse_twice(changes)
    alpha, beta = _full_matrix(network.alpha, devices), _full_matrix(network.beta, devices)
    for change in changes:
        for way in change.ways:
            alpha[way], beta[way] = change.latency, _bytes_per_unit(change, unit)
    return replace(network, alpha=alpha, beta=beta)


def change_latencies(
    comm: Value, devices: int, unit: str, changes: Sequence[LinkChange], message_bytes: float | None
) -> NDArray[np.float64]:
    """Return latencies of messages in the simple model with these links changed.

    Shape (devices, devices).

    Raises:
        InputError: a link is changed twice, or has a bandwidth, and messages have no size or costs
            no unit of time.
    """
    _refuse_twice(changes)
    latency = _full_matrix(comm, devices)
    for change in changes:
        extra = 0.0
        if change.gb_per_s is not None:
            if message_bytes is None:
                raise InputError(
                    "a bandwidth has no effect without the size of messages", "--message 32MiB"
                )
            extra = message_bytes / _bytes_per_unit(change, unit)
        for way in change.ways:
            latency[way] = change.latency + extra
    return latency


def _refuse_twice(changes: Sequence[LinkChange]) -> None:
    """Raise InputError for a link that two changes set, of which only the last would count."""
    times_set = Counter(way for change in changes for way in change.ways)
    for (source, target), count in times_set.items():
        if count > 1:
            raise InputError(
                f"the link from device {source} to device {target} is set twice",
                "leave one --link out; A>B=LATENCY sets one direction",
            )


def _full_matrix(value: Value, devices: int) -> NDArray[np.float64]:
    return np.array(np.broadcast_to(np.asarray(value, np.float64), (devices, devices)))


def _bytes_per_unit(change: LinkChange, unit: str) -> float:
    if change.gb_per_s is None:
        return np.inf
    if unit not in MICROSECONDS:
        raise InputError(
            f"a bandwidth in GB/s needs costs in a unit of time, not in {unit}", "--unit ms"
        )
    return change.gb_per_s * 1e3 * MICROSECONDS[unit]
