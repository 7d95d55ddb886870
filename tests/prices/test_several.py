"""Several schedules: they are compared over the same work."""

import json

import pytest

from tests.commands import answer, invoke, refused


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


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with files of 1f1b on four devices and on two, where commands run."""
    monkeypatch.chdir(tmp_path)
    for devices in (4, 2):
        words = ("run", "1f1b", "--devices", str(devices), "--mb", "8", "-q")
        assert invoke(*words, "-o", f"{devices}.json").exit_code == 0


SIZES = ["--devices", "4", "--mb", "8"]


@pytest.mark.parametrize("command", ["compare", "sweep", "jitter"])
def test_a_compared_file_gives_the_shape_that_is_not_typed(files, command):
    """The answer is that of the typed shape, and a note says whose shape it is."""
    key = {"compare": "schedules", "sweep": "shapes", "jitter": "schedules"}[command]
    code, typed, err = answer(command, "4.json", "zb-v", *SIZES, "--json")
    assert code == 0
    assert "as 4.json" not in err
    for given, said in (
        ([], "4 devices and 8 microbatches, as 4.json states"),
        (SIZES[:2], "8 microbatches, as 4.json states"),
        (SIZES[2:], "4 devices, as 4.json states"),
    ):
        code, out, err = answer(command, "4.json", "zb-v", *given, "--json")
        assert code == 0
        assert json.loads(out)[key] == json.loads(typed)[key]
        assert [line for line in err.splitlines() if "as 4.json" in line] == [said]


@pytest.mark.parametrize("command", ["compare", "sweep", "jitter"])
def test_files_of_different_shapes_give_none(files, command):
    error = refused(command, "4.json", "2.json", "zb-v")
    shapes = "4.json has 4 devices and 8 microbatches; 2.json has 2 devices and 8 microbatches"
    assert str(error) == f"files state different shapes: {shapes}"
    assert error.hint == "give --devices and --mb, or files of one shape"
    assert answer(command, "4.json", "2.json", "zb-v", *SIZES)[0] == 0


@pytest.mark.parametrize("command", ["compare", "sweep", "jitter"])
def test_steps_are_compared_with_as_many(files, command):
    """Three steps take three times as long as one, which says nothing about their order."""
    steps = ("--devices", "4", "--mb", "8", "--steps", "3")
    assert answer("run", "1f1b", *steps, "-q", "-o", "steps.json")[0] == 0
    error = refused(command, "1f1b", "steps.json")
    assert str(error).endswith("as many steps, and these have 1 for 1f1b, 3 for steps.json")
    assert error.hint == "--steps 3"
    assert answer(command, "1f1b", "steps.json", "--steps", "3")[0] == 0
    assert answer(command, "steps.json", "steps.json")[0] == 0


def test_names_alone_need_their_sizes(files):
    assert refused("compare", "1f1b", "zb-v").hint == "give --devices"
    assert refused("compare", "1f1b", "zb-v", "--devices", "4").hint == "give --mb"


TP = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--tp", "3", *SIZES]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["compare", "1f1b", "zb-1p", *TP], "--tp 2"),
        (["sweep", "1f1b", "zb-1p", *TP], "--tp 2"),
        (["sweep", "dualpipe", "--devices", "3", "--mb", "8"], "--devices 2 or --devices 4"),
    ],
)
def test_where_nothing_applies_the_hint_is_that_of_a_schedule(words, hint):
    error = refused(*words)
    assert error.hint == hint
    assert hint not in str(error)


def test_where_schedules_need_different_shapes_each_has_its_hint():
    """The first is the one to try: with it that schedule applies."""
    words = ["compare", "dualpipe", "chimera", "--devices", "4"]
    error = refused(*words, "--mb", "5")
    assert error.hint == "--mb 8"
    assert "(--mb 8)" in str(error)
    assert answer(*words, *error.hint.split())[0] == 0
