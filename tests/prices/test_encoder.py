"""--encoder on the command line, in files and in check."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import ppsim
from ppsim.cli import group
from ppsim.errors import PpsimError
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts.read import parse

FILE = str(Path(__file__).parents[2] / "gallery" / "encoder.toml")
WORDS = ("1f1b", "--devices", "4", "--mb", "8", "--encoder", FILE)


def output(*words: str) -> str:
    result = CliRunner().invoke(group, list(words))
    assert result.exit_code == 0, result.exception
    return result.output


def test_run_says_what_found_no_bubble():
    text = output("run", *WORDS)
    assert (
        "14 of 16 encoder ops are in bubbles; without the encoder, the model takes 33 t_F" in text
    )
    assert "no bubble for EF0 on device 1: it ends 0.5 t_F after its microbatch is needed" in text
    assert "no bubble for EB7 on device 0: it ends 1 t_F after the pipeline is done" in text
    value = json.loads(output("run", *WORDS, "--json"))
    assert value["encoder"]["alone"] == 33
    assert value["encoder"]["outside"][0] == {
        "kind": "EF",
        "microbatch": 0,
        "device": 1,
        "lacks": 0.5,
    }
    assert value["ops"]["kind"].count("EF") == value["ops"]["kind"].count("EB") == 8
    assert "encoder" not in json.loads(output("run", *WORDS[:5], "--json"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", ["compare", "sweep", "explain", "jitter", "memory"])
def test_other_commands_take_it(command):
    assert output(command, *WORDS) != output(command, *WORDS[:5])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", *WORDS, "--p2p", "overlap"), "cannot take EF, EB"),
        (("run", *WORDS, "--offload", "1"), "cannot take EF, EB"),
        (("optimize", *WORDS[1:]), "--encoder fills the bubbles of one order"),
        (("run", "vocab-1", *WORDS[1:]), "a rule for encoders cannot take"),
    ],
)
def test_what_cannot_take_it_says_so(words, message):
    error = CliRunner().invoke(group, list(words)).exception
    assert isinstance(error, PpsimError)
    assert message in str(error)


def test_bytes_of_an_encoder_are_held_where_it_runs():
    found = ppsim.memory(
        "1f1b", devices=4, microbatches=8, encoder=FILE, model="llama3-8b", seq=4096
    )
    plain = ppsim.memory("1f1b", devices=4, microbatches=8, model="llama3-8b", seq=4096)
    assert {peak.parts["encoder's states"] for peak in found.report.peaks} == {2 << 30}
    assert all(peak.parts["encoder"] % (512 << 20) == 0 for peak in found.report.peaks)
    assert all(
        mine >= theirs + (2 << 30) for mine, theirs in zip(found.peak, plain.peak, strict=True)
    )


def test_check_reads_it_back(tmp_path):
    """An op twice, on whatever devices, and a backward away from its forward are faults."""
    path = tmp_path / "x.json"
    output("run", *WORDS, "-q", "-o", str(path))
    assert output("check", str(path)).startswith("valid")
    ops = json.loads(path.read_text())["ops"]
    names = ("device", "kind", "stage", "microbatch")
    rows = list(zip(*(ops[name] for name in names), strict=True))

    def faults(changed: list[tuple[object, ...]]) -> str:
        columns = dict(zip(names, map(list, zip(*changed, strict=True)), strict=True))
        return " ".join(
            fault.message for fault in check(parse(json.dumps({"ops": columns}), "x.json")).faults
        )

    assert not faults(rows)
    device, *first = rows[ops["kind"].index("EF")]
    assert "runs a second time" in faults([*rows, (device + 1, *first)])
    back = rows[ops["kind"].index("EB")]
    away = [row for row in rows if row != back]
    assert "needs the encoded microbatch" in faults([*away, (3 - back[0], *back[1:])])


@pytest.mark.slow
def test_traces_and_pages_have_it(tmp_path):
    for name in ("x.trace.json", "x.html", "x.svg"):
        output("run", *WORDS, "-q", "-o", str(tmp_path / name))
        assert ("EF" if "svg" not in name else "Encoder") in (tmp_path / name).read_text()
