"""Files of a scanned folder have what the folder asks for, or say which one has not."""

from __future__ import annotations

import importlib

import pytest

from ppsim.base.scan import load_files
from ppsim.errors import PpsimError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package of two files, of which one has no ``WEIGHT``."""
    package = tmp_path / "scanned_things"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "light.py").write_text("NAME = 'light'")
    (package / "heavy.py").write_text("NAME, WEIGHT = 'heavy', 7")
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("scanned_things")


def test_every_file_is_loaded(folder):
    """In the order of their names."""
    assert [module.NAME for module in load_files(folder, "NAME")] == ["heavy", "light"]


def test_a_file_that_lacks_a_name_is_said(folder):
    """With the file, and where to read what it needs."""
    with pytest.raises(PpsimError, match=r"light\.py has no WEIGHT") as refused:
        load_files(folder, "NAME", "WEIGHT")
    assert refused.value.hint.startswith("see ")
    assert refused.value.hint.endswith("__init__.py")
