"""Find the numbers nearest to the user's that a schedule takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from typing import Any

FLAGS = {"microbatches": "--mb"}
REACH = 64

Works = Callable[[dict[str, Any]], bool]


def flag(name: str) -> str:
    """Spell an argument of ``generate`` as the command line does."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def nearest(given: Mapping[str, Any], works: Works) -> str:
    """Write flags that make ``given`` work: for each number the nearest below and above, or else two numbers at once.

    Each flag works alone, the other arguments unchanged: ``--mb 4 or --mb 8``. Empty if nothing near works.
    """
    numbers = {name: value for name, value in given.items() if isinstance(value, int)}
    single = []
    for name, now in numbers.items():
        fits = [x for x in _around(now, numbers) if works({**given, name: x})]
        below, above = next((x for x in fits if x < now), None), next((x for x in fits if x > now), None)
        single += [f"{flag(name)} {x}" for x in (below, above) if x is not None]
    return " or ".join(single) or next(_both(given, numbers, works), "")


def _both(given: Mapping[str, Any], numbers: dict[str, int], works: Works) -> Iterator[str]:
    for one, other in combinations(numbers, 2):
        for x, y in product(_around(numbers[one], numbers), _around(numbers[other], numbers)):
            if works({**given, one: x, other: y}):
                yield f"{flag(one)} {x} {flag(other)} {y}"


def _around(now: int, numbers: dict[str, int]) -> list[int]:
    """List numbers to try in place of one, nearest first: its neighbours, and multiples of all numbers and halves."""
    parts = {part for number in numbers.values() for part in (number, number // 2) if part}
    tries = {part * times for part in parts for times in (1, 2, 4, now // part, now // part + 1)}
    tries.update(range(now - REACH, now + REACH + 1))
    return sorted((x for x in tries if x > 0 and x != now), key=lambda x: (abs(x - now), x))
