"""Pages as the server makes them: who sees what, what forms say, and that nothing foreign gets into them."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from prudent.cli.main import run as run_command
from prudent.cloud.spending import SpendingLog
from prudent.service.security.tokens import AccessMode, hash_token, new_token
from prudent.service.settings import Settings
from prudent.service.store import charges, models, runs, trials, users, workers
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import NewRun, RunRow
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table
from prudent.service.store.trials import TrialRow
from prudent.service.store.users import User
from prudent.service.web import display, forms
from prudent.service.web.app import create_app
from prudent.service.web.display import rough_money
from prudent.service.web.sign_in import local
from prudent.training.request.errors import RequestError

TOKENS = {name: new_token() for name in ("vera", "mia", "ada")}
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
Serving = Callable[[FastAPI], AbstractContextManager[httpx.Client]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/store.db") as found:
        yield found


@pytest.fixture
def client(settings: Settings, store: Store, serving: Serving) -> Iterator[httpx.Client]:
    with serving(create_app(settings, store)) as found:
        yield found


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory, serving: Serving) -> Iterator[httpx.Client]:
    """A service in which nothing is, and stays so: for tests that submit nothing that is taken."""
    settings = Settings(tmp_path_factory.mktemp("idle"))
    settings.create()
    AccessMode(settings.home).choose(True)
    with Store(settings.database) as store, serving(create_app(settings, store)) as found:
        yield found
        assert store.read(runs.page).runs == ()


@pytest.fixture
def team(settings: Settings, store: Store, serving: Serving) -> Iterator[httpx.Client]:
    """A service whose users have tokens."""
    for name, role in (("vera", "viewer"), ("mia", "member"), ("ada", "admin")):
        store.write(users.put, User(name, role, 2.0 if name == "mia" else None, hash_token(TOKENS[name])))
    with serving(create_app(settings, store)) as found:
        yield found


def _run(
    store: Store, kind: str = "train", user: str = "local", title: str = "cars", **document: Any
) -> RunRow:
    run, _ = store.write(runs.insert, NewRun(kind, user, document, "rest", "hash", title=title))
    return run


def _change(store: Store, run: RunRow, **values: Any) -> None:
    store.write(
        lambda connection: connection.execute(table.update().where(table.c.id == run.id).values(**values))
    )


def _begin(store: Store, run: RunRow, **values: Any) -> None:
    _change(store, run, status="running", fence=1, started_s=time.time() - 30, **values)


def _tried(store: Store, run: RunRow, count: int = 5) -> None:
    for number in range(1, count + 1):
        value = 10.0 / number
        details = {"metric": "rmse", "value": value}
        trial = TrialRow(
            run.id,
            number,
            f"algorithm-{number}",
            {"depth": number},
            "finished",
            -value,
            0.1,
            2.0,
            0.1,
            details,
        )
        store.write(trials.record, trial, 1)
        store.write(
            charges.record,
            charges.Charge(run.id, f"trial {number}", run.user, run.kind, 0.1, 0.096, "2026-01-01"),
        )


def _form_token(client: httpx.Client, path: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found is not None
    return found[1]


# The list


def test_runs_show_how_far_they_are_and_why_they_wait(client: httpx.Client, store: Store) -> None:
    one, two, three = _run(store, title="first"), _run(store, title="second"), _run(store, title="third")
    _begin(store, one, progress=0.42, eta_s=125.0, spent_usd=0.5)
    _change(store, two, waiting="8 runs of bob are at work.")
    _begin(store, three)
    store.write(runs.finish, three.id, 1, "failed", "The data have no rows; give some.")
    page = client.get("/runs").text
    for wanted in (
        "42 %",
        "2 min 05 s",
        "$0.50",
        "8 runs of bob are at work.",
        "The data have no rows",
        "All <b>3</b>",
    ):
        assert wanted in page
    assert 'value="0.420"' in page


def test_filters_and_pages(client: httpx.Client, store: Store) -> None:
    for number in range(60):
        _run(
            store,
            "tune" if number % 2 else "train",
            user="bob" if number < 5 else "ada",
            title=f"run {number}.",
        )
    first = client.get("/runs").text
    assert "run 59." in first
    assert "run 9." not in first
    older = re.search(r'href="(/runs\?after=[^"]+)"', first)
    assert older is not None
    assert "run 9." in client.get(older[1].replace("&amp;", "&")).text
    mine = client.get("/runs?user=bob&kind=tune").text
    assert sorted(re.findall(r"run \d+\.", mine)) == ["run 1.", "run 3."]
    assert "Nothing here" in client.get("/runs?status=failed").text
    for odd in ("/runs?after=nonsense", "/runs?status=x&kind=y", "/runs?user=%00", "/models?after=x"):
        assert client.get(odd).status_code == 200


def test_an_empty_service_says_what_to_do(client: httpx.Client) -> None:
    assert 'href="/submit/train"' in client.get("/runs").text
    assert "No models yet" in client.get("/models").text
    assert "prudent worker" in client.get("/machines").text
    assert "--daily-usd" in client.get("/money").text
    assert client.get("/").headers["location"] == "/runs"


# A run


def test_a_run_has_leaderboard_curve_trials_ledger_and_log(
    client: httpx.Client, store: Store, settings: Settings
) -> None:
    run = _run(store, domain="regression")
    _begin(store, run)
    _tried(store, run)
    settings.folder_of(run.id).mkdir(parents=True)
    line = json.dumps({"at_s": 0.0, "message": "Read 300 rows"})
    (settings.folder_of(run.id) / "log.txt").write_text(f"{line}\nno json\n{{broken\n")
    page = client.get(f"/runs/{run.id}").text
    ranking = page[page.index("Leaderboard") :]
    assert ranking.index("algorithm-5") < ranking.index("algorithm-4")  # less is better here
    assert page.count('class="dot"') == 5
    for wanted in (
        "Best rmse",
        "2.000",
        "$0.50",
        "trial 3",
        "$0.096/h",
        "2026-01-01",
        "Read 300 rows",
        "Cancel",
    ):
        assert wanted in page
    assert "data-events" in page
    store.write(runs.finish, run.id, 1, "succeeded")
    ended = client.get(f"/runs/{run.id}").text
    assert "data-events" not in ended
    assert f"/v1/runs/{run.id}/report" in ended
    assert "Cancel" not in ended


def test_live_parts_are_those_of_the_page(client: httpx.Client, store: Store) -> None:
    run = _run(store)
    _begin(store, run)
    parts = re.findall(r'data-live="(\w+)"', client.get(f"/runs/{run.id}").text)
    assert parts == re.findall(r'data-live="(\w+)"', client.get(f"/runs/{run.id}/live").text)
    assert "<html" not in client.get(f"/runs/{run.id}/live").text
    assert "<html" not in client.get("/runs/live?status=running").text


def test_a_study_shows_what_keeps_the_goal(client: httpx.Client, store: Store) -> None:
    run = _run(store, "tune", goal="minimise cost_usd subject to time_s <= 300")
    _begin(store, run)
    for number, (cost, feasible) in enumerate([(0.3, True), (0.1, False), (0.2, True)], start=1):
        trial = TrialRow(
            run.id, number, "", {"workers": number}, "finished", cost, cost, 9.0, cost, {"feasible": feasible}
        )
        store.write(trials.record, trial, 1)
    page = client.get(f"/runs/{run.id}").text
    ranking = page[page.index("Leaderboard") : page.index("Trials <small>")]
    assert re.findall(r"workers (\d)", ranking) == ["3", "1"]
    assert page.count("dot poor") == 1


def test_a_plan_is_drawn_over_time(client: httpx.Client, store: Store, settings: Settings) -> None:
    run = _run(store, "schedule", workflow="x", fleet="2*m3.medium")
    _begin(store, run)
    store.write(trials.record, TrialRow(run.id, 1, "heft", {}, "finished", 9.0, 0.1, 9.0), 1)
    store.write(runs.finish, run.id, 1, "succeeded")
    places = {f"a_ID{n}": {"vm": f"m{n % 2}", "slot": 0, "start_s": n, "finish_s": n + 2} for n in range(6)}
    settings.folder_of(run.id).mkdir(parents=True)
    result = {"makespan_s": 8.0, "assignments": places, "comparison": [], "scheduler": "heft"}
    (settings.folder_of(run.id) / "result.json").write_text(json.dumps(result))
    page = client.get(f"/runs/{run.id}").text
    assert page.count('<svg class="lane"') == 2
    assert page.count('<rect class="p0"') == 6
    (settings.folder_of(run.id) / "result.json").write_text("{")
    assert "No plan was made" in client.get(f"/runs/{run.id}").text


@pytest.mark.parametrize(
    "path", ["/runs/nothing", "/runs/%2e%2e%2fx", "/models/nothing", "/submit/nothing", "/runs/a/live"]
)
def test_what_is_not_there_is_a_page_too(path: str, idle: httpx.Client) -> None:
    answer = idle.get(path)
    assert answer.status_code == 404


# Nothing foreign


def test_names_and_errors_of_others_are_only_text(
    client: httpx.Client, store: Store, settings: Settings
) -> None:
    run = _run(store, title=EVIL, domain=EVIL, name=EVIL)
    _begin(store, run, waiting=EVIL)
    trial = TrialRow(run.id, 1, EVIL, {EVIL: EVIL}, "failed", details={"why": EVIL, "metric": EVIL})
    store.write(trials.record, trial, 1)
    store.write(charges.record, charges.Charge(run.id, EVIL, EVIL, EVIL, 1.0, 1.0, EVIL))
    store.write(
        models.record,
        [StoredModel(f"{run.id}-1", run.id, EVIL, 1, EVIL, 1.0, EVIL, 1.0, "/x", 1.0)],
        run.id,
        1,
    )
    settings.folder_of(run.id).mkdir(parents=True)
    (settings.folder_of(run.id) / "log.txt").write_text(json.dumps({"at_s": 1, "message": EVIL}) + "\n")
    (settings.home / "data" / EVIL.replace("/", "")).write_text("x")
    store.write(runs.finish, run.id, 1, "failed", EVIL)
    places = (
        "/runs",
        f"/runs/{run.id}",
        "/models",
        f"/models/{run.id}-1",
        "/money",
        "/submit/train",
        f"/runs?user={EVIL}",
    )
    for path in places:
        page = client.get(path).text
        assert "<script>alert" not in page, path
        assert "<img" not in page, path


@pytest.mark.parametrize(
    "path", ["/runs", "/models", "/machines", "/money", "/submit/train", "/submit/tune", "/sign-in"]
)
def test_pages_need_no_inline_script_or_style_and_nothing_from_elsewhere(
    path: str, idle: httpx.Client
) -> None:
    answer = idle.get(path)
    assert re.findall(r"\sstyle=|\son\w+=|<style|javascript:", answer.text) == []
    assert re.findall(r"<script(?![^>]*src=)", answer.text) == []
    assert re.findall(r'(?:src|href)="(?:https?:)?//', answer.text) == []
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe-inline" not in answer.headers["content-security-policy"]


def test_files_are_kept_by_browsers_until_they_change(idle: httpx.Client) -> None:
    page = idle.get("/runs").text
    for address in re.findall(r'"(/static/[^"]+)"', page):
        answer = idle.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    for odd in ("/static/nothing.css", "/static/..%2fpages.py", "/static/app.css.bak"):
        assert idle.get(odd).status_code == 404


# Submitting


def test_a_form_becomes_a_run_once(client: httpx.Client, store: Store) -> None:
    said = {
        "csrf": _form_token(client, "/submit/train"), "key": "abc", "path": "https://example.org/a.csv",
        "domain": "regression", "target": "", "budget": "5 trials", "seed": "3",
        "methods": ["linear-regression"],
    }  # fmt: skip
    first, second = (client.post("/submit/train", data=said) for _ in range(2))
    assert (first.status_code, second.status_code) == (303, 303)
    assert first.headers["location"] == second.headers["location"]  # the button was pressed twice
    (run,) = store.read(runs.page).runs
    found = store.read(runs.get, run.id)
    assert found is not None
    assert found.front == "form"
    assert dict(found.document) == {
        "domain": "regression", "dataset": {"path": "https://example.org/a.csv"}, "budget": "5 trials",
        "seed": 3, "methods": [{"algorithm": "linear-regression"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "said", "fields"),
    [
        ("train", {"path": "no.csv", "domain": "regression", "budget": "much"}, ["path", "budget"]),
        ("train", {"path": "http://169.254.169.254/", "domain": "regression"}, ["path"]),
        ("train", {"path": "", "domain": "regression"}, ["path"]),
        ("train", {"path": "../secret", "domain": "x", "seed": "one"}, ["path", "domain", "seed"]),
        ("tune", {"goal": "minimise", "table": "no.csv", "parameters": "a"}, ["goal", "table"]),
        ("schedule", {"workflow": "", "fleet": "3*nothing", "seed": "-1"}, ["workflow", "fleet", "seed"]),
    ],
)
def test_every_error_is_at_its_field(
    kind: str, said: dict[str, str], fields: list[str], idle: httpx.Client
) -> None:
    answer = idle.post(f"/submit/{kind}", data={**said, "csrf": _form_token(idle, f"/submit/{kind}")})
    assert answer.status_code in (400, 422)
    assert re.findall(r'class="error" id="(\w+)-error"', answer.text) == fields
    for name, value in said.items():
        assert value in answer.text, name


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "a: [", "x" * 1000, '{"domain": "\ud800"}', "&a [*a]", "1e999"]
)
def test_a_document_that_is_none_is_told(text: str, idle: httpx.Client) -> None:
    token = _form_token(idle, "/submit/train")
    body = {"csrf": token, "document": text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")}
    answer = idle.post("/submit/train", data=body)
    assert answer.status_code in (400, 422)
    assert 'id="errors"' in answer.text
    assert idle.get("/v1/runs").json()["runs"] == []


def test_a_document_by_hand(client: httpx.Client, store: Store) -> None:
    text = "domain: regression\ndataset: {path: 's3://bucket/a.csv'}\n"
    token = _form_token(client, "/submit/train")
    assert client.post("/submit/train", data={"csrf": token, "document": text}).status_code == 303
    assert store.read(runs.page).runs[0].title == "regression on a.csv"


@given(
    st.dictionaries(
        st.sampled_from(["path", "seed", "table", "workflow", "goal", "parameters", "max_trials"]),
        st.text(max_size=40),
    )
)
def test_whatever_is_filled_in_is_a_document(said: dict[str, str]) -> None:
    for kind in ("train", "tune", "schedule"):
        json.dumps(forms.document_of(kind, {name: [value] for name, value in said.items()}))


def test_errors_find_the_nearest_field() -> None:
    errors = [
        RequestError(path, path)
        for path in ("methods[0].algorithm", "dataset", "budget.usd", "transforms[1]")
    ]
    at, rest = forms.placed(errors, forms.fields_of("train"))
    assert at == {"methods": ["methods[0].algorithm"], "path": ["dataset"], "budget": ["budget.usd"]}
    assert [error.path for error in rest] == ["transforms[1]"]


# Who


def test_signing_in_and_out(team: httpx.Client) -> None:
    there = team.get("/runs?status=failed", headers={"accept": "text/html"})
    assert there.headers["location"] == "/sign-in?next=/runs%3Fstatus%3Dfailed"
    wrong = team.post("/sign-in", data={"token": "prudent_x", "next": "/money"})
    assert wrong.status_code == 401
    assert "This token is not valid" in wrong.text
    assert team.get("/session").status_code == 401
    right = team.post("/sign-in", data={"token": TOKENS["mia"], "next": "/money"})
    assert (right.status_code, right.headers["location"]) == (303, "/money")
    assert "HttpOnly; SameSite=Strict" in right.headers["set-cookie"]
    assert team.get("/session").status_code == 204
    page = team.get("/money").text
    assert "mia" in page
    assert TOKENS["mia"] not in page
    out = team.post("/sign-out", data={"csrf": _form_token(team, "/money")})
    assert out.headers["location"] == "/sign-in"
    assert team.get("/session").status_code == 401


def test_the_cookie_goes_by_https_only_where_people_do(
    settings: Settings, store: Store, serving: Serving
) -> None:
    """Also behind a proxy that does not say how it was asked."""
    store.write(users.put, User("mia", "member", None, hash_token(TOKENS["mia"])))
    for url, is_secure in (("https://prudent.example.org", True), ("http://prudent.example.org", False)):
        with serving(create_app(replace(settings, public_url=url), store)) as client:
            cookie = client.post("/sign-in", data={"token": TOKENS["mia"]}).headers["set-cookie"]
            assert cookie.endswith("; Secure") == is_secure


def test_guessing_tokens_on_the_page_is_slowed_down(team: httpx.Client) -> None:
    answers = [team.post("/sign-in", data={"token": str(number)}) for number in range(15)]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1


@given(st.text(max_size=40))
def test_signing_in_leads_nowhere_else(place: str) -> None:
    found = local(place)
    assert found.startswith("/")
    assert not found.startswith(("//", "/\\"))
    assert not set(found) & set("\r\n\t\\")


def _as(team: httpx.Client, name: str) -> None:
    team.cookies.clear()
    assert team.post("/sign-in", data={"token": TOKENS[name]}).status_code == 303


def test_only_owners_and_admins_cancel(team: httpx.Client, store: Store) -> None:
    run = _run(store, user="mia")
    for name, status in (("vera", 403), ("ada", 303)):
        _as(team, name)
        token = _form_token(team, "/runs")
        assert ("Cancel…" in team.get(f"/runs/{run.id}").text) is (status == 303)
        assert team.post(f"/runs/{run.id}/cancel", data={"csrf": token}).status_code == status
    found = store.read(runs.get, run.id)
    assert found is not None
    assert found.status == "cancelled"


def test_others_runs_are_not_a_members_to_cancel(team: httpx.Client, store: Store) -> None:
    run = _run(store, user="ada")
    _as(team, "mia")
    answer = team.post(f"/runs/{run.id}/cancel", data={"csrf": _form_token(team, "/runs")})
    assert answer.status_code == 403
    assert "ada" in answer.text
    assert team.post(f"/runs/{run.id}/cancel").status_code == 403  # no form of the session


def test_viewers_are_told_that_they_only_look(team: httpx.Client) -> None:
    _as(team, "vera")
    page = team.get("/submit/train").text
    assert "You may look, but not submit" in page
    assert "New run</a>" not in page
    assert 'action="/submit' not in page
    start = team.get("/runs").text
    assert "No runs yet" in start
    assert 'href="/submit' not in start
    _as(team, "mia")
    start = team.get("/runs").text
    assert f"curl {str(team.base_url).rstrip('/')}/v1/runs/train" in start
    assert "Authorization: Bearer $TOKEN" in start


def test_a_run_that_no_worker_will_take_says_so(client: httpx.Client, store: Store) -> None:
    run = _run(store)
    for path in ("/runs", "/runs/live", f"/runs/{run.id}", f"/runs/{run.id}/live"):
        assert "No worker is there" in client.get(path).text, path
    store.write(workers.record_heartbeat, workers.WorkerRow("one", "alpha", 1, 0, 0, "alive", 2, 1))
    assert "No worker is there" not in client.get("/runs").text
    assert "A worker takes it as soon as one is free." in client.get(f"/runs/{run.id}").text


# Machines and money


def test_workers_that_fell_silent_are_seen(client: httpx.Client, store: Store, settings: Settings) -> None:
    store.write(workers.record_heartbeat, workers.WorkerRow("one", "alpha", 1, 0, 0, "alive", 2, 1))
    page = client.get("/machines").text
    assert "alpha" in page
    assert "1 of 2" in page
    assert "Alive" in page
    from prudent.service.store.tables import workers as beats

    store.write(lambda connection: connection.execute(beats.update().values(beat_s=beats.c.beat_s - 100)))
    assert "Silent" in client.get("/machines").text


def test_rented_machines_are_shown_with_their_leases(client: httpx.Client, settings: Settings) -> None:
    from prudent.cloud.catalog import Catalog
    from prudent.cloud.leases.lease import Lease, LeasedMachine, LeaseHolder
    from prudent.cloud.leases.register import LeaseRegister
    from prudent.cloud.providers.provider import LaunchOrder

    price = Catalog.load()["m5.large"].price
    now_s = time.time()
    order = LaunchOrder(
        cluster="prudent-1", run="a" * 26, owner="me", type="m5.large", count=2, lease_end_s=now_s + 1800
    )
    register = LeaseRegister(settings.home)
    register.add(Lease(order, "ec2", {}, LeaseHolder.here(), now_s - 3600, now_s + 1800, price))
    register.record_machines("prudent-1", [LeasedMachine(f"i-{n}", now_s - 3600, price) for n in range(2)])
    page = client.get("/machines").text
    assert "prudent-1" in page
    assert "2*m5.large" in page
    assert re.search(r"\b(29 min \d\d s|30 min 00 s)\b", page)
    assert "$0.192" in page


def test_money_is_shown_per_day_user_and_kind_against_limits(team: httpx.Client, store: Store) -> None:
    for day, user, kind, usd in (
        (0, "mia", "train", 1.5),
        (0, "ada", "tune", 0.25),
        (3, "mia", "tune", 4.0),
        (40, "mia", "tune", 99.0),
    ):
        run = _run(store, kind, user)
        at_s = time.time() - day * 86400
        store.write(charges.record, charges.Charge(run.id, "all", user, kind, usd, day=charges.today(at_s)))
    _as(team, "vera")
    page = team.get("/money").text
    for wanted in ("$1.75", "$5.75", "$2.00", "none"):
        assert wanted in page
    assert "$99" not in page
    assert 'width="75.00%"' in page  # 1.50 of 2.00


def test_admins_see_what_other_commands_on_the_computer_have_spent(
    team: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same as `prudent money` tells on its command line."""
    for kind, project, usd, forecast_usd in (
        ("tune", "wine", 1.25, 2.0),
        ("train", "grapes", 0.5, None),
        ("execute", EVIL, 3.0, 3.5),
    ):
        SpendingLog().tell(kind, project, f"{project}#1", usd, forecast_usd)
    assert run_command(["money", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    _as(team, "ada")
    page = team.get("/money").text
    table = page[page.index('id="computer"') :]
    assert f"${told['total_usd']:.2f} in 30 days" in table
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    assert [html.unescape(row[1]) for row in rows] == [spent["project"] for spent in told["days"]]
    assert [row[2:] for row in rows] == [
        [spent["kind"], "1", f"${spent['usd']:.2f}", rough_money(spent["forecast_usd"])]
        for spent in told["days"]
    ]
    assert EVIL not in page
    for name in ("vera", "mia"):
        _as(team, name)
        assert "grapes" not in team.get("/money").text


# Drawings


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60),
    st.booleans(),
)
def test_curves_stay_in_their_frame_and_only_get_better(values: list[float], larger: bool) -> None:
    points = [display.CurvePoint(number, value, "x") for number, value in enumerate(values, start=1)]
    found = display.curve(points, larger)
    assert found is not None
    assert found.ticks[-1] <= min(values)
    assert found.ticks[0] >= max(values)
    line = re.search(r'class="best" d="([^"]+)"', found.svg)
    assert line is not None
    heights = [float(y) for y in re.findall(r"V([\d.e+-]+)", line[1])]
    assert heights == sorted(heights, reverse=larger)
    assert all(-0.01 <= y <= 100.01 for y in heights)


