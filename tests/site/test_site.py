"""The site is built without a network, leads somewhere everywhere, and has a page for whatever can
be asked.
"""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import click
import pytest

import ppsim
from ppsim import schedules
from ppsim.cli import SECTIONS, group
from tests.browser import Browser, started
from tests.commands import answer
from tests.guides.replay import GUIDES, ROOT, SITE, replay, unproved
from tests.site import __main__ as command
from tests.site.build import FORMATS, LIVE
from tests.site.commands import command_of, command_pages, option_rows
from tests.site.fields import attributes, cell, code
from tests.site.lessons import read_lessons
from tests.site.links import link_faults
from tests.site.schedules import uses

needs_generator = pytest.mark.skipif(
    find_spec("zensical") is None, reason="zensical is not installed: pip install '.[docs]'"
)
PHONE, LAPTOP, WALL = (390, 844), (1280, 900), (3840, 2160)
# Pages of every kind.
SHOWN = (
    "index",
    "glossary",
    "schedules/index",
    "schedules/zb-1p",
    "guides/plan-a-run",
    "commands/run",
    "python/sweep",
    "formats/gpu",
)
RUN_PAGES = sorted(page for page in SITE.rglob("*.md") if "```console" in page.read_text())
# The theme's buttons for copying are landmarks of one name.
RULES = """axe.run({ exclude: [".md-code__nav"] }).then(({ violations, passes }) => ({
  passes: passes.length, violations: violations.map(v => `${v.id}: ${v.nodes.map(n => n.target)}`),
}))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    assert command.main([str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.slow
@needs_generator
def test_every_schedule_command_function_guide_and_format_has_its_page(site):
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    names = [family.name for family in schedules.families()]
    commands = group.list_commands(click.Context(group))
    guides = [path.stem for path in GUIDES.glob("*.md") if path.stem != "README"]
    functions = [path.stem for path in site.glob("python/*.html")]
    assert {f"schedules/{name}.html" for name in names} <= pages
    assert {f"playground/{name}.html" for name in names} <= pages
    assert {f"commands/{name}.html" for name in commands} <= pages
    assert {f"guides/{name}.html" for name in guides} <= pages
    assert {f"formats/{name}.html" for name in FORMATS} <= pages
    assert {*LIVE, "security.html", "measurements.html", "changelog.html"} <= pages
    assert {name.lower() for name in ppsim.__all__} <= {
        name.removesuffix("-class") for name in functions
    }


@pytest.mark.slow
@needs_generator
def test_a_page_to_edit_leads_back_to_the_site_and_a_lesson_to_the_next(site):
    """It is one file that ppsim wrote, without the site's navigation."""
    links = re.compile(r'<a href="([^"]+)"')
    for family in schedules.families():
        page = (site / "playground" / f"{family.name}.html").read_text()
        assert links.findall(page) == ["index.html", f"../schedules/{family.name}.html"]
    names = list(read_lessons())
    for name, following in pairwise([*names, None]):
        page = (site / "lessons" / f"{name}.html").read_text()
        further = [f"{following}.html"] if following else []
        assert links.findall(page) == ["index.html", *further]


@pytest.mark.slow
@needs_generator
def test_pages_load_nothing_from_elsewhere_and_every_link_leads_somewhere(site):
    """The check that the command ends with, which finds a broken link, a lost anchor and a foreign
    font.
    """
    assert link_faults(site) == []
    page = site / "glossary.html"
    text = page.read_text()
    added = (
        '<a href="gone.html">x</a><a href="numbers.html#gone">x</a><img '
        'src="https://example.org/x.png">'
    )
    page.write_text(text.replace("</main>", f"{added}</main>"))
    style = site / "assets" / "other.css"
    style.write_text("@font-face { src: url('https://example.org/x.woff2') }")
    try:
        assert link_faults(site) == [
            "glossary.html: loads https://example.org/x.png",
            "glossary.html: gone.html leads nowhere",
            "glossary.html: numbers.html#gone leads nowhere",
            "assets/other.css: loads from another host",
        ]
    finally:
        page.write_text(text)
        style.unlink()


