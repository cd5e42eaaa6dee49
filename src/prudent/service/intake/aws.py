"""A watched bucket: a document put there is taken once, and moved to where its answer is."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from prudent.core.errors import BadInput
from prudent.service.intake.backlog import check_room
from prudent.service.intake.folders import ACCEPTED, MOST_RECEIVES, REJECTED
from prudent.service.intake.incoming import DocumentReply, check_store, receive, receive_file
from prudent.service.intake.refusal import refusal
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import MEMBER, User


@dataclass
class BucketSource:
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
            raise BadInput(f'"{self.place}" is not a bucket; write it as s3://bucket/prefix.')
        self.bucket, self.prefix = bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def step(self) -> int:
        """List the bucket once and take each document; returns how many were taken or refused."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=self.prefix, Delimiter="/"
        )
        keys = [str(fact["Key"]) for page in pages for fact in page.get("Contents", ())]
        return sum(self.take(key) for key in keys)

    def is_document(self, key: str) -> bool:
        """Whether an object of this name is taken; objects in deeper folders are not."""
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
        reply = receive_file(self.store, self.settings, name, body, self.user, self.name, mark)
        self._move(key, name, found["ETag"], reply)
        return True

    def _move(self, key: str, name: str, etag: str, reply: DocumentReply) -> None:
        """Answer, copy, delete, in this order: after a crash in between, the next look repeats it."""
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


_log = logging.getLogger("prudent.sqs")


@dataclass
class SqsSource:
    """Takes messages; one is deleted only when its request is kept (or it can never be one).

    While a message is worked on its visibility is renewed, so that it comes to nobody else. What is refused
    comes again, and after three receives goes to the queue of dead letters: the one of the queue's redrive
    policy, or one named like it with `-dead`.
    """

    url: str
    store: Store
    settings: Settings
    client: Any
    bucket: BucketSource | None = None
    user: User = User("queue", MEMBER)  # noqa: RUF009 - it is frozen
    wait_s: int = 10
    visible_s: int = 60
    renew_s: float | None = None
    """How often a message that is worked on is hidden for `visible_s` anew; a third of that by default."""
    again_s: int = 5
    name: str = "queue"
    _dead: str | None = None

    def step(self) -> int:
        """Receive messages once; returns how many left the queue."""
        if self._dead is None:
            self._dead = self._dead_letters()
        check_store(self.store)
        check_room(self.store, self.settings, self.user)
        found = self.client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=self.wait_s,
            VisibilityTimeout=self.visible_s,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        messages = found.get("Messages", [])
        with self._kept_hidden([message["ReceiptHandle"] for message in messages]):
            return sum(self._take(message) for message in messages)

    def _take(self, message: Mapping[str, Any]) -> bool:
        handle = message["ReceiptHandle"]
        receives = int(message["Attributes"]["ApproximateReceiveCount"])
        if receives > MOST_RECEIVES:  # it ended its receiver each time
            self._to_dead_letters(
                message, refusal(f"It was received {receives - 1} times in vain.", status=500).to_dict()
            )
            return True
        reply = self._reply(message)
        if reply is None or reply.refusal is None:
            self.client.delete_message(QueueUrl=self.url, ReceiptHandle=handle)
            return True
        if receives >= MOST_RECEIVES:
            self._to_dead_letters(message, reply.refusal.to_dict())
            return True
        wait_s = self.again_s * receives
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=handle, VisibilityTimeout=wait_s
        )
        return False

    def _reply(self, message: Mapping[str, Any]) -> DocumentReply | None:
        """What became of a message; None for an event of a bucket, which is answered in the bucket."""
        body = str(message["Body"])
        objects = objects_of(body)
        if objects is None:
            key = f"sqs:{message['MessageId']}"
            return receive(
                self.store, self.settings, "message.json", body.encode(), self.user, self.name, key
            )
        for bucket, name in objects:
            if self.bucket is None or bucket != self.bucket.bucket:
                return DocumentReply(
                    None, refusal(f"The bucket {bucket} is not watched here; set bucket to it.")
                )
            self.bucket.take(name)
        return None

    def _to_dead_letters(self, message: Mapping[str, Any], why: Mapping[str, Any]) -> None:
        reason = {"reason": {"DataType": "String", "StringValue": json.dumps(why)[:60_000]}}
        self.client.send_message(QueueUrl=self._dead, MessageBody=message["Body"], MessageAttributes=reason)
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        _log.warning("Dead letter %s: %s", message["MessageId"], why.get("detail"))

    @contextlib.contextmanager
    def _kept_hidden(self, handles: list[str]) -> Iterator[None]:
        """Renew the messages' visibility timeout while the block runs, so that nobody else receives them."""
        end = threading.Event()

        def renew() -> None:
            while not end.wait(self.visible_s / 3 if self.renew_s is None else self.renew_s):
                for handle in handles:
                    with contextlib.suppress(Exception):  # it may be deleted by now
                        self.client.change_message_visibility(
                            QueueUrl=self.url, ReceiptHandle=handle, VisibilityTimeout=self.visible_s
                        )

        thread = threading.Thread(target=renew, name="sqs-renew", daemon=True)
        if handles:
            thread.start()
        try:
            yield
        finally:
            end.set()
            if handles:
                thread.join()

    def _dead_letters(self) -> str:
        """The URL of the queue of dead letters."""
        found = self.client.get_queue_attributes(
            QueueUrl=self.url, AttributeNames=["RedrivePolicy", "QueueArn"]
        )
        attributes = found.get("Attributes", {})
        name = f"{attributes['QueueArn'].rsplit(':', 1)[1].removesuffix('.fifo')}-dead"
        if "RedrivePolicy" in attributes:
            policy = json.loads(attributes["RedrivePolicy"])
            if int(policy["maxReceiveCount"]) < 2:
                raise BadInput(
                    "The queue gives a message up after one receive, so a crash would lose it; set its "
                    f"maxReceiveCount to {MOST_RECEIVES} or more."
                )
            name = policy["deadLetterTargetArn"].rsplit(":", 1)[1]
        try:
            return str(self.client.get_queue_url(QueueName=name)["QueueUrl"])
        except self.client.exceptions.QueueDoesNotExist:
            return str(self.client.create_queue(QueueName=name)["QueueUrl"])


def objects_of(body: str) -> list[tuple[str, str]] | None:
    """Bucket and name of the objects that an event of S3 tells of; None if it is none.

    Also when a topic (SNS) or EventBridge has wrapped it.

    >>> objects_of('{"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": "a+b.json"}}}]}')
    [('b', 'a b.json')]
    """
    try:
        said = json.loads(body)
        if isinstance(said, dict) and said.get("Type") == "Notification" and "Message" in said:
            said = json.loads(said["Message"])
    except (ValueError, RecursionError, TypeError):
        return None
    if not isinstance(said, dict):
        return None
    if said.get("Event") == "s3:TestEvent":
        return []
    try:
        if said.get("source") == "aws.s3":
            detail = said["detail"]
            return [(str(detail["bucket"]["name"]), str(detail["object"]["key"]))]
        records = [record["s3"] for record in said.get("Records", [])]
        found = [(str(each["bucket"]["name"]), unquote_plus(str(each["object"]["key"]))) for each in records]
    except (KeyError, TypeError):
        return None
    return found or None
