"""Lower bounds on a device's time from its memory cap.

They are for one replica and equal microbatches. Let a device run stages s1 < ... < sV, N = V x M
forwards, and hold at most K activations, with K < N (otherwise the cap has no effect). Each
activation is held from its F to its I, and a share of it until W. If stages have activations of
different sizes, the cap is counted in the device's smallest.

* The first gradient on the device is of stage sV, a round trip after its first F. Until then it can
  run only K forwards.
* Its last F is of stage sV. Then at most K activations are held, and only their backwards are left.
  The microbatch of that F still needs the round trip from sV to the gradient and W of s1.
* These two times do not overlap, as more than K forwards run.
* Each activation is held for at least a round trip: N round trips share K places. The first K - 1
  places are filled by one forward after another, and the last K - 1 are freed one by one.
* The (n + K)-th F starts after the end of the n-th W, a round trip and W after the n-th F.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.search.bounds.work import Floats, Work

ROUNDING = 1e-9
# Each device takes a step of Python; with more devices memory is ignored, and bounds are weaker.
MOST_DEVICES = 4096
Pair = tuple[Floats, Floats]


@dataclass(frozen=True)
class _Device:
    """One device's stages, lowest first, and its memory cap."""

    begin: Floats
    turn: Floats
    forward: Floats
    gradient: Floats
    rest: Floats
    frees: Floats
    cap: float
    places: int
    microbatches: int
    after_i: float
    amounts: Floats


def find_windows(
    work: Work, caps: NDArray[np.float64], after_i: float, amounts: NDArray[np.int64]
) -> Pair | None:
    """Return lower bounds on each device's time, shape (devices,), from its memory cap.

    They are times from the device's first start to the end of its last op, and to the end of the
    last gradient of its lowest stage. ``amounts`` are the activations that an F of each stage
    allocates. None if no device has a cap, or the arguments do not apply.
    """
    if (
        not (len(work.count) == 1 and work.is_uniform and work.has_backwards)
        or np.isinf(caps).all()
        or len(caps) > MOST_DEVICES
    ):
        return None
    M, P = int(work.count.max()), work.placement.n_devices
    whole, gradients = np.zeros(P), np.zeros(P)
    times = (work.begin, work.turn, work.forward, work.gradient, work.rest, work.frees)
    order = np.argsort(work.placement.devices[0], kind="stable")
    ends = np.searchsorted(work.placement.devices[0][order], np.arange(P + 1))
    for device in range(P):
        stages = order[ends[device] : ends[device + 1]]
        holding = stages[amounts[stages] > 0]
        if not len(holding) or not work.gradient.any():
            continue
        least = int(amounts[holding].min())
        places = int(min((caps[device] + ROUNDING) / least, len(holding) * M))
        if not len(holding) <= places < len(holding) * M:
            continue
        begin, turn, forward, gradient, rest, frees = (array[0, holding] for array in times)
        cap, share = float(caps[device]) / least, amounts[holding] / least
        found = _Device(begin, turn, forward, gradient, rest, frees, cap, places, M, after_i, share)
        whole[device], until = _bound(found)
        gradients[device] = until if holding[0] == stages[0] else 0.0
    return whole, gradients


def _bound(d: _Device) -> tuple[float, float]:
    """Return the least time to the end of the last op, and of the lowest stage's last gradient."""
    V, N, K, M = len(d.begin), len(d.begin) * d.microbatches, d.places, d.microbatches
    both = d.gradient + d.rest
    total = M * float((d.forward + both).sum())
    held = min(float(_largest(d.forward, M, np.array([K]))[0]), _fill(d, d.forward))
    first = max(0.0, float(d.turn[-1] - d.begin[0]) - held)
    # When the last F starts, A of the K places hold a whole activation, the others the share that
    # is left between I and W.
    A = np.array([K]) if d.after_i == 1 else np.arange(V, K + 1)
    pending = (
        np.minimum(N - A, np.floor((d.cap - A) / d.after_i + ROUNDING)) if d.after_i else N - A
    )
    left_w, left = float(d.rest.max()) * pending, np.minimum(_largest(both, M, A), _fill(d, both))
    remaining = float(d.forward[-1]) + left + left_w
    down = float(d.turn[0] + d.gradient[0] - d.begin[-1])
    whole = first + total - remaining + np.maximum(down + float(d.rest[0]), remaining)
    # The work for each held activation beyond one gradient may follow the last gradient.
    beyond = both - d.gradient.min()
    after = np.minimum(_largest(beyond, M, A), _fill(d, beyond)) + left_w
    until = first + total + np.maximum(down - remaining, -after)
    # Round trips.
    trip = d.turn - d.begin + d.gradient
    fill, drain = float(d.forward.min()), float(d.frees.min())
    most = float(d.amounts.max())  # largest amount that an F allocates
    steps = d.cap - most * np.arange(1, np.ceil(d.cap / most - ROUNDING))
    held = M * float((d.amounts * (trip + d.after_i * d.rest)).sum())
    area = (held + (fill + drain) * float(steps.sum())) / d.cap
    last = 0.0
    if d.after_i == 1:
        rounds, over = divmod(N - 1, K)
        cycle = float((trip + d.rest).min())
        last = rounds * cycle + over * fill
        # Before the last round trips, the first places are filled one by one as above.
        early = (K + over) * fill + (1 + over) * float(both.min()) + first
        last = max(last, (rounds - 1) * cycle + early) if rounds else last
    return (
        max(float(whole.min()), area, last + down + float(d.rest[0])),
        max(float(until.min()), last + down),
    )


def _fill(d: _Device, values: Floats) -> float:
    """Return the largest sum of values of ops whose activations fit the cap, the last in part."""
    room, total = d.cap, 0.0
    for row in np.argsort(-values / d.amounts):
        share = min(float(d.microbatches), room / float(d.amounts[row]))
        room, total = room - share * float(d.amounts[row]), total + share * float(values[row])
    return total


def _largest(values: Floats, each: int, counts: NDArray[np.int64]) -> Floats:
    """Return sums of the ``counts`` largest values, when each value occurs ``each`` times."""
    taken = np.clip(counts[:, None] - each * np.arange(len(values)), 0, each)
    return (taken * np.sort(values)[::-1]).sum(axis=1)
