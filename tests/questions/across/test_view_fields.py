"""The live page gives fields of a white list: none of them names a file of this machine, and
nothing is written.
"""

from __future__ import annotations

import click
import pytest

from ppsim.ask.options import list_options
from ppsim.errors import InputError, PpsimError
from ppsim.questions.across.view import ViewRequest, plan_request, view
from ppsim.questions.across.view_fields import NAMES, PLAIN, check_field
from ppsim.questions.across.view_model import PlanPageRequest
from tests.show.server import page_fuzz

OPTIONS = [*list_options(ViewRequest), *list_options(PlanPageRequest)]
FILES = {"profile", "segments", "encoder", "costs"}  # files, and objects of Python
REFUSED = {each.name for each in OPTIONS} - PLAIN - NAMES.keys()


def test_files_and_objects_are_on_no_white_list():
    """A new option is refused until somebody has put it on the list, and has thought of files."""
    assert FILES <= REFUSED
    assert PLAIN | NAMES.keys() <= {each.name for each in OPTIONS}
    assert not PLAIN & NAMES.keys()


def test_no_option_that_click_knows_for_a_path_is_plain():
    assert not [
        each.name
        for each in OPTIONS
        if isinstance(each.type, click.Path | click.File) and each.name in PLAIN
    ]


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("value", ["x.toml", "dgx-h100", "1f1b", ""])
def test_an_option_that_is_not_on_the_list_is_refused_by_name(name, value, tmp_path):
    """Also for a name: a file of that name may lie in the folder one stands in."""
    with pytest.raises(InputError, match=f"a page may not set '{name}'"):
        view({"names": "1f1b", "devices": 2, "mb": 2, name: value}, tmp_path)


@pytest.mark.parametrize(
    "declared", [each for each in OPTIONS if each.name in NAMES], ids=lambda each: each.name
)
@pytest.mark.parametrize(
    "value", ["x.json", "/etc/passwd", "./1f1b", "./dgx-h100", "W=two.csv", ["1,2", "./x"], ""]
)
def test_a_name_is_never_a_path(declared, value):
    with pytest.raises(InputError, match=r"a page may not set .*, which may be a file"):
        check_field(declared, value)


@pytest.mark.parametrize("word", ["own", "-", "--help", "x" * 3000])
def test_a_word_that_no_schedule_has_is_refused(word, tmp_path):
    with pytest.raises(PpsimError, match=r"unknown schedule|which may be a file"):
        view({"names": word, "devices": 2, "mb": 2}, tmp_path)


def test_a_page_of_plans_names_no_file_and_no_scheduler():
    given = {"model": "llama3-8b", "cluster": "dgx-h100", "gpus": "8", "gbs": "8"}
    assert plan_request(given).model == "llama3-8b"
    for more in (
        {"dask": "tcp://127.0.0.1:1"},
        {"results": "x.csv"},
        {"output": "x"},
        {"against": "x.csv"},
    ):
        with pytest.raises(InputError, match="there is no option"):
            plan_request(given | more)


@pytest.mark.slow
def test_mutated_fields_read_write_start_and_connect_nothing():
    """More of them: ``python -m tests.show.server.page_fuzz SEED COUNT``."""
    assert [*page_fuzz.faults(3, 400)] == []
