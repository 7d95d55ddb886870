"""Lower bounds on a device's time from its limit of activations.

For one replica and equal microbatches. Let a device hold stages s1 < ... < sV, N = V x M forwards
and at most K activations, K < N (else memory limits nothing). Each activation is held from its F to
its I, and a share of it on to W. Where stages leave different amounts, the cap is counted in the
least of the device's; round trips share it as it is.

* Its first gradient is of stage sV, a round trip after its first F; until then it can run only K
  forwards.
* Its last F is of stage sV. Then at most K activations are held, whose backwards are all that is
  left; and that F's own microbatch needs the round trip from sV, down to the gradient and W of s1.
* The two times do not overlap, as more than K forwards run.
* Each activation is held for a round trip at least: N round trips share K places, of which the
  first K - 1 are taken one forward after another, and the last K - 1 given back one by one.
* The (n + K)-th F starts after the n-th W has ended, a round trip and W after the n-th F.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.search.bounds.work import Floats, Work

ROUNDING = 1e-9
# Each device takes a Python step; beyond this number memory is left out, which makes bounds weaker
# and no less true.
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
    """Bound each device's time by its memory; None where no device is limited, or the arguments do
    not apply.

    ``amounts`` are the activations that an F of each stage leaves. Returns, from each device's
    first start, the time to the end of its last op, and to the end of the last gradient of its
    lowest stage, both of shape (devices,).
    """
    if (
        not (len(work.count) == 1 and work.alike and work.returns)
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
        every = order[ends[device] : ends[device + 1]]
        own = every[amounts[every] > 0]
        if not len(own) or not work.gradient.any():
            continue
        least = int(amounts[own].min())
        places = int(min((caps[device] + ROUNDING) / least, len(own) * M))
        if not len(own) <= places < len(own) * M:
            continue
        begin, turn, forward, gradient, rest, frees = (array[0, own] for array in times)
        cap, share = float(caps[device]) / least, amounts[own] / least
        found = _Device(begin, turn, forward, gradient, rest, frees, cap, places, M, after_i, share)
        whole[device], until = _bound(found)
        gradients[device] = until if own[0] == every[0] else 0.0
    return whole, gradients


def _bound(d: _Device) -> tuple[float, float]:
    """Return the least time to the end of the last op, and to that of the last gradient of the
    lowest stage.
    """
    V, N, K, M = len(d.begin), len(d.begin) * d.microbatches, d.places, d.microbatches
    both = d.gradient + d.rest
    total = M * float((d.forward + both).sum())
    held = min(float(_largest(d.forward, M, np.array([K]))[0]), _fill(d, d.forward))
    first = max(0.0, float(d.turn[-1] - d.begin[0]) - held)
    # Of K places, A hold an activation whole and the others the share between I and W, as the last
    # F starts.
    A = np.array([K]) if d.after_i == 1 else np.arange(V, K + 1)
    pending = (
        np.minimum(N - A, np.floor((d.cap - A) / d.after_i + ROUNDING)) if d.after_i else N - A
    )
    left_w, left = float(d.rest.max()) * pending, np.minimum(_largest(both, M, A), _fill(d, both))
    remaining = float(d.forward[-1]) + left + left_w
    down = float(d.turn[0] + d.gradient[0] - d.begin[-1])
    whole = first + total - remaining + np.maximum(down + float(d.rest[0]), remaining)
    # What is left of each held activation beyond a gradient may follow the last gradient.
    beyond = both - d.gradient.min()
    after = np.minimum(_largest(beyond, M, A), _fill(d, beyond)) + left_w
    until = first + total + np.maximum(down - remaining, -after)
    # Round trips.
    trip = d.turn - d.begin + d.gradient
    fill, drain = float(d.forward.min()), float(d.frees.min())
    most = float(d.amounts.max())  # that an F adds
    steps = d.cap - most * np.arange(1, np.ceil(d.cap / most - ROUNDING))
    held = M * float((d.amounts * (trip + d.after_i * d.rest)).sum())
    area = (held + (fill + drain) * float(steps.sum())) / d.cap
    last = 0.0
    if d.after_i == 1:
        rounds, over = divmod(N - 1, K)
        cycle = float((trip + d.rest).min())
        last = rounds * cycle + over * fill
        # Before the last round trips the first places fill as above.
        early = (K + over) * fill + (1 + over) * float(both.min()) + first
        last = max(last, (rounds - 1) * cycle + early) if rounds else last
    return (
        max(float(whole.min()), area, last + down + float(d.rest[0])),
        max(float(until.min()), last + down),
    )


def _fill(d: _Device, values: Floats) -> float:
    """Return the largest sum of values of ops whose activations fit the cap together, with a share
    of the last op.
    """
    room, total = d.cap, 0.0
    for row in np.argsort(-values / d.amounts):
        share = min(float(d.microbatches), room / float(d.amounts[row]))
        room, total = room - share * float(d.amounts[row]), total + share * float(values[row])
    return total


def _largest(values: Floats, each: int, counts: NDArray[np.int64]) -> Floats:
    """Return the sum of the ``counts`` largest values, each of which occurs ``each`` times."""
    taken = np.clip(counts[:, None] - each * np.arange(len(values)), 0, each)
    return (taken * np.sort(values)[::-1]).sum(axis=1)
