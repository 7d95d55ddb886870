"""Errors as a script meets them: in a traceback of Python."""

import pickle
import traceback

import pytest

import ppsim
from ppsim.errors import InputError


def last_lines(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error))


@pytest.mark.parametrize(
    ("schedule", "options", "suggestion"),
    [
        ("1f1b", {"devices": 4}, "give --mb"),
        ("zb-v", {"devices": 4, "chunks": 3, "microbatches": 8}, "--chunks 2"),  # found when read
    ],
)
def test_a_traceback_ends_with_the_suggestion(schedule, options, suggestion):
    with pytest.raises(InputError) as caught:
        ppsim.run(schedule, **options)
    message, tried = last_lines(caught.value).splitlines()
    assert message.endswith(str(caught.value))
    assert tried == f"  try: {suggestion}"
    assert last_lines(pickle.loads(pickle.dumps(caught.value))).splitlines()[1] == tried


def test_an_error_of_another_process_has_its_suggestion_once():
    """Dask sets the notes of the error that it makes again, with tblib."""
    error = InputError("not a size: 'x'", "60GiB")
    error.add_note("in step 3")
    again = pickle.loads(pickle.dumps(error))
    again.__notes__ = [*error.__notes__]
    assert last_lines(again) == last_lines(error)


def test_notes_of_others_follow_the_suggestion():
    error = InputError("not a size: 'x'", "60GiB")
    error.add_note("in step 3")
    assert last_lines(error).splitlines()[1:] == ["  try: 60GiB", "in step 3"]


def test_an_error_without_a_suggestion_is_one_line():
    assert len(last_lines(InputError("the file is empty")).splitlines()) == 1
