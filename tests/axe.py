"""The rules of accessibility that axe-core checks on a page."""

from __future__ import annotations

import json
from importlib.resources import files

from tests.browser import Browser

AXE = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
RULES = """axe.run(OPTIONS).then(({ violations, passes, incomplete }) => ({
  judged: passes.length + violations.length + incomplete.length,
  violations: violations.map(v => `${v.id}: ${v.nodes.map(n => n.target)}`),
}))"""


def broken_rules(browser: Browser, *, colours_alone: bool = False) -> list[str]:
    """Return the rules that the open page breaks, each with the elements that do; ``colours_alone``
    for the rules of contrast, all that another theme can break.
    """
    options = {"runOnly": ["color-contrast", "link-in-text-block"]} if colours_alone else {}
    browser.run(AXE)
    found = browser.run(RULES.replace("OPTIONS", json.dumps(options)))
    assert found["judged"] > (0 if colours_alone else 20)
    violations: list[str] = found["violations"]
    return violations
