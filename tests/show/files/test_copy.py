"""Copy buttons of pages, in browsers that copy and in browsers that refuse to."""

import json

import pytest

from tests.browser import Browser, started
from tests.commands import invoke

REFUSED = "The browser refuses to copy. The text is selected: press Ctrl + C"
RUN = "run 1f1b --stages 4 --mb 8"
# each with the words of its page, its button, where the page says what became of it, and its words
PAGES = {
    "command": (RUN, "#command", "#status", "Command copied"),
    "link": (
        "run 1f1b --stages 4 --mb 8",
        "[title='Copy a link to this state']",
        "#status",
        "Link copied",
    ),
    "plan": (
        "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --gbs 16 --schedules 1f1b --pp 1",
        "[data-copy]",
        "h3 output",
        "copied",
    ),
}
# what a browser does that has the clipboard, that is asked and refuses, and that has none
# (pages from plain http)
ALLOWED = "navigator.clipboard.writeText = async text => { window.copied = text; }"
DENIED = "navigator.clipboard.writeText = () => Promise.reject(Error('denied'))"
ABSENT = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("copies")) as made:
        yield made


def press(browser: Browser, name: str, clipboard: str, folder) -> str:
    """Press a copy button of a page, and return what the page says then."""
    words, button, status, _ = PAGES[name]
    target = folder / f"{name}.html"
    assert invoke(*words.split(), "-q", "-o", str(target)).exit_code == 0
    browser.open(target.as_uri())
    if name == "link":
        browser.run("document.getElementById('edit').click()")
    browser.run(f"void ({clipboard})")
    browser.run(f"document.querySelector({status!r}).textContent = ''")
    browser.run(f"document.querySelector({json.dumps(button)}).click()")
    browser.wait(f"document.querySelector({status!r}).textContent")
    said: str = browser.run(f"document.querySelector({status!r}).textContent")
    return said


def copied_text(browser: Browser, name: str) -> str:
    """Return what the button of the page is to copy."""
    shown = {
        "command": "document.getElementById('command').textContent",
        "link": "location.href",
        "plan": "document.querySelector('#plan pre').textContent",
    }
    found: str = browser.run(shown[name])
    return found


@pytest.mark.browser
@pytest.mark.parametrize("clipboard", [DENIED, ABSENT], ids=["denied", "absent"])
@pytest.mark.parametrize("name", PAGES)
def test_where_a_browser_refuses_the_text_is_selected(name, clipboard, browser, tmp_path):
    said = press(browser, name, clipboard, tmp_path)
    text = copied_text(browser, name)
    assert said == REFUSED + (f": {text}" if name == "link" else "")
    browser.wait("getSelection().toString()")
    assert browser.run("getSelection().toString()").strip() == text.strip()
    assert not browser.errors


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_copy_button_copies_and_says_so(name, browser, tmp_path):
    said = press(browser, name, ALLOWED, tmp_path)
    assert said == PAGES[name][3]
    assert browser.run("window.copied") == copied_text(browser, name)
