"""What is imported when: help and the core stay light, and public names are what they say."""

import subprocess
import sys

import pytest

from ppsim.schedules import interchangeable_families
from tests.commands import ROOT

pytestmark = pytest.mark.slow
LOADED = {
    "ppsim",
    "ppsim.base",
    "ppsim.base.notes",
    "ppsim.base.numbers",
    "ppsim.base.signals",
    "ppsim.cli",
    "ppsim.cli._help",
    "ppsim.cli._streams",
    "ppsim.errors",
    "ppsim.questions",
    "ppsim.version",
}
HEAVY = {"dask", "matplotlib", "numba", "orjson", "plotly", "rich", "torch"}


def all_loaded(code: str) -> set[str]:
    """All modules that a fresh interpreter has loaded after running the code."""
    tail = "import sys; print('loaded:', *sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tail}"], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.rpartition("loaded:")[2].split())


def loaded(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running the code."""
    return {name.partition(".")[0] for name in all_loaded(code)}


def test_import_costs_nothing():
    """``import ppsim`` loads no other package, not even numpy."""
    assert not loaded("import ppsim") & (HEAVY | {"click", "numpy"})


@pytest.mark.parametrize(
    "module",
    [
        "core.builder",
        "core.costs",
        "core.schedule",
        "core.timeline",
        "show.files.document",
        "schedules",
        "engine.simple.longest_path",
        "engine.simple.metrics",
    ],
)
def test_core_is_light(module):
    """The core needs numpy and nothing heavier, and never the command line's packages."""
    assert not loaded(f"import ppsim.{module}") & (HEAVY | {"click"})


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["compare", "--help"]]
)
def test_help_is_light(arguments):
    """Help and version load click, and neither numpy nor anything heavier."""
    code = (
        f"import sys; sys.argv[1:] = {arguments}\nfrom ppsim.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code"
    )
    modules = loaded(code)
    assert "click" in modules
    assert not modules & (HEAVY | {"numpy"})


def test_the_list_of_commands_imports_no_command():
    """``ppsim --help`` shows every command and runs none of their modules, nor what only they
    use.
    """
    code = (
        "import sys; sys.argv[1:] = ['--help']\nfrom ppsim.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        "print('loaded ppsim:', *[name for name in sys.modules if name.startswith('ppsim')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, names = ran.stdout.partition("loaded ppsim:")
    assert "validate" in shown
    assert set(names.split()) == LOADED


def test_one_command_imports_no_other():
    """``ppsim list`` loads one command's module, and no module that only completion or a
    misspelling needs.
    """
    code = (
        "import sys; sys.argv[1:] = ['list', '--help']\nfrom ppsim.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        "from ppsim.cli import group\nfrom ppsim.questions import module_of\nnames = "
        "group.list_commands(None)\n"
        "found = [n for n in names if {f'ppsim.cli.{n}', module_of(n)} & {*sys.modules}]\n"
        "assert found == ['list'], found\n"
        "assert not {'click.shell_completion', 'difflib'} & set(sys.modules)"
    )
    assert "ppsim" in loaded(code)


def modules_of_command(line: str) -> set[str]:
    """The modules of ppsim that a command imports."""
    code = (
        f"import sys; sys.argv[1:] = {line.split()}\nfrom ppsim.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code"
    )
    return {name for name in all_loaded(code) if name.partition(".")[0] == "ppsim"}


def without_scanned(modules: set[str]) -> set[str]:
    """The modules but for those of scanned folders, of which every file is imported."""
    folders = "ppsim.prices.parts.", "ppsim.engine.simple.tables."
    return {name for name in modules if not name.startswith(folders)}


def rooms_of(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if "." in name}


def test_run_imports_what_it_needs():
    """``run`` of a name imports its family, and nothing of plans, real runs, files or searches: at
    most 90 modules, 17 of them of scanned folders.
    """
    modules = modules_of_command("run 1f1b --stages 4 --mb 8")
    assert len(without_scanned(modules)) <= 73, sorted(modules)
    assert not rooms_of(modules) & {"analysis", "inputs", "real", "workload"}
    assert {name for name in modules if name.startswith("ppsim.search.")} <= {
        "ppsim.search.bounds",
        "ppsim.search.bounds.bounds",
        "ppsim.search.bounds.memory_bounds",
        "ppsim.search.bounds.work",
        "ppsim.search.problem",
    }
    families = {path.stem for path in (ROOT / "schedules").glob("[!_]*.py")} - {"registry"}
    assert {name for name in families if f"ppsim.schedules.{name}" in modules} == {"one_f_one_b"}


def test_explain_imports_what_it_needs():
    """``explain`` imports its chart, the families that its advice tries and their searches, and
    nothing that nobody asked for.
    """
    modules = modules_of_command("explain 1f1b --stages 4 --mb 8")
    assert not rooms_of(modules) & {"inputs", "real", "workload"}
    chart = {name for name in modules if name.split(".")[1:2] == ["show"]}
    marks = {"ppsim.show.drawing.terminal_marks"}  # the signs of causes
    assert chart - marks <= modules_of_command("run 1f1b --stages 4 --mb 8")
    tried = {name for name in modules if name.split(".")[1:2] in (["schedules"], ["search"])}
    known = without_scanned(modules - chart)
    assert len(known - tried) <= 71, sorted(known - tried)
    assert not {name for name in modules if name.startswith("ppsim.questions.runs")}
    families = {path.stem for path in (ROOT / "schedules").glob("[!_]*.py")} - {"registry"}
    imported = {name for name in families if f"ppsim.schedules.{name}" in modules}
    assert len(known) - len(imported) <= 94, sorted(tried)
    assert imported == {
        family.generate.__module__.rpartition(".")[2] for family in interchangeable_families()
    }
    # A job of several replicas, one device or op, a file that is read, workers, other searches.
    unasked = (
        "analysis.mending",
        "analysis.observed",
        "analysis.slowdown",
        "analysis.views",
        "base.source",
        "base.workers",
        "search.rules.policies",
    )
    assert not {f"ppsim.{name}" for name in unasked} & modules


def test_timing_needs_no_compiler():
    """A small schedule is generated, timed and measured without numba."""
    code = (
        "from ppsim import costs_for, measure, simulate\nfrom ppsim.schedules import generate\n"
        "s = generate('1f1b', stages=4, microbatches=8)\nassert measure(simulate(s, "
        "costs_for(s))).makespan == 33"
    )
    assert not loaded(code) & HEAVY


def test_public_names_are_not_hidden_by_modules():
    """No module has the name of a public function, so that importing it never hides the
    function.
    """
    code = (
        "import ppsim, ppsim.schedules, ppsim.cli, ppsim.engine.simple.longest_path, "
        "ppsim.engine.simple.metrics\n"
        "import ppsim.show.files.document, ppsim.show.drawing.gantt.figure\n"
        "import ppsim.analysis.compare\n"
        "assert all(not isinstance(getattr(ppsim, name), type(ppsim)) for name in ppsim.__all__)\n"
        "import pkgutil\n"
        "assert not {m.name for m in pkgutil.iter_modules(ppsim.__path__)} & set(ppsim.__all__)"
    )
    assert "ppsim" in loaded(code)