@pytest.mark.slow
@needs_generator
@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("formats/gpu", "How to add a GPU"),
        ("glossary", "waits for its first backward"),
        ("python/sweep", "microbatches"),
        ("guides/record-a-run", "from ppsim.record import record"),
        ("schedules/zb-1p", "Open it in the playground"),
        ("commands/plan", "Global batch size: sequences in a step."),
    ],
)
def test_the_search_index_finds_the_page_that_answers(site, page, said):
    """How to add a GPU, what turnaround means, the arguments of pp.sweep, how to record a run."""
    found = json.loads((site / "search.json").read_text())["items"]
    here = [item for item in found if item["location"].startswith(page)]
    texts = [re.sub(r"<[^>]*>", "", f"{item['title']} {item['text']}") for item in here]
    assert any(said in text for text in texts)
    body = re.sub(r"<[^>]*>", "", (site / f"{page}.html").read_text())
    assert said in body


@pytest.mark.browser
@needs_generator
@pytest.mark.parametrize(
    ("asked", "page"),
    [
        ("turnaround", "glossary.html"),
        ("add a GPU", "formats/gpu.html"),
        ("pp.sweep", "python/sweep.html"),
        ("record a run", "guides/record-a-run.html"),
    ],
)
def test_search_answers_in_a_page_that_is_opened_as_a_file(site, browser, asked, page):
    """Without a server, and without a network: the page that explains a word is among the first
    that are shown.
    """
    show(browser, site, "index")
    shadow = "[...document.querySelectorAll('*')].find(e => e.shadowRoot)?.shadowRoot"
    browser.wait(f"{shadow}?.querySelector('input')")
    browser.click(".md-search__button")
    browser.wait(f"{shadow}.activeElement?.tagName === 'INPUT'")
    browser.ask("Input.insertText", text=asked)
    browser.wait(f"{shadow}.querySelector('a')")
    found = browser.run(f"[...{shadow}.querySelectorAll('a')].map(a => a.href)")
    assert any(page in address for address in found[:4]), found
    assert browser.errors == []


@pytest.mark.browser
@needs_generator
@pytest.mark.parametrize(("theme", "size"), [("light", PHONE), ("dark", LAPTOP), ("light", WALL)])
def test_pages_fit_every_screen_and_keep_the_rules_of_axe(site, browser, theme, size):
    axe = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    browser.ask(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}]
    )
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.ask("Emulation.setDeviceMetricsOverride", **screen)
    for page in SHOWN:
        show(browser, site, page)
        assert browser.run("document.documentElement.scrollWidth") <= width, page
        if size != PHONE:
            wide = (
                "[...document.querySelectorAll('pre code')].some(e => e.scrollWidth > "
                "e.clientWidth + 1)"
            )
            assert not browser.run(wide), page
        browser.run(axe)
        found = browser.run(RULES)
        assert found["passes"] > 20
        assert found["violations"] == [], page
        assert browser.errors == []
    browser.ask("Emulation.clearDeviceMetricsOverride")


@pytest.mark.browser
@needs_generator
def test_tables_of_keys_and_schedules_fit_a_phone(site, browser):
    screen = {"width": PHONE[0], "height": PHONE[1], "deviceScaleFactor": 1, "mobile": True}
    browser.ask("Emulation.setDeviceMetricsOverride", **screen)
    hidden = (
        "[...document.querySelectorAll('.md-typeset__scrollwrap')].map(e => e.scrollWidth - "
        "e.clientWidth)"
    )
    for page in ("formats/model", "formats/gpu", "schedules/index"):
        show(browser, site, page)
        found = browser.run(hidden)
        assert found, page
        assert max(found) <= 0, page
    browser.ask("Emulation.clearDeviceMetricsOverride")


def show(browser: Browser, site: Path, page: str) -> None:
    """Open a page of the site."""
    browser.ask("Page.navigate", url="about:blank")
    browser.errors.clear()
    browser.ask("Page.navigate", url=(site / f"{page}.html").as_uri())
    browser.wait("document.readyState === 'complete' && document.querySelector('main')")


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.stem)
def test_examples_of_files_load_and_print_what_the_page_shows(page, tmp_path):
    """GPU, cluster, model, profile, table of ops, schedule and JSON: each file is written, and read
    by a command.
    """
    text = page.read_text()
    assert replay(text, tmp_path) == text
    assert "Error" not in "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))


