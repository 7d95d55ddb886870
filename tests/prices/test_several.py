"""Several schedules: they are compared over the same work."""

import pytest

from tests.commands import answer, refused


@pytest.mark.parametrize("question", ["compare", "jitter"])
def test_files_of_other_numbers_of_microbatches_are_refused(question, tmp_path):
    """Half the work takes less time, which says nothing about the order of the ops."""
    files = []
    for microbatches in ("8", "4"):
        files.append(str(tmp_path / f"of-{microbatches}.csv"))
        shape = ("--devices", "4", "--mb", microbatches)
        assert answer("run", "1f1b", *shape, "-o", files[-1], "-q")[0] == 0
    error = refused(question, *files)
    said = f"over as many microbatches, and these have 8 for {files[0]}, 4 for {files[1]}"
    assert str(error) == f"schedules are compared {said}"
    assert error.hint == "files of as many microbatches"


def test_slices_are_not_counted_as_microbatches():
    """Four microbatches in two slices each are four, as they are whole."""
    shape = ("--devices", "4", "--mb", "4")
    assert answer("compare", "seq1f1b", "1f1b", *shape)[0] == 0


def test_what_goes_round_is_compared_by_its_rate():
    """A decoder with more batches in flight may be compared: the rate is of one of them."""
    shape = ("--devices", "4", "--mb", "4", "--steps", "2")
    assert answer("compare", "decode", "forward-only", *shape)[0] == 0
