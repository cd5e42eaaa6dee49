"""What REST says about runs and models, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prudent.service.security.redaction import redacted
from prudent.service.store.models import Model
from prudent.service.store.runs import Run
from prudent.service.store.users import MEMBER, User

_LISTED = (
    "id", "kind", "status", "title", "user", "front", "priority", "progress", "eta_s", "spent_usd",
    "created_s", "started_s", "ended_s", "attempts", "worker", "waiting", "error",
)  # fmt: skip


def accepted(run: Run) -> dict[str, Any]:
    """The answer to a submission."""
    return {"id": run.id, "status": run.status, "url": f"/v1/runs/{run.id}"}


def listed(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run in a list, of its plain values."""
    return {**{name: run[name] for name in _LISTED}, "url": f"/v1/runs/{run['id']}"}


def document_for(run: Run, user: User) -> dict[str, Any] | None:
    """What was asked for: all of it for its owner, without secrets for others; viewers see their own only."""
    if user.owns(run.user):
        return dict(run.document)
    shown: dict[str, Any] = redacted(run.document)
    return shown if user.may(MEMBER) else None


def shown(run: Run, user: User) -> dict[str, Any]:
    """A run by itself: what was asked for, and where to go on."""
    here = f"/v1/runs/{run.id}"
    return {
        **listed(vars(run)),
        "cancelling": run.cancel and not run.ended,
        "document": document_for(run, user),
        "links": {name: f"{here}/{name}" for name in ("events", "trials", "result", "report", "cancel")},
    }


def model(found: Model) -> dict[str, Any]:
    """A model in a list."""
    return {
        "id": found.id,
        "run": found.run,
        "user": found.user,
        "rank": found.rank,
        "algorithm": found.algorithm,
        "score": found.score,
        "metric": found.metric,
        "value": found.value,
        "created_s": found.created_s,
        "url": f"/v1/models/{found.id}",
        "download": f"/v1/models/{found.id}/download",
        "predict": f"/v1/models/{found.id}/predict",
    }
