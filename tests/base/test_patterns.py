"""Plain data held to patterns of its kinds."""

import pytest

from ppsim.base.patterns import matches


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (1, int),
        (1, float),
        (1.5, float),
        ("a", str),
        (True, bool),
        (None, (int, type(None))),
        (3, (int, type(None))),
        ([], [int]),
        ([1, 2.5], [float]),
        ({"a": 1}, {"a": int, "b?": str}),
        ({"a": 1, "b": "x"}, {"a": int, "b?": str}),
        ({"a": {"b": [1]}}, {"a": {"b": [int]}}),
    ],
)
def test_what_is_of_the_kind_matches(value, pattern):
    assert matches(value, pattern)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (True, int),
        (True, float),
        (1, bool),
        (1.0, int),
        ("1", int),
        (1, str),
        (None, int),
        (2**63, int),
        (-(2**63), float),
        (10**400, float),
        (float("nan"), float),
        (float("inf"), float),
        ((), [int]),
        ([1, None], [int]),
        ({}, [int]),
        ({"a": 1}, {"a": str}),
        ({}, {"a": int}),
        ({"a": 1, "c": 1}, {"a": int, "b?": str}),
        ({"a": 1, "b": 1}, {"a": int, "b?": str}),
        ([], {"a": int}),
        ("x", (int, type(None))),
    ],
)
def test_what_is_of_another_kind_does_not(value, pattern):
    assert not matches(value, pattern)
