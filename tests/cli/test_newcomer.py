"""What a newcomer types, and what help and messages say of it today."""

import json
import re
from pathlib import Path

import pytest

from tests.commands import answer, invoke, refused

SHAPE = ("--devices", "4", "--mb", "8")
GBS = ("--gpus", "8", "--gbs", "8", "--top", "1")


def files_in_help(*words: str) -> dict[str, str]:
    """The files that a command's help shows, each after a comment with its name."""
    shown = re.sub(r"(?m)^ +", "", invoke(*words, "--help").output)
    return dict(re.findall(r"# (my-[a-z.-]+)\n((?:[^\n]+\n)+)", shown))


@pytest.mark.slow
def test_the_gpu_and_the_cluster_of_the_help_are_planned_on(tmp_path, monkeypatch):
    """Written as the help of plan shows them, into one folder, they load, and the plan is for that
    GPU.
    """
    files = files_in_help("plan")
    assert set(files) == {"my-gpu.toml", "my-cluster.toml"}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    found = invoke("plan", "--model", "llama3-8b", "--cluster", "my-cluster.toml", *GBS, "--json")
    assert found.exit_code == 0, found.output
    assert 0 < json.loads(found.stdout)["cap_bytes"] <= 96 * 2**30


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ("h100x8,ib-400", "names no link within a node", "h100x8,nvlink4,ib-400"),
        ("h100x8,nvlink4,ib-400+a100-80gbx8,nvlink3,ib-200", "several kinds of nodes", "[[nodes]]"),
        ("8xh100,8xa100", "several kinds of nodes", "[[nodes]]"),
        ("b400x8,nvlink4,ib-400", "no GPU 'b400'", "ppsim plan --help"),
    ],
)
def test_a_cluster_in_words_is_answered_with_words_that_work(words, says, hint):
    error = refused("plan", "--model", "llama3-8b", "--cluster", words, *GBS)
    assert says in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(
    "words", [("memory", "1f1b", *SHAPE), ("plan", "--cluster", "dgx-h100", *GBS)]
)
def test_a_model_that_the_library_lacks_is_answered_with_config_json_first(words):
    """Its config.json works today; the 44 names that follow are other models."""
    error = refused(*words, "--model", "glm-5")
    assert error.hint.startswith("the config.json of its page on Hugging Face (--model config.json")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words", [("run", "zb-v"), ("memory", "interleaved"), ("explain", "interleaved")]
)
def test_stages_alone_say_how_many_devices_they_are(words):
    """In a note beside the answer; not where the devices, or the stages on each, are given."""
    said = "8 stages are 4 devices"
    assert said in answer(*words, "--stages", "8", "--mb", "8")[2]
    for given in (
        ("--devices", "4"),
        ("--stages", "8", "--devices", "4"),
        ("--stages", "8", "--chunks", "2"),
    ):
        assert said not in "".join(answer(*words, *given, "--mb", "8")[1:])
    assert said not in answer("run", "1f1b", "--stages", "8", "--mb", "8")[2]
    assert json.loads(answer(*words, "--stages", "8", "--mb", "8", "--json")[1])["devices"] == 4


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ("run gpipe --devices 4 --mb 8 --chunks 2", "one stage per device", "--chunks 1"),
    ],
)
def test_what_is_not_there_is_answered_with_what_works(words, says, hint):
    error = refused(*words.split())
    assert says in str(error)
    assert hint in error.hint


@pytest.mark.parametrize("command", ["optimize", "memory"])
def test_an_optimizer_is_answered_with_what_memory_counts(command):
    code, _, err = answer(command, "--optimizer", "muon")
    assert code == 2
    assert "Memory counts Adam's states" in " ".join(err.split())


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("memory", "--cap, such as 80GiB, how much fits. ppsim run takes a cluster"),
        ("partition", "ppsim plan chooses a layout for a model on a cluster"),
    ],
)
def test_a_cluster_where_none_is_taken_is_answered_with_what_takes_its_place(command, says):
    code, _, err = answer(command, "1f1b", "--cluster", "dgx-h100")
    assert code == 2
    assert says in " ".join(err.split())
    assert "Did you mean" not in err


def test_moments_in_16_bits_take_a_third_less():
    """What the message on --optimizer says works."""
    held = []
    for precision in ("fp32", "bf16"):
        words = ("--moment-precision", precision, "--pp", "4", "--json")
        found = json.loads(invoke("model", "llama3-8b", *words).stdout)
        held.append(found["devices"][1]["optimizer_gib"])
    assert held[0] == pytest.approx(1.5 * held[1])


def test_how_memory_is_counted_is_said_where_it_is_printed():
    """In the help of all three, and below the answer of memory, in activations and in bytes."""
    for command in ("run", "memory", "plan"):
        said = " ".join(invoke(command, "--help").output.split())
        assert re.search(
            r"from the start of F to the end of B|from their forward to their backward", said
        )
    assert "held from F to the end of B" in invoke("memory", "1f1b", *SHAPE).output
    assert (
        "not counted: the driver" in invoke("memory", "1f1b", *SHAPE, "--model", "llama3-8b").output
    )


@pytest.mark.parametrize(
    ("option", "typed", "number", "unit"),
    [
        ("--tf", "5.2ms", "5.2", "ms"),
        ("--tf", "5,6 us", "5,6", "us"),
        ("--comm", "3e2ns", "3e2", "ns"),
    ],
)
def test_a_time_with_a_unit_is_answered_with_the_option_of_units(option, typed, number, unit):
    words = ["run", "1f1b", "--devices", "2", "--mb", "4"]
    code, _, err = answer(*words, option, typed)
    assert code == 2
    assert f"expected e.g. {number} with --unit {unit} try:" in " ".join(err.split())
    code, out, _ = answer(*words, option, number, "--unit", unit)
    assert code == 0
    assert f" {unit} for 4 microbatches" in out


@pytest.mark.parametrize("option", ["--gbs", "--global-batch-size"])
def test_a_global_batch_is_answered_with_the_number_of_microbatches(option):
    code, _, err = answer("run", "1f1b", "--devices", "4", option, "64")
    assert code == 2
    assert "--mb = global batch / (replicas x sequences in a microbatch)" in " ".join(err.split())


def test_a_table_of_a_comparison_is_written_by_sweep(tmp_path):
    path = tmp_path / "table.csv"
    words = ["1f1b", "zb-1p", "--devices", "4", "--mb", "8", "-o", str(path)]
    error = refused("compare", *words)
    assert "ppsim sweep -o" in error.hint
    assert answer("sweep", *words)[0] == 0
    assert path.read_text().count("\n") == 3


@pytest.mark.parametrize("command", ["check", "convert"])
def test_a_generator_of_queues_is_answered_with_the_command_that_writes_them(
    command, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def mine(shape):\n    yield ['0F0', '0B0']\n")
    error = refused(command, "mine.py", *(["-o", "mine.svg"] * (command == "convert")))
    assert error.hint == "ppsim run mine.py --devices P --mb M -o queues.csv, which writes its ops"
    assert answer("run", "mine.py", "--devices", "1", "--mb", "1", "-o", "queues.csv")[0] == 0
    assert answer("check", "queues.csv")[0] == 0
