"""Blocks that users state in TOML are schedules like any other, and a fault names its key, its line
and a way out.
"""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ppsim.cli import group
from ppsim.errors import InputError
from ppsim.schedules import generate, schedule_from

EXAMPLE = Path(__file__).parents[2] / "gallery" / "own-block.toml"
MINE = (
    'schema = "ppsim.block/1"\nplacement = "v"\ninterval = 6\nsteps = [1, 1, 1, 1]\ngaps = [1, '
    "1, 1]\n"
)


def written(folder: Path, text: str, name: str) -> str:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


def test_the_gallerys_block_is_v_half():
    """The example's five lines make V-Half for an even number of devices, op for op."""
    own = schedule_from(str(EXAMPLE), devices=8, microbatches=20)
    ours = generate("v-half", devices=8, microbatches=20)
    for column in ("offsets", "kind", "stage", "microbatch"):
        assert np.array_equal(getattr(own, column), getattr(ours, column))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        "run BLOCK --devices 4 --mb 8 -q",
        "compare 1f1b BLOCK --devices 4 --mb 8",
        "sweep BLOCK --devices 4,8 --mb 8",
        "memory BLOCK --devices 4 --mb 8",
        "explain BLOCK --devices 4 --mb 8",
        "describe BLOCK",
    ],
)
def test_every_command_takes_a_block(words):
    """A block's file stands wherever a schedule's name does."""
    result = CliRunner().invoke(group, words.replace("BLOCK", str(EXAMPLE)).split())
    assert (result.exit_code, result.exception) == (0, None)
    assert "own-block" in result.output


@pytest.mark.parametrize(
    ("name", "old", "new", "message", "hint"),
    [
        (
            "clash",
            "",
            "",
            "line 5: with 3 devices, F0 and I5 share a slot of device 0",
            "gaps = [1, 3, 1]",
        ),
        ("gaps", "[1, 1, 1]\n", "[1, 1]\n", "line 5: 'gaps' must have 3 numbers", ""),
        ("zero", "gaps = [1", "gaps = [0", "line 5: 'gaps' must be at least 1 at place 1", ""),
        ("typo", "steps", "step", "line 4: unknown key 'step'", "did you mean 'steps'?"),
        ("place", '"v"', '"w"', "line 2: 'placement' must be one of linear, loop, v", ""),
        (
            "line",
            '"v"',
            '"linear"',
            "line 4: 'steps' must have two numbers for a linear placement",
            "",
        ),
        ("short", "= 6", "= 5", "line 3: 'interval' must be at least 6", ""),
        (
            "odd",
            "[1, 1, 1, 1]",
            "[1, 1, 1]",
            "line 4: 'steps' must have two numbers for each chunk",
            "",
        ),
        ("full", "gaps", "split = false\ngaps", "'steps' must be at least 2 at place 3", ""),
        ("1f1b", "", "", "there is a schedule named '1f1b' already", "give the file another name"),
    ],
)
def test_a_fault_names_its_key_and_its_line(tmp_path, name, old, new, message, hint):
    """What is wrong, where, and what to try."""
    path = written(tmp_path, MINE.replace(old, new, 1) if old else MINE, name)
    with pytest.raises(InputError) as error:
        schedule_from(path, devices=3, microbatches=4)
    assert message in str(error.value)
    assert hint in error.value.hint


def test_full_backwards_and_a_line_are_blocks_too(tmp_path):
    """1F1B as a block of three slots: F of one, B of two."""
    text = (
        MINE.replace('"v"', '"linear"')
        .replace("[1, 1, 1, 1]", "[1, 2]")
        .replace("[1, 1, 1]", "[1]")
    )
    path = written(tmp_path, text.replace("= 6", "= 3") + "split = false\n", "line-block")
    own = schedule_from(path, devices=3, microbatches=7)
    assert np.array_equal(own.kind, generate("1f1b", devices=3, microbatches=7).kind)
