"""Cost of a step besides its time: money, energy, and the share of a long run lost to failures."""

from __future__ import annotations

from math import sqrt

from ppsim.engine.detailed.cluster import Operation

HOUR = 3600.0


def step_price(operation: Operation, gpus: int, seconds: float) -> float | None:
    """Return the price of a step, in the cluster file's money; None where it has no price."""
    price = operation.price_per_gpu_hour
    return None if price is None else price * gpus * seconds / HOUR


def step_kwh(operation: Operation, gpus: int, seconds: float) -> float | None:
    """Return the energy of a step, a GPU's share of its node included; None where the cluster file
    has no watts.
    """
    watts = operation.watts_per_gpu
    return None if watts is None else watts * gpus * seconds / HOUR / 1e3


def goodput(operation: Operation, gpus: int) -> tuple[float, float] | None:
    """Return the share of the time that trains, and the seconds between checkpoints that make it
    most.

    A job fails every F = (GPU hours of a failure) / GPUs. With checkpoints of C seconds every
    sqrt(2 C F), and R seconds to restart, it loses C / interval + (interval / 2 + R) / F: J. Daly,
    A higher order estimate of the optimum checkpoint interval for restart dumps, 2006, in its first
    order. None where the cluster file has no failures.
    """
    if operation.gpu_hours_per_failure is None:
        return None
    between = operation.gpu_hours_per_failure * HOUR / gpus
    interval = sqrt(2 * operation.checkpoint_s * between)
    lost = (operation.checkpoint_s / interval if interval else 0.0) + (
        interval / 2 + operation.restart_s
    ) / between
    return max(1 - lost, 0.0), interval
