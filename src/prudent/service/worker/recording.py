"""Store what a work process says about its run: each thing once, and only while the claim holds."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from prudent.service.store import charges, events, runs, trials
from prudent.service.store.charges import Charge
from prudent.service.store.runs import RunRow
from prudent.service.store.trials import RUNNING, TrialRow
from prudent.service.worker.messages import (
    NoteMessage,
    ProcessMessage,
    ProgressMessage,
    TrialEndMessage,
    TrialStartMessage,
)

_TOLD = ("number", "label", "status", "score", "cost_usd", "time_s", "spent_usd")


def record_messages(connection: Connection, run: RunRow, said: Sequence[ProcessMessage]) -> list[int]:
    """Keep what was said, in one transaction; answers the numbers of trials whose end is new."""
    runs.check_claim(connection, run.id, run.fence)
    new = []
    for message in said:
        if isinstance(message, TrialStartMessage):
            _begun(connection, run, message)
        elif isinstance(message, NoteMessage):
            events.append(connection, run.id, message.kind, message.data)
        elif isinstance(message, TrialEndMessage) and _ended(connection, run, message):
            new.append(message.number)
    latest = [message for message in said if isinstance(message, ProgressMessage)][-1:]
    for message in latest:
        runs.progress(connection, run.id, run.fence, message.done, message.eta_s)
    if latest or new:
        now = runs.get(connection, run.id)
        assert now is not None
        told = {"progress": now.progress, "eta_s": now.eta_s, "spent_usd": now.spent_usd}
        events.append(connection, run.id, "progress", told)
    return new


def _begun(connection: Connection, run: RunRow, message: TrialStartMessage) -> None:
    trial = TrialRow(run.id, message.number, message.label, message.configuration, RUNNING)
    if trials.record(connection, trial, run.fence):
        told = {"number": message.number, "label": message.label}
        events.append(connection, run.id, "begun", told)


def _ended(connection: Connection, run: RunRow, message: TrialEndMessage) -> bool:
    trial = TrialRow(
        run.id,
        message.number,
        message.label,
        message.configuration,
        message.status,
        message.score,
        message.cost_usd,
        message.time_s,
        message.spent_usd,
        message.details,
    )
    if not trials.record(connection, trial, run.fence):
        return False
    if message.spent_usd > 0:
        label = f"trial {message.number}"
        price = message.usd_per_h, message.price_date
        charges.record(connection, Charge(run.id, label, run.user, run.kind, message.spent_usd, *price))
    told = {name: getattr(message, name) for name in _TOLD}
    events.append(connection, run.id, "trial", {**told, "why": message.details.get("why", "")})
    return True
