"""The rules of accessibility that axe-core checks on a page."""

from __future__ import annotations

from importlib.resources import files

from tests.browser import Browser

AXE = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
RULES = """axe.run().then(({ violations, passes }) => ({
  passes: passes.length, violations: violations.map(v => `${v.id}: ${v.nodes.map(n => n.target)}`),
}))"""


def broken_rules(browser: Browser) -> list[str]:
    """Return the rules that the open page breaks, each with the elements that do."""
    browser.run(AXE)
    found = browser.run(RULES)
    assert found["passes"] > 20
    violations: list[str] = found["violations"]
    return violations
