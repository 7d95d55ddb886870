"""Validate the columns that kernels index unchecked.

Kernels run without bounds checks. So ``Placement``, ``Schedule``, ``Lowered`` and ``Costs``
validate their columns on creation: indices in range, ascending offsets up to the length, known
kinds, mutual and adjacent pairs, contiguous batches, finite times from 0. Properties of two objects
are validated where they are combined. :mod:`ppsim.inputs.check` checks whether a schedule makes
sense.

Signed integers are in ``0 .. high - 1`` if the maximum of their unsigned view is below ``high``,
which takes one pass at the speed of memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import quote
from ppsim.core.ops import COMPUTE, OF_STAGE, RECEIVES, SENDS, STAGELESS, TIMED, Kind, mask
from ppsim.errors import InputError

Integers = NDArray[Any]
Queues = Any  # a ppsim.core.schedule.Schedule, whose module imports this one
NONE = -1
# Longer times would overflow when they are added up.
LONGEST = 1e100
# Ops are counted in 32 bits.
MOST_OPS = (1 << 31) - 1
HINT = "a file that ppsim wrote, or columns as ppsim.core.schedule describes them"
_COMPUTES, _MESSAGES, _OF_STAGE = mask(COMPUTE), mask((*SENDS, *RECEIVES)), mask(OF_STAGE)
_STAGELESS = mask(STAGELESS)


def require_type(name: str, value: object, kind: type, example: str) -> None:
    """Raise InputError unless a value is of a type; ``example`` is code that makes one."""
    if not isinstance(value, kind):
        raise InputError(
            f"{name}: not a {kind.__name__}: {quote(value)}; expected e.g. {example}", example
        )


def require_each(
    name: str, given: object, kind: type, count: int, *, unknown: bool = False
) -> None:
    """Raise InputError unless values are a list or tuple of a type, as many as ``count`` or none.

    With ``unknown``, None may stand for one of them.
    """
    if not isinstance(given, list | tuple):
        raise InputError(f"{name}: not a list: {quote(given)}", f"one {kind.__name__} each")
    for each in given:
        if each is not None or not unknown:
            require_type(name, each, kind, f"a list of {kind.__name__}")
    if len(given) not in (0, count):
        raise InputError(f"{name}: {len(given)} for {count} timelines", "one for each, or none")


def is_whole(value: object) -> bool:
    """Return True for a whole number of Python or numpy, but not for True and False."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def prove_placement(n_devices: int, devices: Integers) -> None:
    """Raise InputError unless every stage has a device, in one replica or two."""
    _refuse_unless(is_whole(n_devices), f"not a number of devices: {quote(n_devices)}")
    _refuse_unless(
        _integers(devices, 2) and len(devices) in (1, 2),
        "a placement has one or two rows of devices",
    )
    _refuse_unless(n_devices >= 1, f"a placement has 1 device or more, got {n_devices}")
    _prove_range("a placement", "device", devices.ravel(), n_devices)


def prove_queues(queues: Queues) -> None:
    """Raise InputError with the column and the op if a column of a schedule is invalid."""
    name = queues.name
    for key in ("n_microbatches", "n_slices", "n_rounds"):
        value = getattr(queues, key)
        _refuse_unless(is_whole(value), f"{name}: {key} is not a whole number: {quote(value)}")
    _refuse_unless(queues.n_slices >= 1, f"{name}: {queues.n_slices} slices")
    _refuse_unless(
        queues.n_microbatches <= MOST_OPS,
        f"{name}: {quote(queues.n_microbatches)} microbatches are more than {MOST_OPS}",
    )
    for key in ("feeds_back", "flushes"):
        value = getattr(queues, key)
        _refuse_unless(
            isinstance(value, bool | np.bool_),
            f"{name}: {key} is not true or false: {quote(value)}",
        )
    _refuse_unless(
        isinstance(queues.partial_recompute, tuple)
        and all(map(is_whole, queues.partial_recompute)),
        f"{name}: partial_recompute is not a tuple of stages",
    )
    for key in ("offsets", "kind", "stage", "microbatch", "pair"):
        _refuse_unless(
            _integers(getattr(queues, key), 1), f"{name}: {key} is not a row of whole numbers"
        )
    n = len(queues.kind)
    for key in ("stage", "microbatch", "pair"):
        found = len(getattr(queues, key))
        _refuse_unless(found == n, f"{name}: {key} has {found} entries for {n} ops")
    _refuse_unless(n <= MOST_OPS, f"{name}: {n} ops are more than {MOST_OPS}")
    _refuse_unless(queues.n_microbatches >= 0, f"{name}: {queues.n_microbatches} microbatches")
    offsets, devices = queues.offsets, queues.n_devices
    _refuse_unless(
        len(offsets) == devices + 1, f"{name}: {len(offsets)} offsets for {devices} devices"
    )
    _refuse_unless(
        int(offsets[0]) == 0
        and int(offsets[-1]) == n
        and bool((offsets[1:] >= offsets[:-1]).all()),
        f"{name}: offsets do not ascend from 0 to the {n} ops",
    )
    _prove_range(name, "kind", queues.kind, len(Kind))
    _prove_exempt(name, "stage", queues.stage, queues.n_stages, queues.kind, _STAGELESS)
    _prove_exempt(
        name, "microbatch", queues.microbatch, queues.n_microbatches, queues.kind, _OF_STAGE
    )
    _prove_pairs(name, queues)


