"""Code of the user's runs as a file of its own would, and what it raises is one error with the
line.
"""

import sys

import pytest

from ppsim.base.outside_code import outside_code, run_file
from ppsim.errors import InputError, UnknownSchedule


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Forget the modules that a test loads."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def test_a_file_may_have_dataclasses_and_import_its_neighbours(tmp_path):
    (tmp_path / "a_neighbour.py").write_text("WIDTH = 3\n")
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from a_neighbour import WIDTH\n"
        "@dataclass\nclass Config:\n    width: int = WIDTH\n"
    )
    assert run_file(str(path)).Config().width == 3


def test_a_file_that_fails_leaves_no_module(tmp_path):
    path = tmp_path / "broken_for_the_test.py"
    path.write_text("x = 1\nraise ValueError('not today')\n")
    with pytest.raises(
        InputError, match=r"broken_for_the_test\.py fails: ValueError: not today \(line 2\)"
    ):
        run_file(str(path))
    assert "ppsim_user_broken_for_the_test" not in sys.modules


def test_a_line_that_cannot_be_read_is_the_only_one_named(tmp_path):
    path = tmp_path / "unread_for_the_test.py"
    path.write_text("x = 1\ndef rows(:\n")
    with pytest.raises(
        InputError,
        match=r"(?m)fails: SyntaxError: invalid syntax \(.*unread_for_the_test\.py, line 2\)$",
    ):
        run_file(str(path))


def test_prints_go_to_standard_error_and_errors_of_ours_pass(capsys):
    def code():
        print("said by the user's code")
        raise UnknownSchedule("no such schedule")

    with pytest.raises(UnknownSchedule), outside_code("x.py"):
        code()
    assert capsys.readouterr() == ("", "said by the user's code\n")


def test_a_long_message_of_many_lines_becomes_one_short_line():
    with pytest.raises(InputError) as caught, outside_code("x.py", "stage 2"):
        raise RuntimeError("first\n" + "more\n" * 1000)
    assert str(caught.value).startswith("x.py, stage 2, fails: RuntimeError: first more more")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
