"""Price and energy of a training step, and the share of a long run lost to failures."""

from __future__ import annotations

from math import sqrt

from ppsim.engine.detailed.cluster import Operation

HOUR = 3600.0


def step_price(operation: Operation, gpus: int, seconds: float) -> float | None:
    """Return the price of a step in the cluster file's currency, or None if it states no price."""
    price = operation.price_per_gpu_hour
    return None if price is None else price * gpus * seconds / HOUR


def step_kwh(operation: Operation, gpus: int, seconds: float) -> float | None:
    """Return the energy of a step in kWh, or None if the cluster file states no watts.

    A GPU's watts include its share of the node.
    """
    watts = operation.watts_per_gpu
    return None if watts is None else watts * gpus * seconds / HOUR / 1e3


def goodput(operation: Operation, gpus: int) -> tuple[float, float] | None:
    """Return the share of time spent on training, and the best seconds between checkpoints.

    A job fails every F = (GPU hours per failure) / GPUs. A checkpoint takes C seconds, a restart R.
    The best interval is sqrt(2 C F); the share lost is C / interval + (interval / 2 + R) / F. This
    is the first order of J. Daly, A higher order estimate of the optimum checkpoint interval for
    restart dumps, 2006. None if the cluster file states no failures.
    """
    if operation.gpu_hours_per_failure is None:
        return None
    between = operation.gpu_hours_per_failure * HOUR / gpus
    interval = sqrt(2 * operation.checkpoint_s * between)
    lost = (operation.checkpoint_s / interval if interval else 0.0) + (
        interval / 2 + operation.restart_s
    ) / between
    return max(1 - lost, 0.0), interval
