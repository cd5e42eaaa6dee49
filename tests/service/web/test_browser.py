"""The dashboard in a real Chromium, in front of a real service with a real worker."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from prudent.service.security.tokens import hash_token, new_token
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store
from prudent.service.store.users import User
from prudent.service.web.app import create_app

if TYPE_CHECKING:
    Chrome = Any

pytest.importorskip("sklearn")
# One service and one browser for all; no test needs what another has made.


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service")
    (folder / "data").mkdir()
    rng = random.Random(7)
    with (folder / "data" / "flats.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["size", "rooms", "district", "rent"])
        for _ in range(300):
            size, district = rng.uniform(20, 150), rng.choice(["north", "south"])
            rent = 8 * size + (200 if district == "south" else 0) + rng.gauss(0, 20)
            writer.writerow([f"{size:.1f}", max(1, round(size / 30)), district, f"{rent:.1f}"])
    return folder


@pytest.fixture(scope="module")
def service(home: Path, chrome: Chrome, nobody_left: Callable[[Path], None]) -> Iterator[str]:
    command = [sys.executable, "-m", "prudent.cli.main", "serve", "--open", "--home", str(home)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PRUDENT_WARM": "no", "PRUDENT_GRACE_S": "0"}
    environment["PRUDENT_BUBBLEWRAP"] = "no"  # commands and tests share files
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            found = re.search(rb"http://[\d.]+:\d+", server.stdout.readline())
            assert found is not None
            yield found[0].decode()
        finally:
            chrome.leave()
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(120)
            except subprocess.TimeoutExpired:
                server.kill()
    nobody_left(home)


@pytest.fixture
def page(chrome: Chrome) -> Iterator[Chrome]:
    chrome.leave()
    chrome.ask("Network.clearBrowserCookies")  # the theme, and who was signed in
    chrome.complaints.clear()
    chrome.expected.clear()
    chrome.size(1280)
    yield chrome
    assert chrome.unexpected() == []


def _submit_gated(service: str, folder: Path, name: str, count: int) -> str:
    """A study whose trials each wait for a file `go-NUMBER` in a folder."""
    document = {
        "name": name,
        "command": f"until [ -e {folder}/go-{{n}} ]; do sleep 0.05; done",
        "parameters": {"n": list(range(count))},
        "goal": "minimise time_s",
        "strategy": "grid",
        "early_stop": False,
        "max_trials": count,
    }
    answer = httpx.post(f"{service}/v1/runs/tune", json=document)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_submit_watch_report_and_predict(page: Chrome, service: str) -> None:
    """What a person does first: fill in the form, look on, open the report, ask the model."""
    page.open(f"{service}/")
    page.until("location.pathname === '/runs'")
    page.click("a[href='/submit/train']")
    page.until("!!document.querySelector('#submit')")
    page.fill("#path", "flats.csv")
    page.fill("#target", "rent")
    page.fill("#budget", "4 trials")
    page.fill("#name", "rents of flats")
    page.click("#submit button[type=submit]")
    page.until("/^\\/runs\\/\\w{26}$/.test(location.pathname)")
    assert page.text("h1") == "rents of flats"
    page.run("window.stays = true")  # a reload would forget it
    run = page.run("location.pathname").rpartition("/")[2]
    page.until("document.querySelectorAll('[data-live=trials] tbody tr').length >= 1")
    page.until("!!document.querySelector('.status .state.succeeded')")
    assert page.run("window.stays") is True
    assert page.run("document.querySelectorAll('.ranking tbody tr').length") >= 3
    assert page.run("document.querySelectorAll('.curve .dot').length") >= 3
    assert "trial" in page.text("[data-live=ledger]").lower()
    assert "The run begins" in page.text("[data-live=log]")
    page.click("#report")
    page.until("location.pathname.endsWith('/report') && !!document.querySelector('h1')")
    assert "rent" in page.text("body").lower()
    assert page.run("self.origin") == "null"  # a report is shown as a stranger
    page.until("!!document.querySelector('.js-plotly-plot .main-svg')")  # drawn by the service's one Plotly
    assert page.run("document.documentElement.outerHTML.length") < 1_000_000
    page.expected.append("sandboxed")  # what a report may not do as a stranger is not our page's trouble

    page.open(f"{service}/models")
    page.click(f".models a[href='/models/{run}-1']")
    page.until("!!document.querySelector('#predict')")
    for place, label in enumerate(
        page.run("[...document.querySelectorAll('#predict label')].map(e => e.innerText)")
    ):
        if label == "district":
            page.choose(f"#c{place}", "south")
        else:
            page.fill(f"#c{place}", {"size": "100", "rooms": "3"}[label])
    page.click("#predict button[type=submit]")
    page.until("!!document.querySelector('#answer')")
    assert 900 < float(page.text("#answer")) < 1100
    assert page.run("document.querySelector('select').value") == "south"


def test_cancel_another(page: Chrome, service: str, tmp_path: Path) -> None:
    run = _submit_gated(service, tmp_path, "a-long-one", 2)
    page.open(f"{service}/runs")
    page.until("document.body.innerText.includes('a-long-one')")
    page.until(
        f"!!document.querySelector(\"a[href='/runs/{run}']\")?.closest('tr').querySelector('.running')"
    )
    page.click(f"a[href='/runs/{run}']")
    page.until("!!document.querySelector('.status .state.running')")
    page.click("#cancel summary")
    page.click("#cancel button")
    page.until("!!document.querySelector('.status .state.cancelled')")
    assert page.run("document.querySelector('#cancel')") is None
    assert httpx.get(f"{service}/v1/runs/{run}").json()["status"] == "cancelled"


def test_errors_are_shown_at_their_fields(page: Chrome, service: str) -> None:
    page.expected.append("status of 422")
    page.open(f"{service}/submit/train")
    page.fill("#path", "flat.csv")
    page.fill("#budget", "much")
    page.click("#submit button[type=submit]")
    page.until("!!document.querySelector('#errors')")
    assert 'Did you mean "flats.csv"' in page.text("#path-error")
    assert page.text("#budget-error")
    assert page.run("document.querySelector('#path').value") == "flat.csv"  # nothing is typed twice
    assert page.run("document.querySelector('#path').getAttribute('aria-invalid')") == "true"
    assert page.run("document.activeElement.id") == "errors"


PAGES = (
    "/docs",
    "/runs",
    "/models",
    "/machines",
    "/money",
    "/submit/train",
    "/submit/tune",
    "/submit/schedule",
)


@pytest.mark.parametrize("path", [*PAGES, "/submit/schedule?as=json", "/nowhere-of-a-run", "run"])
def test_pages_fit_a_telephone_in_light_and_dark(
    path: str, page: Chrome, service: str, tmp_path: Path
) -> None:
    (tmp_path / "go-0").touch()
    if path == "run":
        known = httpx.get(f"{service}/v1/runs").json()["runs"]
        path = "/runs/" + (known[0]["id"] if known else _submit_gated(service, tmp_path, "one", 1))
    elif path == "/nowhere-of-a-run":
        path = "/runs/nowhere"
        page.expected.append("status of 404")
    colours = set()
    page.size(360)
    page.open(service + path)
    for width, dark in ((360, False), (1280, True)):
        page.size(width, dark=dark)  # as whoever turns the telephone, or at dusk
        scheme = "dark" if dark else "light"
        page.until(f"innerWidth === {width} && matchMedia('(prefers-color-scheme: {scheme})').matches")
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.run(wide) <= 0, f"{path} is wider than {width} px"
        colours.add(page.run("getComputedStyle(document.body).backgroundColor"))
        assert page.run(_PALE) == []
    assert len(colours) == 2


# Texts with less contrast than WCAG's 4.5 against what lies behind them.
_PALE = """(() => {
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const pale = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest("[disabled], .hidden, .skip, option, svg")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) pale.push(`${e.tagName}.${e.className} ${e.innerText.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return pale;
})()"""


def test_the_theme_is_chosen_and_stays(page: Chrome, service: str) -> None:
    page.open(f"{service}/runs")
    before = page.run("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    after = page.run("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.open(f"{service}/money")
    assert page.run("getComputedStyle(document.body).backgroundColor") == after


def test_everything_is_reached_by_keyboard(page: Chrome, service: str) -> None:
    page.open(f"{service}/submit/train")
    reached, name = [], "(e => e.id || e.getAttribute('href') || e.innerText)(document.activeElement)"
    for _ in range(40):
        for kind in ("keyDown", "keyUp"):
            page.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.append(page.run(name))
        if page.run("document.activeElement !== document.body"):
            assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none", reached[-1]
    for wanted in (
        "#main",
        "/runs",
        "/submit/train",
        "theme",
        "path",
        "domain",
        "target",
        "budget",
        "Submit",
    ):
        assert wanted in reached, wanted


_MEASURE_SHIFTS = """window.shift = 0;
new PerformanceObserver(list => list.getEntries().forEach(entry => { window.shift += entry.value; }))
  .observe({type: "layout-shift", buffered: false})"""


@pytest.mark.soak  # one long look at one page
def test_nothing_jumps_while_a_run_goes_on(page: Chrome, service: str, tmp_path: Path) -> None:
    """At 360 px, what one reads stays where it is when fresh parts come."""
    run = _submit_gated(service, tmp_path, "step-by-step", 4)
    page.size(360, 780)
    page.open(f"{service}/runs/{run}")
    (tmp_path / "go-0").touch()
    page.until("document.querySelectorAll('.curve .dot').length === 1")
    parts = "['.tiles', '[data-live=figure]', '[data-live=board]']"
    tops = f"JSON.stringify({parts}.map(s => document.querySelector(s).offsetTop))"
    page.run(_MEASURE_SHIFTS)
    first = json.loads(page.run(tops))
    for number in (1, 2):
        (tmp_path / f"go-{number}").touch()
        page.until(f"document.querySelectorAll('.curve .dot').length === {number + 1}")
        assert json.loads(page.run(tops)) == first
    (tmp_path / "go-3").touch()
    page.until("!!document.querySelector('.status .state.succeeded')")
    assert page.run("window.shift") < 0.1  # what is called good


def test_pale_texts_would_be_found(page: Chrome, service: str) -> None:
    page.open(f"{service}/runs")
    page.run("document.querySelector('h1').style.color = '#999'")
    assert len(page.run(_PALE)) == 1


TOKENS = {name: new_token() for name in ("vera", "mia")}


@pytest.fixture
def team(
    chrome: Chrome, settings: Settings, serving: Callable[[FastAPI], AbstractContextManager[httpx.Client]]
) -> Iterator[str]:
    """A service whose users have tokens."""
    with Store(settings.database) as store:
        for name, role in (("vera", "viewer"), ("mia", "member")):
            store.write(users.put, User(name, role, None, hash_token(TOKENS[name])))
        with serving(create_app(settings, store)) as client:
            yield str(client.base_url).rstrip("/")
            chrome.leave()


def _sign_in(page: Chrome, token: str) -> None:
    page.fill("#token", token)
    page.click("#sign-in button[type=submit]")


def test_people_sign_in_and_see_what_their_role_may(page: Chrome, team: str) -> None:
    # A wrong token, and a page that asks whether there is a session already: the browser remarks on both.
    page.expected.append("status of 401")
    page.open(f"{team}/runs?status=failed")
    page.until("location.pathname === '/sign-in'")
    assert page.run("document.activeElement.id") == "token"
    assert page.run("document.querySelector('#token').type") == "password"
    assert page.run("!!document.querySelector('nav, a[href^=\"/submit\"]')") is False

    _sign_in(page, new_token())
    page.until("!!document.querySelector('#token-error')")
    assert "This token is not valid" in page.text("#token-error")
    assert page.run("document.querySelector('#token').value") == ""  # it is not shown again

    _sign_in(page, TOKENS["vera"])
    page.until("location.pathname === '/runs'")
    assert page.run("location.search") == "?status=failed"  # where they wanted to go
    assert page.text(".who span") == "vera"
    assert page.run("document.cookie").find("prudent_session") == -1  # no script reads it
    assert page.run("!!document.querySelector('a[href^=\"/submit\"]')") is False
    page.open(f"{team}/submit/train")
    assert "may look, but not submit" in page.text("main")
    assert page.run("!!document.querySelector('#submit, main input, main textarea')") is False

    page.click(".who button")
    page.until("location.pathname === '/sign-in'")
    page.open(f"{team}/runs")
    page.until("location.pathname === '/sign-in'")
    _sign_in(page, TOKENS["mia"])
    page.until("location.pathname === '/runs'")
    assert "No runs yet" in page.text("main")
    page.click("a[href='/submit/train']")
    page.until("!!document.querySelector('#submit')")
    page.click(".who button")
    page.until("location.pathname === '/sign-in'")
