"""What commands print fits the terminal, keeps its digits, and is coloured by what it means."""

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ppsim.ask.blocks import Line, Table
from ppsim.ask.terminal import echo_wrapped, show
from ppsim.base import notes
from ppsim.cli import group, main

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "gallery"
COMMANDS = {
    "list": "list",
    "describe": "list 1f1b",
    "run": "run 1f1b --stages 4 --mb 8",
    "compare": "compare gpipe 1f1b interleaved:2 zb-1p --devices 4 --mb 8",
    "sweep": "sweep 1f1b zb-1p --devices 4,8 --mb 8:24:8",
    "memory": f"memory 1f1b --devices 8 --mb 16 --model {GALLERY}/model-7b.toml --cap 30GiB "
    f"--breakdown",
    "check": "check dead.csv",
    "profile show": f"profile show {GALLERY}/profile-cpu.toml",
    "profile diff": f"profile diff {GALLERY}/profile-cpu.toml other.toml",
    "explain": "explain 1f1b --stages 4 --mb 8",
    "model": "model llama3-8b --pp 4 --mb 8 --cluster dgx-h100",
    "partition": "partition 1f1b --devices 4 --mb 8 --num-layers 14 --t-head 2",
    "validate": f"validate --from-record {ROOT}/tests/data/records/timed-p2.json.gz",
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dead.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B1,1F1,1B0\n")
    text = (GALLERY / "profile-cpu.toml").read_text()
    head, *ops = text.split("[[op]]")
    for number, factor in ((4, 2), (8, 3)):
        parts = re.split(r"(?m)(?<=_ms = )([\d.]+)$", ops[number])
        parts[1::2] = [str(float(time) * factor) for time in parts[1::2]]
        ops[number] = "".join(parts)
    (tmp_path / "other.toml").write_text("[[op]]".join([head, *ops]))


def printed(words, columns, monkeypatch, **env):
    """What a terminal of so many columns gets, with its colours."""
    for name, value in {
        "COLUMNS": str(columns),
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
        **env,
    }.items():
        monkeypatch.setenv(name, value)
    return CliRunner().invoke(group, words.split(), color=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("name", COMMANDS)
def test_lines_fit_and_words_stay_whole(name, columns, monkeypatch):
    """No line is wider than the terminal, except for one word that is; no number is cut short."""
    lines = COLOUR.sub("", printed(COMMANDS[name], columns, monkeypatch)).splitlines()
    assert lines
    wide = [line for line in lines if len(line) > columns and len(line.split()) > 1]
    assert [
        line for line in wide if not any(len(word) > columns - 20 for word in line.split())
    ] == []
    if name != "list":  # which has as much of a sentence as there is room for
        assert not any("\u2026" in line or "..." in line for line in lines)


@pytest.mark.parametrize(
    "env", [{}, {"COLUMNS": "20"}, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}]
)
def test_no_text_of_a_file_commands_a_terminal(env, monkeypatch, capsys):
    """Names of files, GPUs and columns are shown in lines, tables and notes without control and
    direction signs.
    """
    bad = "h\x1b]0;x\x07\u202e\0z"
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    table = Table(["name", f"a\n{bad}"], [[bad, bad * 9]])
    show([bad, Line([(f"x{bad}\nnext", "name"), bad], 4), table])
    echo_wrapped(bad, err=True)
    said = capsys.readouterr()
    text = COLOUR.sub("", said.out) + COLOUR.sub("", said.err)
    assert text.count("]0;x") >= 7
    assert not re.search("[\0-\x09\x0b-\x1f\x7f\u202e]", text)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "coloured"),
    [
        ("list", {"1": "one stage a device", "36": "ppsim list NAME"}),
        ("compare", {"32": "27", "1": "zb-1p"}),
        ("sweep", {"32": "4.0%*"}),
        ("check", {"1;31": "^^^", "36": "  try: move 1B1 after 1F1"}),
        ("profile diff", {"31": "3.00"}),
        ("model", {"1": "llama3-8b", "36": "ppsim "}),
        ("partition", {"1": "1F1B", "32": "optimal", "36": "ppsim run"}),
    ],
)
def test_colours_say_what_matters(name, coloured, monkeypatch):
    """Names stand out, the best is green, faults are red, what to try is cyan: colours of the
    terminal's own theme.
    """
    # more colours shade a sweep instead
    text = printed(COMMANDS[name], 100, monkeypatch, TERM="xterm")
    for code, words in coloured.items():
        assert re.search(rf"\x1b\[{code}m\s*{re.escape(words)}", text), (code, words)


