"""A watched file: copied when it changes, kept while it cannot be read, and never code."""

import os
from pathlib import Path

import pytest

from ppsim.errors import InputError
from ppsim.show.server.page import watch


def test_each_change_is_copied_and_counted(tmp_path):
    source, folder = tmp_path / "a.csv", tmp_path / "kept"
    folder.mkdir()
    source.write_text("0F0,0B0\n")
    changes = watch(source, folder)
    assert (changes(), changes()) == (("a.csv", 1), ("a.csv", 1))
    source.write_text("0F0,0F1,0B0,0B1\n")
    os.utime(source, ns=(1, 1))
    assert changes() == ("a.csv", 2)
    assert (folder / "a.csv").read_text() == source.read_text()
    source.unlink()  # as some editors do before they write
    assert changes() == ("a.csv", 2)
    assert (folder / "a.csv").exists()


def test_what_is_not_there_and_what_is_code_is_refused(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        watch(tmp_path / "a.csv", tmp_path)
    with pytest.raises(InputError, match="is code"):
        watch(tmp_path / "a.py", tmp_path)
    with pytest.raises(InputError, match="is not a plain file"):
        watch(Path("/dev/zero"), tmp_path)  # its copy would fill the disk
    with pytest.raises(InputError, match="File name too long"):
        watch(tmp_path / f"{'x' * 300}.csv", tmp_path)
