"""A document that came as a file or a message: of which kind it is, and what is answered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from prudent.core.documents import read_yaml
from prudent.core.errors import BadInput
from prudent.service.intake.admission import prepare, read_json, sender_of, submit
from prudent.service.intake.refusal import MALFORMED, Refused, refusal
from prudent.service.settings import Settings
from prudent.service.store.runs import KINDS, RunRow
from prudent.service.store.store import Store
from prudent.service.store.users import User

ENDINGS = (".json", ".yaml", ".yml")
_TELLING = {"domain": "train", "fleet": "schedule", "goal": "tune"}


@dataclass(frozen=True)
class DocumentReply:
    """What became of a document: its run, or why there is none."""

    run: RunRow | None
    refusal: Refused | None = None

    def text(self, settings: Settings) -> str:
        """The answer as JSON, for the file beside the document."""
        if self.refusal is not None:
            return json.dumps(self.refusal.to_dict(), indent=2, ensure_ascii=False) + "\n"
        assert self.run is not None
        base = (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/")
        said = {"id": self.run.id, "status": self.run.status, "url": f"{base}/v1/runs/{self.run.id}"}
        return json.dumps(said, indent=2) + "\n"


def receive(
    store: Store, settings: Settings, name: str, body: bytes, user: User, front: str, key: str
) -> DocumentReply:
    """Take a document; one that is wrong is answered, not raised. With the same `key`, twice is once.

    It is `user`'s, unless the operator says whose such documents are (`intake_user`).
    """
    try:
        if len(body) > settings.body_mb * 1e6:
            raise refusal(
                f"It is larger than {settings.body_mb:g} MB; send less, or name a file.", status=413
            )
        kind, document = unpack(name, body)
        user = sender_of(store, settings, user)
        return DocumentReply(submit(store, prepare(settings, kind, document, user, front, key)).run)
    except Refused as error:
        return DocumentReply(None, error)


def receive_file(
    store: Store, settings: Settings, name: str, body: bytes, user: User, front: str, mark: str
) -> DocumentReply:
    """Take a document that came as a file; `mark` tells this very file from all others."""
    if not name.endswith(ENDINGS):
        error = refusal(f"Documents end in {', '.join(ENDINGS)}; rename it.", status=MALFORMED)
        return DocumentReply(None, error)
    key = f"{front}:{hashlib.sha256(mark.encode()).hexdigest()}"
    return receive(store, settings, name, body, user, front, key)


def check_store(store: Store) -> None:
    """Whether the database answers, before a message is received: being away must not count against it."""
    store.read(lambda connection: connection.execute(sa.select(sa.literal(1))).scalar())


def unpack(name: str, body: bytes) -> tuple[str, Any]:
    """The kind and the document: `{"kind": …, "request": …}`, or as the name or the keys tell.

    >>> unpack("cars.json", b'{"domain": "regression"}')
    ('train', {'domain': 'regression'})
    >>> unpack("job.tune.yaml", b"goal: minimise cost_usd")[0]
    'tune'
    """
    document = read_document(name, body)
    if isinstance(document, Mapping) and set(document) == {"kind", "request"}:
        return str(document["kind"]), document["request"]
    stem = name.rsplit(".", 1)[0]
    for kind in KINDS:
        if stem == kind or stem.endswith(f".{kind}"):
            return kind, document
    for word, kind in _TELLING.items():
        if isinstance(document, Mapping) and word in document:
            return kind, document
    raise refusal(
        'It does not tell its kind; send {"kind": "train", "request": {…}}, or tune or schedule.',
        "kind",
        MALFORMED,
    )


def read_document(name: str, body: bytes) -> Any:
    """The values of a JSON or YAML text; Refused says where it is neither."""
    if not name.endswith((".yaml", ".yml")):
        return read_json(body)
    try:
        found = read_yaml(body.decode())
        json.dumps(found, allow_nan=False)
    except UnicodeDecodeError:
        raise refusal("It is not text in UTF-8; send it so.", status=MALFORMED) from None
    except (BadInput, TypeError, ValueError, RecursionError) as error:
        raise refusal(
            f"It is not YAML that JSON could say ({error}); correct it.", status=MALFORMED
        ) from None
    return found