def test_every_colour_of_the_pages_is_defined_for_light_and_for_dark(idle: httpx.Client) -> None:
    address = re.search(r'href="(/static/app\.css[^"]*)"', idle.get("/runs").text)
    assert address is not None
    style = idle.get(address[1]).text
    light, system, chosen = (
        set(re.findall(r"(--[\w-]+):", " ".join(re.findall(pattern, style, re.DOTALL | re.MULTILINE))))
        for pattern in (
            r"^:root \{(.*?)\}",
            r":root:not\(\[data-theme=\"light\"\]\) \{(.*?)\}",
            r":root\[data-theme=\"dark\"\] \{(.*?)\}",
        )
    )
    used = set(re.findall(r"var\((--[\w-]+)\)", style)) - {"--sans", "--mono"}
    assert "--best" in used
    assert used <= light
    assert used <= system == chosen


@given(st.floats(-5, 5))
def test_meters_stay_in_their_frame(share: float) -> None:
    width = re.search(r'width="([\d.]+)%"', display.meter(share))
    assert width is not None
    assert 0 <= float(width[1]) <= 100


def test_pages_ask_as_little_with_many_trials(client: httpx.Client, store: Store) -> None:
    asked: list[str] = []

    def heard(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if " trials" in statement or " charges" in statement:
            asked.append(statement)

    counts = []
    sa.event.listen(sa.Engine, "before_cursor_execute", heard)
    try:
        for count in (3, 60):
            run = _run(store)
            _begin(store, run)
            _tried(store, run, count)
            asked.clear()
            assert client.get(f"/runs/{run.id}/live").status_code == 200
            counts.append(len(asked))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", heard)
    assert counts[0] == counts[1] > 0


def test_the_api_is_described_without_help_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs").text
    for wanted in ("/v1/runs/{kind}", "/v1/models/{model_id}/predict", "POST", "integer, 1 to 500"):
        assert wanted in page
    assert "cdn" not in page
