"""What there is to tell about a run that has ended, as plain values."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from email.utils import parseaddr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.core.units import format_duration, format_money
from prudent.reports.formatting import UNKNOWN, amount, settings
from prudent.service.settings import Settings
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import CANCELLED, FAILED, SUCCEEDED, RunRow
from prudent.service.store.trials import TrialRow
from prudent.service.store.users import LOCAL, OPERATOR

if TYPE_CHECKING:
    from prudent.training.leaderboard import Leaderboard

EXHAUSTED = "exhausted"
"""It ended because its money or time was used up; what was found until then counts."""
_TOP = 10


@dataclass(frozen=True)
class Notice:
    """The news of one run. `rows` is the top of the leaderboard, best first."""

    run: str
    kind: str
    event: str
    title: str
    user: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    error: str = ""
    spent_usd: float = 0.0
    to: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_dict(cls, said: Mapping[str, Any]) -> Notice:
        """As `to_dict` made it, also by way of JSON."""
        values = dict(said)
        for name in ("facts", "rows", "links"):
            values[name] = tuple(tuple(str(part) for part in line) for line in values[name])
        for name in ("columns", "to"):
            values[name] = tuple(values[name])
        return cls(**values)


def notice_of(
    run: RunRow,
    trials: Sequence[TrialRow],
    models: Sequence[StoredModel],
    settings: Settings,
    exhausted: str = "",
) -> Notice:
    """The news of a run that has ended; `exhausted` says which limit ended it, if one did."""
    event = EXHAUSTED if exhausted and run.status == SUCCEEDED else run.status
    columns, rows = _board(run, trials, models)
    return Notice(
        run=run.id,
        kind=run.kind,
        event=event,
        title=run.title or f"{run.kind} {run.id[:8]}",
        user=run.user,
        headline=_headline(run, event, columns, rows),
        facts=_facts(run, trials, exhausted),
        columns=columns,
        rows=rows,
        links=_links(run, models, settings),
        error=run.error,
        spent_usd=run.spent_usd,
        to=recipients(run, settings),
    )


def notice_of_board(board: Leaderboard, title: str, user: str, to: str) -> Notice:
    """The news of a request that was answered without a service: the best models with their settings."""
    lines = [
        (f"{entry.algorithm} ({settings(entry.hyperparameters)})"[:200], f"{entry.value:#.4g}")
        for entry in board.entries[:_TOP]
    ]
    columns, rows = ("", "Model", board.metric), _numbered(lines)
    failed = f", {len(board.failures)} without a model" if board.failures else ""
    facts = (
        ("Cost", format_money(board.spent_usd)),
        ("Time", format_duration(board.time_s)),
        ("Trials", f"{len(board.entries) + len(board.failures)}{failed}"),
        ("Ended by", board.ended),
        ("For", user),
    )
    event = SUCCEEDED if rows else FAILED
    links = [
        ("Models", board.out),
        *((f"Best: {entry.algorithm}", entry.model_path) for entry in board.entries[:1]),
    ]
    return Notice(
        run=secrets.token_hex(16),
        kind="train",
        event=event,
        title=title,
        user=user,
        headline=_best_model(columns, rows) if rows else "It failed.",
        facts=facts,
        columns=columns if rows else (),
        rows=rows,
        links=tuple((name, Path(place).resolve().as_uri()) for name, place in links),
        error="" if rows else (board.failures[0].why if board.failures else board.ended),
        spent_usd=board.spent_usd,
        to=(to,),
    )


def recipients(run: RunRow, settings: Settings) -> tuple[str, ...]:
    """The addresses to write to: the one in the request if it is allowed, or the user's name if it is one."""
    said = run.document.get("emailAddress")
    if isinstance(said, str) and "@" in said:
        return (said,) if may_write_to(said, run.user, settings) else ()
    return (run.user,) if "@" in run.user else ()


