"""A watched bucket: a document put there is taken once, and moved to where its answer is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from prudent.core.errors import BadInput
from prudent.service.intake.folder import ACCEPTED, REJECTED
from prudent.service.intake.parcel import ENDINGS, Reply, receive
from prudent.service.intake.refusal import MALFORMED, refused
from prudent.service.intake.waiting import check_room
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import MEMBER, User


@dataclass
class BucketFront:
    """Takes documents below `s3://bucket/prefix`, seen by listing, or told of by the bucket's events.

    A put is whole or not there, so nothing is waited for. The key of a request is made of the object's name,
    content and time: whoever takes it a second time, after a crash or beside another watcher, finds the same
    run.
    """

    place: str
    store: Store
    settings: Settings
    client: Any
    user: User = User("bucket", MEMBER)  # noqa: RUF009 - it is frozen
    name: str = "bucket"

    def __post_init__(self) -> None:
        bucket, _, prefix = self.place.removeprefix("s3://").partition("/")
        if not self.place.startswith("s3://") or not bucket:
            raise BadInput(f'"{self.place}" is no bucket; write it as s3://bucket/prefix.')
        self.bucket, self.prefix = bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def step(self) -> int:
        """Look at all that lies there; answers how many documents were taken or refused."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=self.prefix, Delimiter="/"
        )
        keys = [str(fact["Key"]) for page in pages for fact in page.get("Contents", ())]
        return sum(self.take(key) for key in keys)

    def is_document(self, key: str) -> bool:
        """Whether something of this name is to be taken; what lies deeper is not."""
        name = key.removeprefix(self.prefix)
        return key.startswith(self.prefix) and bool(name) and "/" not in name and not name.startswith(".")

    def take(self, key: str) -> bool:
        """Take one object, if it is there and a document; False if not."""
        if not self.is_document(key):
            return False
        check_room(self.store, self.settings, self.user)
        try:
            found = self.client.get_object(Bucket=self.bucket, Key=key)
        except self.client.exceptions.NoSuchKey:
            return False  # another watcher was here
        body = found["Body"].read(int(self.settings.body_mb * 1e6) + 1)
        found["Body"].close()
        mark = f"{self.bucket}/{key}:{found['ETag']}:{found['LastModified'].timestamp()}"
        name = key.removeprefix(self.prefix)
        self._move(key, name, found["ETag"], self._reply(name, body, mark))
        return True

    def _reply(self, name: str, body: bytes, mark: str) -> Reply:
        if not name.endswith(ENDINGS):
            return Reply(
                None, refused(f"Documents end in {', '.join(ENDINGS)}; rename it.", status=MALFORMED)
            )
        key = f"bucket:{hashlib.sha256(mark.encode()).hexdigest()}"
        return receive(self.store, self.settings, name, body, self.user, self.name, key)

    def _move(self, key: str, name: str, etag: str, reply: Reply) -> None:
        """Answer, copy, delete, in this order: whatever happens in between, the next look mends it."""
        part, ending = (ACCEPTED, "RUN") if reply.refusal is None else (REJECTED, "REASON")
        target = f"{self.prefix}{part}/{name}"
        text = reply.text(self.settings).encode()
        self.client.put_object(
            Bucket=self.bucket, Key=f"{target}.{ending}", Body=text, ContentType="application/json"
        )
        try:
            self.client.copy_object(
                Bucket=self.bucket,
                Key=target,
                CopySource={"Bucket": self.bucket, "Key": key},
                CopySourceIfMatch=etag,
            )
            if self.client.head_object(Bucket=self.bucket, Key=key)["ETag"] == etag:
                self.client.delete_object(Bucket=self.bucket, Key=key)
        except self.client.exceptions.ClientError as error:
            if _code(error) not in ("404", "NoSuchKey", "PreconditionFailed", "412"):
                raise  # else another watcher moved it, or there is a newer document of this name


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
