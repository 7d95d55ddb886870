"""The suite's own rules: what is an error, what is fast, and where helpers live."""

import ast
import re
import subprocess
import sys
import warnings
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.same_output import run_in
from tests.sources import statements

ROOT = Path(__file__).parents[1]


def warn_in(module: str) -> None:
    """Warn as a line of that module would."""
    exec("import warnings; warnings.warn('old', DeprecationWarning)", {"__name__": module})


@pytest.mark.parametrize(
    "module", ["ppsim", "ppsim.core.ops", "ppsim.cli.run", "ppsim.schedules.gpipe", "tests.cases"]
)
def test_a_warning_of_ours_is_an_error(module):
    with pytest.raises(DeprecationWarning, match="old"):
        warn_in(module)


@pytest.mark.parametrize(
    "module", ["_pytest.fixtures", "hypothesis", "ppsimulator", "testsuite", "some.ppsim"]
)
def test_a_warning_of_somebody_else_is_a_warning(module):
    """A plugin's warning must not turn red tests into an internal error that hides what they
    say.
    """
    with warnings.catch_warnings(record=True) as caught:
        warn_in(module)
    assert [str(warning.message) for warning in caught] == ["old"]


@pytest.mark.parametrize(
    "start", [lambda: subprocess.run(["true"], check=True), get_context("spawn").Process().start]
)
def test_a_fast_test_cannot_start_a_process(start):
    with pytest.raises(pytest.fail.Exception, match="is not marked slow"):
        start()


@pytest.mark.slow
def test_a_slow_test_can_start_a_process():
    assert subprocess.run([sys.executable, "--version"], check=True).returncode == 0


def test_settings_ask_for_no_plugin_that_only_the_check_uses(pytestconfig):
    """``pytest`` runs without pytest-xdist; ``.ci/run`` asks for several processes itself."""
    assert not [
        word
        for word in pytestconfig.getini("addopts")
        if word.startswith(("-n", "--dist", "--cov"))
    ]
    assert "PYTEST_ADDOPTS" in (ROOT / ".ci" / "run").read_text()


def parsed(path: Path) -> tuple[set[str], dict[str, str | None]]:
    """The modules that a test module imports, and its functions with their docstrings."""
    nodes = list(statements(ast.parse(path.read_text()).body))
    imported = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return imported, {
        node.name: ast.get_docstring(node) for node in nodes if isinstance(node, ast.FunctionDef)
    }


def test_modules_share_no_helper_and_every_test_states_its_promise():
    """What two modules use lives in neither, but in tests/cases.py and the like; a promise stands
    in a docstring, or in a name that is a sentence.
    """
    faults = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if "data" not in path.parts:
            imported, defined = parsed(path)
            other = re.compile(r"tests\.(\w+\.)*test_\w+").fullmatch
            short = {
                name
                for name in defined
                if name.startswith("test_") and name.count("_") < 4 and not defined[name]
            }
            shared = defined.keys() & {"invoke", "refused", "process", "plan_of"}
            faults += [
                f"{path.name}: {name}" for name in (*filter(other, imported), *shared, *short)
            ]
    assert faults == []


def test_folders_of_tests_are_rooms():
    """A fault in a room is found by the folder of its name."""
    elsewhere = {"benchmarks", "gallery", "gpu", "guides", "site"}
    tested = {
        path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")
    }
    folders = {
        folder for folder in tested if folder.parts and folder.parts[0] not in {"data", *elsewhere}
    }
    assert [str(folder) for folder in folders if not (ROOT / "ppsim" / folder).is_dir()] == []
    rooms = {path.parent.name for path in (ROOT / "ppsim").glob("*/__init__.py")}
    assert rooms - {folder.parts[0] for folder in folders} == set()


@pytest.mark.slow
def test_outputs_are_compared_with_the_code_of_the_other_checkout(tmp_path):
    """Not with this one's, whatever folder it is called from; the same lines of this checkout are
    the same.
    """
    assert run_in(ROOT, [["list"]]) == run_in(ROOT, [["list"]])
    with pytest.raises(subprocess.CalledProcessError):
        run_in(tmp_path, [["list"]])
