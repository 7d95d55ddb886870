"""The installation holds every module, and nothing of another name."""

import importlib
import tomllib
from pathlib import Path

import pytest

import ppsim

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"ppsim": "ppsim", "ppsim.cli": "cli", "ppsim.schedules": "schedules"}


def test_every_package_is_listed():
    """pyproject.toml lists each folder of modules once, under the name it is imported by."""
    found = set()
    for name, folder in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder)
            if not inner.parts or inner.parts[0] not in ("cli", "schedules"):
                found.add(".".join((name, *inner.parts)))
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(found)


def test_linked_folders_are_packages_of_ppsim():
    """The top-level folders are reached as ppsim.cli and ppsim.schedules, in the source tree as in a wheel."""
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"ppsim.cli": "cli", "ppsim.schedules": "schedules"}
    for folder in ("cli", "schedules"):
        link = ROOT / "ppsim" / folder
        assert link.is_symlink()
        assert link.resolve() == ROOT / folder


@pytest.mark.parametrize("name", PROJECT["tool"]["setuptools"]["packages"])
def test_listed_packages_can_be_imported(name):
    """Every listed package resolves."""
    assert importlib.import_module(name).__name__ == name


def test_version_is_read_from_the_package():
    """The version is written in one place."""
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ppsim.version.VERSION"}
    assert ppsim.__version__.count(".") == 2
