"""The installation holds every module, and nothing of another name."""

import importlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import ppsim
from ppsim import version
from tests.clock import HANG_S

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
    """The top-level folders are reached as ppsim.cli and ppsim.schedules, in the source tree as in
    a wheel.
    """
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {
        "ppsim.cli": "cli",
        "ppsim.schedules": "schedules",
    }
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


def test_hints_name_this_distribution():
    """What a hint tells a user to install is this project, not the one called ppsim on the package
    index.
    """
    assert PROJECT["project"]["name"] == version.DISTRIBUTION != "ppsim"
    assert f"{version.DISTRIBUTION}[torch]" in version.INSTALL_TORCH


def test_citation_names_this_version():
    """The version that a paper cites is the one installed."""
    assert f"\nversion: {version.VERSION}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the sources, with a module that an earlier build left in build/."""
    copy = tmp_path_factory.mktemp("packaging") / "source"
    left_out = shutil.ignore_patterns(".*cache", ".venv*", ".git", "build", "tests", "__pycache__")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    ghost = copy / "build" / "lib" / "ppsim" / "schedules" / "ghost.py"
    ghost.parent.mkdir(parents=True)
    ghost.write_text("")
    return copy


def built_wheel(source, folder):
    """The wheel of sources, as pip builds it, with its names."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        source,
    ]
    subprocess.run(command, check=True, timeout=HANG_S)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


@pytest.mark.slow
def test_a_wheel_holds_nothing_that_was_removed(source, tmp_path):
    """A module left in build/ by an earlier build stays out: every file in schedules/ would be a
    schedule.
    """
    names = built_wheel(source, tmp_path).namelist()
    assert "ppsim/schedules/gpipe.py" in names
    assert "ppsim/schedules/ghost.py" not in names
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {"ppsim"}


@pytest.mark.slow
def test_a_source_distribution_builds_the_same_wheel(source, tmp_path):
    """It brings its own build backend, the folders behind the links, and every data file."""
    code = (
        "import sys; sys.path.insert(0, '.ci'); import build_backend; "
        "build_backend.build_sdist(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, cwd=source, capture_output=True, check=True, timeout=HANG_S)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as file:
        file.extractall(tmp_path, filter="data")
    whole, again = tmp_path / "whole", tmp_path / "again"
    whole.mkdir()
    again.mkdir()
    first = built_wheel(source, whole)
    second = built_wheel(tmp_path / packed.name.removesuffix(".tar.gz"), again)
    assert sorted(first.namelist()) == sorted(second.namelist())
    (about,) = [name for name in second.namelist() if name.endswith("METADATA")]
    text = second.read(about).decode()
    assert f"\nVersion: {version.VERSION}\n" in text
    assert "\nDescription-Content-Type: text/markdown\n" in text


def test_classifiers_name_the_versions_that_are_tested():
    """Each version of Python in the metadata lies between the oldest and the newest that the
    workflow runs.
    """
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert f">={named[0]}" == PROJECT["project"]["requires-python"]
    tested = re.findall(r'"(3\.\d+)"', (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert [named[0], named[-1]] == tested


def test_every_data_file_of_a_package_is_packed():
    """A wheel holds the templates and data files that code reads beside itself."""
    packed = PROJECT["tool"]["setuptools"]["package-data"]
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        folder = ROOT / package.replace(".", "/")
        for path in folder.iterdir():
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                assert any(path.match(pattern) for pattern in packed.get(package, [])), path
    assert set(packed) <= set(PROJECT["tool"]["setuptools"]["packages"])