@pytest.mark.parametrize("name", FORMATS)
def test_a_page_on_a_format_has_an_example_and_a_command_that_reads_it(name):
    text = (SITE / "formats" / f"{name}.md").read_text()
    wanted = r"^\$ (ppsim|python) .*read\.py" if name == "json" else r"^```\w+ \S+\n"
    assert re.search(wanted, text, re.MULTILINE)
    assert re.search(r"^\$ (ppsim|python) ", text, re.MULTILINE)


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.stem)
def test_numbers_in_the_prose_of_a_run_page_come_from_what_it_runs(page):
    known = {"100", "16", "32"} if page.stem in ("index", "numbers") else set()
    assert [number for number in unproved(page.read_text()) if number not in known] == []


def test_every_schedule_says_when_to_use_it():
    when = uses()
    assert set(when) == {family.name for family in schedules.families()}
    assert all(6 <= len(text.split()) <= 35 and text.endswith(".") for text in when.values())


def test_the_reference_lists_every_option_that_the_help_has():
    """Rare ones too; hidden ones are left out, as in the help."""
    run = command_of("run")
    listed = "".join(
        option for rows in option_rows(run, click.Context(run)).values() for option, _ in rows
    )
    shown = [p for p in run.params if isinstance(p, click.Option) and not p.hidden]
    assert len(shown) > 60
    assert [p.opts[0] for p in shown if max(p.opts, key=len) not in listed] == []


def test_the_reference_has_the_sections_of_the_help():
    """Each section with its commands, as ``ppsim --help`` lists them."""
    page = command_pages()["commands/index.md"]
    shown = {
        part.partition("\n")[0]: set(re.findall(r"\]\((\w+)\.md\)", part))
        for part in page.split("\n## ")[1:]
    }
    for section in SECTIONS:
        below = answer("--help")[1].partition(f"{section}:\n")[2].partition("\n\n")[0]
        assert shown[section] == set(re.findall(r"^  (\w+) ", below, re.MULTILINE))
    assert shown["Other"] == {"completion", "open", "profile"}


def test_keys_of_a_file_are_explained_by_docstring_or_comment():
    from ppsim.engine.detailed.cluster import Link
    from ppsim.inputs.profile.profile import OpTime
    from ppsim.workload.hardware.hardware import Gpu

    assert attributes(Gpu)["memory_gib"] == "memory in GiB."
    assert attributes(Link)["alpha_us"] == "latency"
    assert attributes(OpTime)["part"].startswith("`layers` (transformer layers)".replace("`", "``"))
    assert cell("a | b <c> `d|e`") == "a &#124; b &lt;c&gt; <code>d&#124;<wbr>e</code>"


def test_the_workflow_publishes_what_the_command_builds():
    """With the extra that has the generator, into the folder that is uploaded."""
    text = (ROOT / ".github" / "workflows" / "site.yml").read_text()
    assert "pip install -e '.[docs]'\n" in text
    assert text.count(" build/site\n") == 2
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(extras["docs"]) < set(extras["test"])


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--help"]])
def test_the_command_takes_one_folder(words, capsys):
    assert command.main(words) == 2
    assert "python -m tests.site OUT" in capsys.readouterr().err


def test_a_folder_with_files_that_are_no_site_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert command.main([str(tmp_path)]) == 2
    assert "has files that are no site" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_cells_of_tables_show_signs_as_they_are_and_break_between_choices():
    assert cell("at most 1. [0<=x<=1] a_b | c") == ("at most 1. \\[0&lt;=x&lt;=1\\] a\\_b &#124; c")
    assert cell("see `a|b`") == "see <code>a&#124;<wbr>b</code>"
    assert code("--rule [torch|megatron]") == "<code>--rule [torch&#124;<wbr>megatron]</code>"


@pytest.mark.browser
@needs_generator
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_pages_of_commands_fit_and_pictures_have_the_colours_of_light_pages(
    site, browser, theme
):
    """Pictures stand on white, whatever the reader's system prefers."""
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.ask("Emulation.setEmulatedMedia", features=features)
    show(browser, site, "index")
    looks = browser.run("getComputedStyle(document.querySelector('.md-typeset img')).colorScheme")
    show(browser, site, "commands/sweep")
    wide = browser.run(
        "[...document.querySelectorAll('.md-typeset table')].map(t => t.offsetWidth - "
        "document.querySelector('article').offsetWidth)"
    )
    said = browser.run("document.querySelector('article').textContent")
    browser.ask("Emulation.setEmulatedMedia", features=[])
    assert looks == "light"
    assert wide
    assert max(wide) <= 0
    assert "[0<=x<=1]" in said
