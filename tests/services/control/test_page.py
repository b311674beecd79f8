"""The page in a real browser. Runs are scripted: what their processes would write is written by the test."""

import re
import signal
import time

import pytest

from services.control.app import PAGE
from services.control.auth import Gate
from services.control.plane import ControlPlane
from services.control.progress import ProgressFile
from so101.datasets.demo import save_demo
from so101.files import write_json
from tests.services.control.browser import CHROMIUM, Browser
from tests.services.control.conftest import FakeLauncher, command_line_run, serving
from tests.services.control.test_api import demo

browsing = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
HOSTILE = "<img src=x onerror=document.hacked=1>"


class ScriptedLauncher(FakeLauncher):
    """Processes that obey SIGTERM at once."""

    def signal(self, state, number):
        super().signal(state, number)
        if number == signal.SIGTERM:
            self.end(state, 128 + number)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def launcher():
    return ScriptedLauncher()


@pytest.fixture
def running(make_config, launcher):
    """A control plane that looks around."""
    with ControlPlane(make_config(), launcher) as plane:
        yield plane


@pytest.fixture
def address(running):
    with serving(running, Gate(None)) as address:
        yield address


def open_page(browser, address, **options):
    browser.errors.clear()
    browser.open(address, **options)
    browser.wait_for("document.querySelector('#link').textContent === 'live'")
    browser.wait_for("document.querySelector('#start [name=task]').options.length > 0")


def card(run_id, what=""):
    return f'[data-run="{run_id}"] {what}'.strip()


def wait_state(browser, run_id, state):
    browser.wait_for(f"""document.querySelector('[data-run="{run_id}"]')?.dataset.state === '{state}'""")


@browsing
def test_a_run_is_started_watched_stopped_and_resumed(browser, address, running, launcher):
    open_page(browser, address)
    assert browser.text("#no-runs") == "No run yet. Start one below."

    browser.click("#start summary")
    browser.type("#start [name=name]", "mine")
    browser.type("#start [name=demos]", "4")
    browser.type("#start [name=overrides]", "skilgen.nn_k=3")
    browser.click("#start button[type=submit]")
    browser.wait_for("!document.querySelector('#start-fault').hidden")
    assert "did you mean 'skillgen'" in browser.text("#start-fault")

    browser.evaluate("document.querySelector('#start [name=overrides]').value = ''")
    browser.click("#start button[type=submit]")
    wait_state(browser, "mine", "running")
    assert browser.evaluate("document.querySelector('#start-fault').hidden")
    assert launcher.jobs["mine"]["demos"] == 4

    now = [time.time()]
    reporter = ProgressFile(running.runs._state("mine").progress, 0.0, lambda: now[0])
    reporter.start("generate", 4)
    for done in range(2):
        now[0] += 30
        save_demo(running.runs.folder / "mine" / "generated", demo(done))
        reporter.advance(1, f"{done + 1} of {done + 2} attempts succeeded")
    save_demo(running.runs.folder / "mine" / "failed", demo(2, "dropped"))
    write_json(running.runs.folder / "mine" / "run.json", {"version": 1, "digest": "", "settings": {}})
    browser.wait_for(f"document.querySelector('{card('mine', 'progress')}').value === 2")
    assert browser.text(card("mine", ".numbers")).splitlines() == [
        "generate: 2 of 4 demos, 2 of 3 attempts succeeded", "2.0 demos/min, 1 min left",
    ]  # fmt: skip
    browser.wait_for(f"document.querySelector('{card('mine', '.cause .n')}')?.textContent === '1 of 3'")
    assert browser.text(card("mine", ".cause .name")) == "dropped"
    assert "succeeded 2 of 3 (95 %: 21 % to 94 %)" in browser.text(card("mine"))

    browser.click(card("mine", "[aria-label^=stop]"))
    wait_state(browser, "mine", "stopped")
    browser.click(card("mine", "[aria-label^=resume]"))
    wait_state(browser, "mine", "running")
    assert launcher.jobs["mine"]["start"] == 2

    launcher.end(running.runs._state("mine"), 6, "2 demos are verified, 4 are wanted <b>")
    wait_state(browser, "mine", "failed")
    assert browser.text(card("mine", ".fault")) == "2 demos are verified, 4 are wanted <b>"

    browser.click(card("mine", "[aria-label^=delete]"))
    browser.click("#confirm button[value=no]")
    browser.wait_for("!document.querySelector('#confirm').open")
    wait_state(browser, "mine", "failed")
    browser.click(card("mine", "[aria-label^=delete]"))
    browser.click("#confirm button[value=yes]")
    browser.wait_for("document.querySelectorAll('[data-run]').length === 0")
    assert (running.runs.folder / ".trash").is_dir()
    expected = ["422"]  # the browser notes that an answer had that status
    assert [error for error in browser.errors if not any(status in error for status in expected)] == []