def _headline(run: RunRow, event: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if event == FAILED:
        return "It failed."
    if event == CANCELLED:
        return "It was cancelled."
    if not rows:
        return "It is done."
    best = f"{columns[-1]} {rows[0][-1]}" if run.kind == "schedule" else rows[0][1]
    if run.kind == "train":
        return _best_model(columns, rows)
    if run.kind == "tune":
        return f"The best configuration costs {rows[0][2]} a run."
    return f"The plan is ready: {best}."


def _best_model(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"The best model is {rows[0][1]}, with {columns[2]} {rows[0][2]}."


def _facts(run: RunRow, trials: Sequence[TrialRow], exhausted: str) -> tuple[tuple[str, str], ...]:
    ended = [trial for trial in trials if trial.status != "running"]
    failed = sum(trial.status == "failed" for trial in ended)
    found = [("Cost", format_money(run.spent_usd))]
    if run.time_s is not None:
        found.append(("Time", format_duration(run.time_s)))
    if ended:
        found.append(("Trials", f"{len(ended)}" + (f", {failed} failed" if failed else "")))
    if exhausted:
        found.append(("Ended by", exhausted))
    return (*found, ("For", run.user), ("Run", run.id))


def _board(
    run: RunRow, trials: Sequence[TrialRow], models: Sequence[StoredModel]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    if run.kind == "train":
        return _models(models)
    done = [trial for trial in trials if trial.status == "finished"]
    if run.kind == "tune":
        done = sorted((t for t in done if t.cost_usd is not None), key=lambda t: t.cost_usd or 0.0)
        lines = [
            (settings(t.configuration)[:200], format_money(t.cost_usd or 0.0), amount("time_s", t.time_s))
            for t in done[:_TOP]
        ]
        return ("", "Configuration", "Cost", "Time"), _numbered(lines)
    done = sorted(done, key=lambda t: t.time_s if t.time_s is not None else float("inf"))
    lines = [(t.label, format_money(t.cost_usd or 0.0), amount("time_s", t.time_s)) for t in done[:_TOP]]
    return ("", "Plan", "Cost", "Makespan"), _numbered(lines)


def _models(models: Sequence[StoredModel]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    metric = models[0].metric if models else "score"
    best = sorted(models, key=lambda model: model.rank)[:_TOP]
    values = [model.value if model.value is not None else model.score for model in best]
    lines = [
        (model.algorithm, f"{value:#.4g}" if value is not None else UNKNOWN)
        for model, value in zip(best, values, strict=True)
    ]
    return ("", "Model", metric), _numbered(lines)


def _numbered(lines: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple((str(place), *line) for place, line in enumerate(lines, start=1))


def _links(run: RunRow, models: Sequence[StoredModel], settings: Settings) -> tuple[tuple[str, str], ...]:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    base = (settings.public_url or f"http://{host}:{settings.port}").rstrip("/")
    found = [("Open the run", f"{base}/runs/{run.id}")]
    if run.status == SUCCEEDED:
        found.append(("Report", f"{base}/v1/runs/{run.id}/report"))
    if models:
        best = min(models, key=lambda model: model.rank)
        found.append(("Download the best model", f"{base}/v1/models/{best.id}/download"))
    return tuple(found)


def may_write_to(address: str, user: str, settings: Settings) -> bool:
    """Whether mail for `user` may go to an address; the operator writes to whom they like.

    >>> from pathlib import Path
    >>> ours = Settings(Path("/srv/prudent"), mail_domains=("example.org",))
    >>> [may_write_to(to, "mia@home.net", ours) for to in ("ada@Example.org", "mia@home.net", "x@evil.net")]
    [True, True, False]
    """
    plain = parseaddr(address)[1]
    if not plain or plain != address.strip() or any(letter in plain for letter in ",;<> \t\r\n\"'"):
        return False
    if user in (LOCAL.name, OPERATOR) or plain.lower() == user.lower():
        return True
    domain = plain.rpartition("@")[2].lower().rstrip(".")
    return domain in {each.lower().lstrip("@") for each in settings.mail_domains}
