"""Tab in a shell: names of schedules and of the library, and files wherever a file may be given."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete

from ppsim.cli import group
from tests.commands import SOURCE, invoke


def offered(*words: str) -> list[CompletionItem]:
    """Return what a shell offers for the last word, which may be empty."""
    *before, incomplete = words
    return ShellComplete(group, {}, "ppsim", "_PPSIM_COMPLETE").get_completions(before, incomplete)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["run", "zb-v"], ["zb-v", "zb-v-torch"]),
        (["compare", "gpipe", "dualpipe"], ["dualpipe", "dualpipe-v"]),
        (["plan", "--model", "llama3-"], ["llama3-405b", "llama3-70b", "llama3-8b"]),
        (["memory", "1f1b", "--model", "mixtral"], ["mixtral-8x22b", "mixtral-8x7b"]),
        (["model", "gpt-oss"], ["gpt-oss-120b", "gpt-oss-20b"]),
        (["plan", "--cluster", "dgx-h"], ["dgx-h100", "dgx-h200"]),
        (["run", "1f1b", "--cluster", "dgx-h"], ["dgx-h100", "dgx-h200"]),
        (["plan", "--software", "torchti"], ["torchtitan"]),
        (["run", "1f1b", "--p2p", "b"], ["blocking", "batched"]),
    ],
)
def test_names_that_begin_with_the_word_are_offered(words, names):
    assert [each.value for each in offered(*words) if each.type == "plain"] == names


def test_files_are_offered_wherever_the_help_names_a_file():
    """In bash they are offered only if they come first."""
    missing = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command
        context = click.Context(command)
        for param in command.params:
            if re.search(r"\b(FILE|DIR)\b", str(param.metavar)):
                first = [each.type for each in param.shell_complete(context, "tes")][:1]
                if first not in (["file"], ["dir"]):
                    missing.append((name, param.name))
    assert missing == []


@pytest.mark.parametrize("words", [["explain", "tes"], ["diff", "1f1b", "tes"], ["run", "mi"]])
def test_files_are_offered_next_to_schedules(words):
    assert [(each.type, each.value) for each in offered(*words)] == [("file", words[-1])]


@pytest.mark.slow
def test_bash_completes_names_and_leaves_files_to_itself(tmp_path: Path):
    program = tmp_path / "ppsim"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ppsim "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "ppsim.bash"
    script.write_text(invoke("completion", "bash").output)
    asked = f"""
compopt() {{ echo "by bash: $2"; }}
source {script}
complete_word() {{ COMPREPLY=(); _ppsim_completion {program}; echo "${{COMPREPLY[*]}}"; }}
COMP_WORDS=(ppsim plan --model llama3-8); COMP_CWORD=3; complete_word
COMP_WORDS=(ppsim explain tes); COMP_CWORD=2; complete_word
"""
    found = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, check=True, env=SOURCE
    )
    lines = [line for line in found.stdout.splitlines() if line]
    assert lines == ["by bash: default", "llama3-8b", "by bash: default"]
