"""Admission: from whichever source a request comes, it is checked and kept here."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.service.intake import tune_request
from prudent.service.intake.refusal import CONFLICT, FORBIDDEN, MALFORMED, Refused, refusal
from prudent.service.intake.schedule_request import ScheduleRequest
from prudent.service.notify.notice import may_write_to
from prudent.service.security.accounts import all_accounts
from prudent.service.security.data_locations import check_location, policy_of, resolve_in_folders, scheme_of
from prudent.service.security.protection import access_of, folders_for
from prudent.service.settings import Settings
from prudent.service.store import runs
from prudent.service.store.runs import IdempotencyConflict, NewRun, RunRow
from prudent.service.store.store import Store
from prudent.service.store.users import COMMANDER, LOCAL, MEMBER, User
from prudent.training.data.fetch import AccessPolicy
from prudent.training.request.errors import BadRequest, RequestError

__all__ = ["AcceptedRequest", "Refused", "prepare", "read_json", "sender_of", "submit", "submit_async"]

HIGHEST = 9
DEEPEST = 100
"""How deep lists and objects may be nested; no request needs more than a few levels."""
_LONGEST_KEY = 255
_log = logging.getLogger("prudent.door")


@dataclass(frozen=True)
class AcceptedRequest:
    """A request that was taken; `created` is False when its key was known and this is the run of then."""

    run: RunRow
    created: bool


def submit(store: Store, new: NewRun) -> AcceptedRequest:
    """Keep what `prepare` has checked; when this returns it is on the disk."""
    try:
        return AcceptedRequest(*store.write(runs.insert, new))
    except IdempotencyConflict as error:
        raise _conflict(error) from None


async def submit_async(store: Store, new: NewRun) -> AcceptedRequest:
    """The same, without blocking."""
    try:
        return AcceptedRequest(*await store.write_async(runs.insert, new))
    except IdempotencyConflict as error:
        raise _conflict(error) from None


def prepare(
    settings: Settings,
    kind: str,
    document: Any,
    user: User,
    front: str,
    idempotency_key: str | None = None,
    priority: int = 0,
) -> NewRun:
    """Check a request without keeping it: the kind, who asks, and every part of the document."""
    if kind not in runs.KINDS:
        raise refusal(f'There is no kind "{kind[:40]}"; use one of: {", ".join(runs.KINDS)}.', "kind", 404)
    if not user.may(MEMBER):
        raise _forbidden(f"{user.name} may look but not submit; ask for another role.")
    if not isinstance(document, Mapping):
        raise refusal("The document is not a JSON object; begin with {.", status=MALFORMED)
    if type(priority) is not int or not -HIGHEST <= priority <= HIGHEST:
        raise refusal(f"Give a whole number from {-HIGHEST} to {HIGHEST}.", "priority")
    text = _canonical(document)
    _check(settings, kind, document, user)
    return NewRun(
        kind=kind,
        user=user.name,
        document=document,
        front=front,
        body_hash=_digest(kind, text),
        title=title_of(kind, document),
        key_hash=None if idempotency_key is None else _key_hash(user.name, idempotency_key),
        priority=priority,
    )


def read_json(body: bytes | str) -> Any:
    """A document of its text; Refused tells where it is not valid JSON, or says one thing twice.

    What leaves here can be kept and answered: its numbers are finite and its texts whole.
    """
    try:
        text = body.decode("utf-8-sig") if isinstance(body, bytes) else body
        found = json.loads(
            text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_without_doubles
        )
        if "\\ud" in text or "\\uD" in text:
            _canonical(found)
        if text.count("[") + text.count("{") > DEEPEST and _is_deep(found):
            raise RecursionError
        return found
    except UnicodeDecodeError:
        raise refusal("It is not text in UTF-8; send it so.", status=MALFORMED) from None
    except RecursionError:
        raise refusal("It is nested too deeply; make it flatter.", status=MALFORMED) from None
    except ValueError as error:
        raise refusal(f"It is not valid JSON ({error}); correct it.", status=MALFORMED) from None


def title_of(kind: str, document: Mapping[str, Any]) -> str:
    """The title under which people see a run: its name, or what its document says.

    >>> title_of("train", {"domain": "regression", "dataset": {"path": "s3://b/cars.csv"}})
    'regression on cars.csv'
    """
    said = document.get("name")
    if isinstance(said, str) and said:
        words = said
    elif kind == "train":
        dataset = document.get("dataset")
        path = str(dataset.get("path", "")) if isinstance(dataset, Mapping) else ""
        name = path.partition("?")[0].rstrip("/").rpartition("/")[2]
        words = f"{document.get('domain')}{f' on {name}' if name else ''}"
    elif kind == "tune":
        words = str(document.get("goal", "tune"))
    else:
        workflow = document.get("workflow")
        name = str(workflow.get("name", "")) if isinstance(workflow, Mapping) else str(workflow)
        words = f"{name if name[:1] != '<' else 'workflow'} on {document.get('fleet')}"
    return "".join(letter if letter.isprintable() else " " for letter in words)[:200]


def _check(settings: Settings, kind: str, document: Mapping[str, Any], user: User) -> None:
    folders = folders_for(settings, user.name)
    try:
        if kind == "train":
            _train(settings, document, user)
        elif kind == "tune":
            if tune_request.runs_programs(document) and not user.may(COMMANDER):
                raise _forbidden(f"{user.name} may not run commands; ask for the role {COMMANDER}.")
            tune_request.parse(document, folders)
        elif ScheduleRequest.parse(document, folders).commands and not user.may(COMMANDER):
            raise _forbidden(f"{user.name} may not run commands; ask for the role {COMMANDER}.")
    except Refused:
        raise
    except BadRequest as error:
        raise Refused(error.errors) from None
    except BadInput as error:
        raise refusal(str(error)) from None
    except Exception as error:  # what the checks do not understand must not pass, nor end the service
        _log.exception("A %s request could not be checked", kind)
        said = type(error).__name__
        raise refusal(f"It cannot be understood ({said}); compare it with the reference.") from error


def _train(settings: Settings, document: Mapping[str, Any], user: User) -> None:
    from prudent.training.request.request import TrainingRequest

    wrong: list[RequestError] = []
    try:
        TrainingRequest.parse(document)
    except BadRequest as error:
        wrong += error.errors
    dataset = document.get("dataset")
    path = dataset.get("path") if isinstance(dataset, Mapping) else None
    if isinstance(path, str) and path and not any(error.path == "dataset.path" for error in wrong):
        try:
            _place(settings, path, folders_for(settings, user.name))
        except BadInput as error:
            wrong.append(RequestError("dataset.path", str(error)))
    mail = document.get("emailAddress")
    if settings.smtp_host and isinstance(mail, str) and not may_write_to(mail, user.name, settings):
        wrong.append(RequestError("emailAddress", _where_mail_goes(settings)))
    if settings.where is None and document.get("machines"):
        wrong.append(RequestError("machines", "This service rents no machines; leave it out."))
    if wrong:
        raise Refused(wrong)


def _where_mail_goes(settings: Settings) -> str:
    allowed = "".join(f" or to @{domain.lstrip('@')}" for domain in settings.mail_domains)
    return f"Mail goes to your own address{allowed} only; name one of them, or leave it out."


def _place(settings: Settings, path: str, folders: Sequence[Path]) -> None:
    if scheme_of(path) == "file":
        resolve_in_folders(path, folders)
    else:
        check_location(path, policy_for(settings, folders))


def policy_for(settings: Settings, folders: Sequence[Path]) -> AccessPolicy:
    """The addresses and folders that may be read for a request; the work process is restricted to them."""
    return policy_of(
        folders,
        settings.private_networks,
        settings.buckets or None,
        largest_mb=settings.largest_data_mb,
        longest_s=settings.longest_fetch_s,
        most_columns=settings.most_columns,
        largest_table_mb=settings.largest_table_mb,
    )


def sender_of(store: Store, settings: Settings, otherwise: User) -> User:
    """The user who owns documents from folders, queues and buckets: the account of `intake_user`."""
    name = settings.intake_user
    if name is None:
        return otherwise
    accounts = all_accounts(store, settings)
    if name == LOCAL.name and access_of(settings).is_open(accounts):
        return LOCAL
    for account in accounts:
        if account.name == name:
            return account
    raise refusal(
        f'Documents dropped here are those of "{name[:64]}", who has no account; let the operator add '
        'one with "prudent users add", or change intake_user.',
        status=FORBIDDEN,
    )


def _canonical(document: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(document, sort_keys=True, allow_nan=False, ensure_ascii=False)
        text.encode()
    except RecursionError:
        raise refusal("It is nested too deeply; make it flatter.", status=MALFORMED) from None
    except UnicodeEncodeError:
        raise refusal(
            "It contains a lone surrogate (half of a character); correct it.", status=MALFORMED
        ) from None
    except (TypeError, ValueError):
        raise refusal(
            "It has values that JSON does not have; use finite numbers.", status=MALFORMED
        ) from None
    return text


def _key_hash(user: str, key: str) -> str:
    if not key or len(key) > _LONGEST_KEY or not key.isprintable():
        raise refusal(
            f"The Idempotency-Key must have 1 to {_LONGEST_KEY} printable characters; choose another.",
            "Idempotency-Key",
            MALFORMED,
        )
    return _digest(user, key)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number of JSON")


def _is_deep(found: Any) -> bool:
    level = [found]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, list | dict)
            for inner in (value if isinstance(value, list) else value.values())
        ]
        if not level:
            return False
    return True


def _finite(word: str) -> float:
    value = float(word)
    if math.isinf(value):
        raise ValueError(f"{word[:20]} is larger than any number here")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as a dict; a key that is given twice is an error, since one of the two would be ignored."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:40]!a} is given twice")
    return found


def _forbidden(message: str) -> Refused:
    return refusal(message, status=FORBIDDEN, title="Not allowed")


def _conflict(error: IdempotencyConflict) -> Refused:
    return refusal(str(error), "Idempotency-Key", CONFLICT, "The key is taken")
