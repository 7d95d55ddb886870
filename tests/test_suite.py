"""The suite's own rules: what is an error, what is fast, and where helpers live."""

import ast
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def warn_in(module: str) -> None:
    """Warn as a line of that module would."""
    exec("import warnings; warnings.warn('old', DeprecationWarning)", {"__name__": module})


@pytest.mark.parametrize("module", ["ppsim", "ppsim.core.ops", "ppsim.cli.run", "ppsim.schedules.gpipe", "tests.cases"])
def test_a_warning_of_ours_is_an_error(module):
    with pytest.raises(DeprecationWarning, match="old"):
        warn_in(module)


@pytest.mark.parametrize("module", ["_pytest.fixtures", "hypothesis", "ppsimulator", "testsuite", "some.ppsim"])
def test_a_warning_of_somebody_else_is_a_warning(module):
    """A plugin's warning must not turn red tests into an internal error that hides what they say."""
    with warnings.catch_warnings(record=True) as caught:
        warn_in(module)
    assert [str(warning.message) for warning in caught] == ["old"]


def test_a_fast_test_cannot_start_a_process():
    with pytest.raises(pytest.fail.Exception, match="is not marked slow"):
        subprocess.run([sys.executable, "--version"], check=True)


@pytest.mark.slow
def test_a_slow_test_can_start_a_process():
    assert subprocess.run([sys.executable, "--version"], check=True).returncode == 0


def test_settings_ask_for_no_plugin_that_only_the_check_uses(pytestconfig):
    """``pytest`` runs without pytest-xdist; ``.ci/run`` asks for two processes itself."""
    assert not [word for word in pytestconfig.getini("addopts") if word.startswith(("-n", "--dist", "--cov"))]
    assert "PYTEST_ADDOPTS" in (ROOT / ".ci" / "run").read_text()


@cache
def parsed(path: Path) -> tuple[list[str], dict[str, str | None]]:
    """The modules that a file imports, and its functions with their docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    imported += [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    return imported, {node.name: ast.get_docstring(node) for node in nodes if isinstance(node, ast.FunctionDef)}


MODULES = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "data" not in path.parts]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_a_helper_that_two_modules_use_lives_in_neither(path):
    """Test modules import what they share from tests/cases.py and the like, never from each other."""
    imported, defined = parsed(path)
    assert not [name for name in imported if name.startswith("tests.") and name.rpartition(".")[2].startswith("test_")]
    assert not defined.keys() & {"invoke", "refused", "process", "plan_of"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_every_test_states_its_promise(path):
    """In its docstring, or in a name that is a sentence."""
    tests = [name for name, promise in parsed(path)[1].items() if name.startswith("test_") and not promise]
    assert [name for name in tests if name.count("_") < 4] == []