def prove_lowered(queues: Queues, compute: Queues, compute_ops: Integers, batch: Integers) -> None:
    """Raise InputError unless lowered queues have the ops of ``compute`` in its order, and batches
    are neighbouring messages.
    """
    name, n = queues.name, len(queues.kind)
    _refuse_unless(
        queues.n_stages == compute.n_stages
        and queues.n_microbatches == compute.n_microbatches
        and np.array_equal(np.searchsorted(compute_ops, queues.offsets), compute.offsets)
        and all(
            np.array_equal(getattr(queues, key).take(compute_ops), getattr(compute, key))
            for key in ("kind", "stage", "microbatch")
        )
        and np.array_equal(
            np.searchsorted(compute_ops, queues.second_of_pairs), compute.second_of_pairs
        ),
        f"{name}: the lowered queues have other ops than the schedule",
    )
    _refuse_unless(
        _integers(batch, 1) and len(batch) == n,
        f"{name}: batch is not one whole number for each op",
    )
    _refuse_unless(int(batch.min(initial=0)) >= NONE, f"{name}: a batch below {NONE}")
    if int(batch.max(initial=NONE)) != NONE:
        _prove_batches(name, queues, batch)


def prove_times(what: str, values: Any) -> None:
    """Raise InputError unless times are finite, not negative, and small enough for sums."""
    if isinstance(values, float):  # most latencies, in a tenth of the time of an array
        least = most = values
    else:
        array = np.asarray(values)
        _refuse_unless(array.dtype.kind in "fiu", f"{what} is not a number")
        if not array.size:
            return
        least, most = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
    # NaN fails both comparisons; whole numbers have no infinity to start from.
    if not (least >= 0 and most <= LONGEST):
        raise InputError(f"{what} must be zero or more, finite and at most {LONGEST:g}", HINT)


def prove_costs(time: Any, comm: Any, pair: Any) -> None:
    """Raise InputError unless the shapes of costs match and their times are valid."""
    _refuse_unless(
        all(value is None or _is_number_or_array(value) for value in (time, comm, pair)),
        "costs are numbers, or arrays of numbers",
    )
    shape, links = np.shape(time), np.shape(comm)
    if len(shape) != 2 or shape[0] != len(COMPUTE):
        raise InputError(f"costs have a row for each of {len(COMPUTE)} kinds, got {shape}", HINT)
    if links and (len(links) != 2 or links[0] != links[1]):
        raise InputError(
            "the latency of messages is one number or one for each pair of devices, got shape "
            f"{links}",
            HINT,
        )
    _refuse_unless(
        pair is None or np.shape(pair) == shape[1:], "times of pairs are one number for each stage"
    )
    prove_times("the time of an op", time)
    prove_times("the latency of a message", comm)
    if pair is not None:
        prove_times("the time of a pair", pair)


def prove_factors(scale: Any, speed: Any) -> None:
    """Raise InputError unless factors have a row for each kind, and speeds are positive."""
    _refuse_unless(
        all(value is None or isinstance(value, np.ndarray) for value in (scale, speed)),
        "factors of microbatches and speeds of devices are arrays",
    )
    if scale is not None:
        _refuse_unless(
            np.ndim(scale) == 2 and len(scale) == len(COMPUTE),
            f"factors of microbatches have {len(COMPUTE)} rows",
        )
        prove_times("the factor of a microbatch", scale)
    if speed is not None:
        _refuse_unless(np.ndim(speed) == 1, "speeds of devices are one number for each")
        prove_times("the speed of a device", speed)
        _refuse_unless(
            bool((np.asarray(speed) >= 1 / LONGEST).all()),
            "the speed of a device must be more than zero",
        )