@browsing
def test_names_of_strangers_are_text(browser, address, running):
    folder = command_line_run(running.runs.folder / HOSTILE, **{"task.name": HOSTILE, "--seeds": HOSTILE})
    save_demo(folder / "failed", demo(0, HOSTILE))
    save_demo(folder / "verified", demo(1))
    (folder / "videos" / "demo_000001").mkdir(parents=True)
    (folder / "videos" / "demo_000001" / f"{HOSTILE}.mp4").write_bytes(b"x")
    write_json(folder / "dataset" / "meta" / "info.json", {"robot_type": HOSTILE, "total_episodes": HOSTILE})
    open_page(browser, address)
    browser.wait_for("document.querySelectorAll('[data-run]').length === 1")
    browser.click("[data-run] details summary")
    browser.wait_for("document.querySelector('[data-run] pre')")
    browser.wait_for("document.querySelectorAll('#videos figcaption').length === 1")
    browser.wait_for("document.querySelector('#stock table')")
    assert browser.evaluate("document.hacked") is None
    assert browser.evaluate("document.querySelectorAll('main img').length") == len(running.cameras.names)
    for place in ("[data-run] h3", "[data-run] .cause .name", "#videos figcaption"):
        assert browser.text(place) == HOSTILE


@browsing
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_everything_fits_and_the_arm_can_always_be_stopped(browser, address, running, dark):
    for name in ("a-run-with-a-very-long-name-without-any-blanks-0123456789", "b"):
        folder = command_line_run(running.runs.folder / name, **{"task.name": "vial_to_rack"})
        save_demo(folder / "failed", demo(0, "a cause with a long name_without_any_blanks"))
    open_page(browser, address, width=360, height=640, phone=True, dark=dark)
    browser.wait_for("document.querySelectorAll('[data-run] .cause').length === 2")
    wide = "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 360)"
    wide = browser.evaluate(f"{wide}.map((e) => e.tagName + ' ' + e.id + ' ' + e.className)")
    assert browser.evaluate("document.documentElement.scrollWidth") == 360, wide
    browser.evaluate("scrollTo(0, document.body.scrollHeight)")
    top, bottom = browser.evaluate(
        "(({top, bottom}) => [top, bottom])(document.querySelector('#stop-arm').getBoundingClientRect())"
    )
    assert 0 <= top and bottom <= 640 and bottom - top >= 44
    browser.click("#stop-arm")
    browser.wait_for("document.querySelector('#notice').textContent.includes('driver service did not answer')")


@browsing
def test_by_keyboard_alone(browser, address, launcher):
    open_page(browser, address)
    browser.evaluate("document.querySelector('#start [name=demos]').focus()")
    browser.press("Enter", 13)
    browser.wait_for("document.querySelectorAll('[data-run]').length === 1")
    reached = set()
    for _ in range(30):
        browser.press("Tab", 9)
        reached.add(browser.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"))
    assert any(name.startswith("stop run") for name in reached) and "stop-arm" in reached


@browsing
def test_everything_that_can_be_used_has_a_name(browser, address, running):
    command_line_run(running.runs.folder / "a")
    open_page(browser, address)
    browser.wait_for("document.querySelectorAll('[data-run]').length === 1")
    nameless = browser.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button, video, img, progress')]"
        ".filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label') || e.alt)).length"
    )
    assert nameless == 0
    assert browser.evaluate("document.documentElement.lang") == "en"


@browsing
def test_with_a_token_one_logs_in_first(browser, running):
    with serving(running, Gate("a-token-of-some-length")) as address:
        browser.open(address)
        browser.wait_for("document.querySelector('#login').open")
        browser.type("#login [name=token]", "wrong")
        browser.click("#login button")
        browser.wait_for("!document.querySelector('#login-fault').hidden")
        browser.evaluate("document.querySelector('#login [name=token]').value = ''")
        browser.type("#login [name=token]", "a-token-of-some-length")
        browser.click("#login button")
        browser.wait_for("document.querySelector('#link')?.textContent === 'live'")
        assert not browser.evaluate("document.querySelector('#login').open")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1])
@pytest.mark.parametrize(
    ("ink", "paper", "least"),
    [("ink", "card", 4.5), ("ink", "bg", 4.5), ("muted", "card", 4.5), ("muted", "field", 4.5), ("good", "card", 4.5),
     ("bad", "card", 4.5), ("done", "card", 4.5), ("wait", "card", 4.5), ("on-good", "good", 4.5),
     ("on-danger", "danger", 4.5), ("edge", "card", 3.0)],
)  # fmt: skip
def test_contrast(scheme, ink, paper, least):
    """WCAG 2.1 AA, in light and dark."""
    blocks = re.findall(r":root \{(.*?)\}", (PAGE / "style.css").read_text(), re.DOTALL)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", blocks[scheme]))
    light, dark = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= least
