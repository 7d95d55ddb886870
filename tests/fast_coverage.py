"""The lines that fast tests reach, counted while all tests run: ``PPSIM_COVERAGE=1 pytest``, as
``.ci/run`` does.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import coverage
import pytest

# Of each property and of each test that are counted: tracing the lines of all takes half as long as
# the tests themselves, and tells little more.
EXAMPLES = CASES = 2


class FastCoverage:
    """Runs the slow tests after the fast ones, and counts lines until the first of them."""

    def __init__(self) -> None:
        """Begin to count, before anything of the package is imported."""
        self.counting: coverage.Coverage | None = coverage.Coverage(config_file="pyproject.toml")
        self.counting.start()
        self.cases = Counter[Any]()  # how many of each test function ran

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the slow tests last."""
        items.sort(key=is_slow)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Stop counting at the first slow test, and count the first cases of a test only."""
        if is_slow(item):
            self.pytest_sessionfinish()
        function, tracer = getattr(item, "function", item), sys.gettrace()
        self.cases[function] += 1
        if self.cases[function] > CASES:
            sys.settrace(None)
        try:
            return (yield)
        finally:
            sys.settrace(tracer)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        """Count the first examples of a property only."""
        drawn = getattr(item.obj, "hypothesis", None)
        if not (self.counting and drawn):
            return (yield)
        test, seen, tracer = drawn.inner_test, 0, sys.gettrace()

        @functools.wraps(test)
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen > EXAMPLES:
                sys.settrace(None)
            return test(*arguments, **named)

        drawn.inner_test = counted
        try:
            return (yield)
        finally:
            drawn.inner_test = test
            sys.settrace(tracer)

    def pytest_sessionfinish(self) -> None:
        """Keep what was counted."""
        if self.counting:
            self.counting.stop()
            self.counting.save()
            self.counting = None


def is_slow(item: pytest.Item) -> bool:
    """Whether a test is of the slow gear."""
    return item.get_closest_marker("slow") is not None
