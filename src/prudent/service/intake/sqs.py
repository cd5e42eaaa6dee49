"""A queue by URL (SQS): requests themselves, or a bucket's word that one lies there."""

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
from prudent.service.intake.bucket import BucketFront
from prudent.service.intake.parcel import Reply, check_store, receive
from prudent.service.intake.refusal import refused
from prudent.service.intake.waiting import check_room
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import MEMBER, User

MOST_RECEIVES = 3
"""A message is dead after so many receives. Never 1: a receiver that is killed would lose it."""
_log = logging.getLogger("prudent.sqs")


@dataclass
class SqsFront:
    """Takes messages; one is deleted only when its request is kept (or it can never be one).

    While a message is worked on its visibility is renewed, so that it comes to nobody else. What is refused
    comes again, and after three receives goes to the queue of dead letters: the one of the queue's redrive
    policy, or one named like it with `-dead`.
    """

    url: str
    store: Store
    settings: Settings
    client: Any
    bucket: BucketFront | None = None
    user: User = User("queue", MEMBER)  # noqa: RUF009 - it is frozen
    wait_s: int = 10
    visible_s: int = 60
    renew_s: float | None = None
    """How often a message that is worked on is hidden for `visible_s` anew; a third of that by default."""
    again_s: int = 5
    name: str = "queue"
    _dead: str | None = None

    def step(self) -> int:
        """Receive once; answers how many messages left the queue."""
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
            self._bury(
                message, refused(f"It was received {receives - 1} times in vain.", status=500).to_dict()
            )
            return True
        reply = self._reply(message)
        if reply is None or reply.refusal is None:
            self.client.delete_message(QueueUrl=self.url, ReceiptHandle=handle)
            return True
        if receives >= MOST_RECEIVES:
            self._bury(message, reply.refusal.to_dict())
            return True
        wait_s = self.again_s * receives
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=handle, VisibilityTimeout=wait_s
        )
        return False

    def _reply(self, message: Mapping[str, Any]) -> Reply | None:
        """What became of it; None for a bucket's word, whose answer lies in the bucket."""
        body = str(message["Body"])
        objects = objects_of(body)
        if objects is None:
            key = f"sqs:{message['MessageId']}"
            return receive(
                self.store, self.settings, "message.json", body.encode(), self.user, self.name, key
            )
        for bucket, name in objects:
            if self.bucket is None or bucket != self.bucket.bucket:
                return Reply(None, refused(f"The bucket {bucket} is not watched here; set bucket to it."))
            self.bucket.take(name)
        return None

    def _bury(self, message: Mapping[str, Any], why: Mapping[str, Any]) -> None:
        reason = {"reason": {"DataType": "String", "StringValue": json.dumps(why)[:60_000]}}
        self.client.send_message(QueueUrl=self._dead, MessageBody=message["Body"], MessageAttributes=reason)
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        _log.warning("Dead letter %s: %s", message["MessageId"], why.get("detail"))

    @contextlib.contextmanager
    def _kept_hidden(self, handles: list[str]) -> Iterator[None]:
        """Nobody else sees these messages until the end, however long it takes."""
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