@pytest.mark.slow
def test_an_error_within_the_tolerance_is_green_and_one_beyond_it_red(monkeypatch):
    """In the column of held-out errors, and in the verdict above it."""
    within = printed(COMMANDS["validate"], 120, monkeypatch)
    assert re.search(r"\x1b\[32m *[+-]\d\.\d%", within)
    assert re.match(r"\x1b\[32mheld-out predictions are off by [^\x1b]*: within", within)
    beyond = printed(COMMANDS["validate"] + " --tolerance 0.1%", 120, monkeypatch)
    assert re.search(r"\x1b\[31m *[+-]\d\.\d%", beyond)
    assert re.match(r"\x1b\[1;31mheld-out predictions are off by [^\x1b]*: NOT within", beyond)


@pytest.mark.slow
def test_memory_above_the_cap_is_red(monkeypatch):
    text = printed(COMMANDS["memory"].replace("30GiB", "20GiB"), 100, monkeypatch)
    first = next(line for line in text.splitlines() if "dev 0" in line)
    assert re.search(r"\x1b\[31m[\u2581-\u2588]*\u2588", first)
    assert "\x1b[1;31m  over" in first
    assert "cap 20 GiB" in COLOUR.sub("", text)


def test_sixteen_colours_have_no_grey(monkeypatch):
    """Bright black is unreadable in some themes: muted text has the terminal's own colour there."""
    for name in ("list", "run", "memory"):
        text = printed(COMMANDS[name], 100, monkeypatch, TERM="xterm")
        assert COLOUR.search(text)
        assert "\x1b[90m" not in text


def test_nothing_is_coloured_where_no_colour_is_wanted(monkeypatch):
    for name in ("list", "compare", "check"):
        text = printed(COMMANDS[name], 100, monkeypatch, NO_COLOR="1", FORCE_COLOR="")
        assert not COLOUR.search(text)


def test_a_diff_of_profiles_has_what_differs_and_a_count_of_the_rest(monkeypatch):
    """Rows are those that differ, the largest change first; identical profiles have none."""
    text = COLOUR.sub("", printed(COMMANDS["profile diff"], 100, monkeypatch))
    ratios = [float(row) for row in re.findall(r"(\d\.\d\d)(?: +apart)? *$", text, re.M)]
    assert ratios
    assert ratios == sorted(ratios, reverse=True)
    assert re.search(rf"{90 - len(ratios)} of 90 times of .* differ by 5% at most", text)
    same = printed(
        f"profile diff {GALLERY}/profile-cpu.toml {GALLERY}/profile-cpu.toml", 100, monkeypatch
    )
    assert "90 of 90 times of " in same


def test_a_chart_in_a_pipe_numbers_its_ops_unless_the_columns_are_set():
    """At 80 columns, which nobody asked for, a chart of 4 x 8 would be letters alone, and this one
    lose its peaks.
    """
    words = ["run", "1f1b", "--stages", "4", "--mb", "8"]
    wide = CliRunner().invoke(group, words, env={"COLUMNS": None}).output.splitlines()[3]
    assert wide.startswith("dev 0 F0F1F2F3")
    assert wide.endswith(" 27.3% idle  peak 4")
    assert wide == CliRunner().invoke(group, words, env={"COLUMNS": "160"}).output.splitlines()[3]
    assert len(CliRunner().invoke(group, words, env={"COLUMNS": "70"}).output.splitlines()[3]) <= 70


@pytest.mark.parametrize("columns", [60, 80])
def test_carets_stay_under_their_cell(columns, monkeypatch):
    """A line of cells is cut to the terminal, never wrapped away from the carets below it."""
    row = ",".join(f"0F{m}" for m in range(20)) + "," + ",".join(f"0B{m}" for m in range(20))
    Path("long.csv").write_text(
        f"{row}\n{row.replace('0F', '1F').replace('0B', '1B').replace('1F9', '1F9,1F9')}\n"
    )
    shown = COLOUR.sub("", printed("check long.csv", columns, monkeypatch)).splitlines()
    carets = [number for number, line in enumerate(shown) if line.strip() and not line.strip("^ ")]
    assert carets
    for number in carets:
        first = shown[number].index("^")
        assert shown[number - 1][first : len(shown[number])] == "1F9"
        assert max(len(shown[number - 1]), len(shown[number])) <= columns


def test_what_click_refuses_is_wrapped_between_words(monkeypatch, capsys):
    """As all errors of a terminal are: no word of a long value is broken."""
    for name, value in {"COLUMNS": "50", "FORCE_COLOR": "1", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(notes.shown, "work", notes.shown.work)  # main sets it for the whole process
    monkeypatch.setattr(
        "sys.argv", ["ppsim", "run", "1f1b", "--mb", "seventeen of them and then some more"]
    )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    lines = COLOUR.sub("", capsys.readouterr().err).splitlines()
    assert lines[0].startswith("Error: --mb: not a whole number")
    assert lines[-1] == "  try: ppsim run --help"
    assert max(map(len, lines)) <= 50
    assert "'seventeen of them and then some more'" in " ".join(" ".join(lines).split())