def prove_factors_fit(queues: Queues, scale: Any, speed: Any) -> None:
    """Raise InputError unless there is a factor for each microbatch and device of a schedule."""
    for what, factors, wanted in (
        ("microbatches", scale, queues.n_microbatches),
        ("devices", speed, queues.n_devices),
    ):
        found = wanted if factors is None else np.shape(factors)[-1]
        _refuse_unless(
            found == wanted, f"factors of {found} {what} for {queues.name}, which has {wanted}"
        )


def prove_fit(queues: Queues, time: Any, comm: Any) -> None:
    """Raise InputError unless costs fit a schedule's stages and devices and no op is a message."""
    stages, devices = np.shape(time)[1], len(np.atleast_2d(comm))
    _refuse_unless(
        stages == queues.n_stages,
        f"costs of {stages} stages for {queues.name}, which has {queues.n_stages}",
    )
    _refuse_unless(
        np.ndim(comm) == 0 or devices == queues.n_devices,
        f"latencies of {devices} devices for {queues.name}, which has {queues.n_devices}",
    )
    _refuse_unless(
        int(queues.kind.max(initial=0)) < len(TIMED),
        f"{queues.name} has sends and receives, and only its compute ops can be timed this way",
    )


def _prove_exempt(
    name: str, what: str, column: Integers, high: int, kind: Integers, may_lack: Any
) -> None:
    """Raise InputError for a number out of range; ops of some kinds may have -1."""
    if not len(column) or _largest(column) < high:
        return
    exempt = may_lack[kind] & (column == NONE)
    _prove_range(name, what, np.where(exempt, column.dtype.type(0), column), max(high, 1))


def _prove_pairs(name: str, queues: Queues) -> None:
    pair = queues.pair
    if not len(pair) or int(_unsigned(pair).min()) == np.iinfo(_unsigned(pair).dtype).max:
        return  # no op is paired
    paired = np.flatnonzero(pair != NONE)
    even = len(paired) % 2 == 0
    couples, partners = (
        paired[: len(paired) & ~1].reshape(-1, 2),
        pair[paired[: len(paired) & ~1]].reshape(-1, 2),
    )
    mutual = (
        even
        and np.array_equal(partners[:, 0], couples[:, 1])
        and np.array_equal(partners[:, 1], couples[:, 0])
    )
    _refuse_unless(
        mutual and bool((couples[:, 0] + 1 == couples[:, 1]).all()),
        f"{name}: the two ops of a pair do not stand together and name each other",
    )
    second, inner = couples[:, 1], queues.offsets[1:-1]
    across = second[np.minimum(np.searchsorted(second, inner), len(second) - 1)] == inner
    _refuse_unless(not across.any(), f"{name}: a pair spans two devices")
    _refuse_unless(
        bool(_COMPUTES[queues.kind[paired]].all()), f"{name}: an op of a pair does not compute"
    )


def _prove_batches(name: str, queues: Queues, batch: Integers) -> None:
    """Raise InputError unless batches are messages, and neighbours on one device."""
    ops = np.flatnonzero(batch != NONE)
    _refuse_unless(
        bool(_MESSAGES[queues.kind[ops]].all()),
        f"{name}: an op of a batch is neither send nor receive",
    )
    starts = np.ones(len(ops), bool)
    starts[1:] = (np.diff(batch[ops]) != 0) | (np.diff(ops) != 1)
    inner = queues.offsets[1:-1]
    starts[np.searchsorted(ops, inner[np.isin(inner, ops)])] = True
    numbers = batch[ops[starts]]
    _refuse_unless(
        len(np.unique(numbers)) == len(numbers), f"{name}: the ops of a batch do not stand together"
    )


def _prove_range(name: str, what: str, column: Integers, high: int) -> None:
    if len(column) and _largest(column) >= high:
        op = int(np.flatnonzero((column < 0) | (column >= high))[0])
        raise InputError(
            f"{name}: {what} {int(column[op])} of entry {op} is outside 0 to {high - 1}", HINT
        )


def _largest(column: Integers) -> int:
    """Return the maximum; negative numbers count as very large."""
    return int(np.maximum.reduce(_unsigned(column)))  # half the time of max() for small columns


def _unsigned(column: Integers) -> Integers:
    return column.view(np.dtype(f"u{column.dtype.itemsize}"))


def _integers(column: Any, dimensions: int) -> bool:
    return (
        isinstance(column, np.ndarray) and column.dtype.kind in "iu" and column.ndim == dimensions
    )


def _is_number_or_array(value: object) -> bool:
    """Return True for an array, and for a number of Python or numpy, but not for a bool."""
    return isinstance(value, np.ndarray | float | np.floating) or is_whole(value)


def _refuse_unless(true: bool, message: str) -> None:
    if not true:
        raise InputError(message, HINT)
