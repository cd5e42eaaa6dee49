"""Queue and bucket, on a real server of theirs (moto): nothing lost, nothing twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from prudent.core.errors import BadInput
from prudent.service.intake import aws as sqs_module
from prudent.service.intake.aws import BucketSource, SqsSource, objects_of
from prudent.service.intake.folders import MOST_RECEIVES
from prudent.service.settings import Settings
from prudent.service.store import runs
from prudent.service.store.store import Store

GOOD = {"domain": "regression", "dataset": {"path": "s3://data/cars.csv"}}


@pytest.fixture
def sqs(cloud: None) -> Iterator[Any]:
    client = boto3.client("sqs")
    yield client
    client.close()


@pytest.fixture
def s3(cloud: None) -> Iterator[Any]:
    client = boto3.client("s3")
    yield client
    client.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/store.db") as found:
        yield found


@pytest.fixture
def queue(sqs: Any, tmp_path: Path) -> str:
    return str(sqs.create_queue(QueueName=f"q-{tmp_path.name[-60:]}".replace("_", "-"))["QueueUrl"])


@pytest.fixture
def front(queue: str, sqs: Any, store: Store, settings: Settings) -> SqsSource:
    return SqsSource(queue, store, settings, sqs, wait_s=0, visible_s=60, again_s=0)


def _left(sqs: Any, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(count) for count in found.values())


def _send(sqs: Any, url: str, body: Any) -> None:
    sqs.send_message(QueueUrl=url, MessageBody=body if isinstance(body, str) else json.dumps(body))


def _titles(store: Store) -> list[str]:
    return sorted(run.title for run in store.read(runs.page, 100).runs)


def test_messages_are_deleted_when_their_request_is_kept(front: SqsSource, sqs: Any, store: Store) -> None:
    for number in range(12):
        _send(sqs, front.url, {**GOOD, "name": f"run {number}"})
    taken = sum(front.step() for _ in range(6))
    assert taken == 12
    assert _titles(store) == sorted(f"run {number}" for number in range(12))
    assert _left(sqs, front.url) == 0


@pytest.mark.parametrize(
    "body", ["no json", "[]", '{"domain": "x"}', '{"Records": 3}', '{"kind": "x", "request": {}}']
)
def test_wrong_messages_are_dead_after_three_receives_and_not_before(
    body: str, front: SqsSource, sqs: Any, store: Store
) -> None:
    _send(sqs, front.url, body)
    for _ in range(MOST_RECEIVES - 1):
        assert front.step() == 0
        assert _left(sqs, front.url) == 1
    assert front.step() == 1
    assert _left(sqs, front.url) == 0
    dead = sqs.receive_message(QueueUrl=front._dead, MessageAttributeNames=["All"])["Messages"]
    assert [message["Body"] for message in dead] == [body]
    assert json.loads(dead[0]["MessageAttributes"]["reason"]["StringValue"])["detail"]
    assert _titles(store) == []


def test_the_queues_own_dead_letters_are_used(front: SqsSource, sqs: Any) -> None:
    dead = sqs.create_queue(QueueName=front.url.rsplit("/", 1)[1][:60] + "-dlq")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    def redrive(count: int) -> None:
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": count})
        sqs.set_queue_attributes(QueueUrl=front.url, Attributes={"RedrivePolicy": policy})

    redrive(1)
    with pytest.raises(BadInput, match="one receive"):
        front.step()
    redrive(5)
    _send(sqs, front.url, "no json")
    for _ in range(MOST_RECEIVES):
        front.step()
    assert _left(sqs, dead) == 1


def test_a_message_stays_hidden_while_it_is_worked_on(
    front: SqsSource, sqs: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the work takes: it is hidden anew, again and again."""
    front.renew_s = 0.02
    real = sqs_module.receive
    renewed: list[dict[str, Any]] = []
    sqs.meta.events.register(
        "provide-client-params.sqs.ChangeMessageVisibility", lambda params, **_: renewed.append(params)
    )

    def slow(*args: Any) -> Any:
        until_s = time.monotonic() + 60
        while len(renewed) < 3:
            assert time.monotonic() < until_s, "Nothing is renewed."
            time.sleep(0.01)
        assert "Messages" not in sqs.receive_message(QueueUrl=front.url)
        return real(*args)

    monkeypatch.setattr(sqs_module, "receive", slow)
    _send(sqs, front.url, GOOD)
    assert front.step() == 1
    assert {params["VisibilityTimeout"] for params in renewed} == {front.visible_s}
    assert len(_titles(store)) == 1
    after = len(renewed)
    assert front.step() == 0
    assert len(renewed) == after  # and not beyond its end


def test_a_receiver_that_dies_before_deleting_loses_and_doubles_nothing(
    front: SqsSource, sqs: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    front.visible_s = 1
    _send(sqs, front.url, GOOD)
    with monkeypatch.context() as patch:
        patch.setattr(SqsSource, "_reply", _killed(SqsSource._reply))
        with pytest.raises(KeyboardInterrupt):
            front.step()
    assert len(_titles(store)) == 1  # kept, but not deleted
    front.visible_s = 60
    until_s = time.monotonic() + 60
    while front.step() == 0:
        assert time.monotonic() < until_s, "It does not come again."
        time.sleep(0.1)
    assert _left(sqs, front.url) == 0
    assert len(_titles(store)) == 1


def _killed(real: Any) -> Any:
    def reply(self: SqsSource, message: Any) -> Any:
        real(self, message)
        raise KeyboardInterrupt

    return reply


# The bucket


@pytest.fixture
def bucket(s3: Any, store: Store, settings: Settings, tmp_path: Path) -> BucketSource:
    name = f"b-{abs(hash(tmp_path))}"
    s3.create_bucket(Bucket=name)
    return BucketSource(f"s3://{name}/requests", store, settings, s3)


def _keys(s3: Any, name: str) -> list[str]:
    return [str(fact["Key"]) for fact in s3.list_objects_v2(Bucket=name).get("Contents", [])]


def test_documents_in_a_bucket_are_taken_once_and_moved(bucket: BucketSource, s3: Any, store: Store) -> None:
    for key in ("requests/a.json", "other/b.json", "requests/deeper/c.json", "requests/.hidden.json"):
        s3.put_object(Bucket=bucket.bucket, Key=key, Body=json.dumps({**GOOD, "name": key}).encode())
    s3.put_object(Bucket=bucket.bucket, Key="requests/wrong.json", Body=b'{"domain": "regresion"}')
    s3.put_object(Bucket=bucket.bucket, Key="requests/data.csv", Body=b"a,b")
    assert bucket.step() == 3
    assert bucket.step() == 0
    assert _titles(store) == ["requests/a.json"]
    assert _keys(s3, bucket.bucket) == [
        "other/b.json",
        "requests/.hidden.json",
        "requests/accepted/a.json",
        "requests/accepted/a.json.RUN",
        "requests/deeper/c.json",
        "requests/rejected/data.csv",
        "requests/rejected/data.csv.REASON",
        "requests/rejected/wrong.json",
        "requests/rejected/wrong.json.REASON",
    ]
    reason = s3.get_object(Bucket=bucket.bucket, Key="requests/rejected/wrong.json.REASON")["Body"].read()
    assert "Did you mean" in reason.decode()


def test_watchers_of_a_bucket_side_by_side(
    bucket: BucketSource, s3: Any, store: Store, settings: Settings
) -> None:
    for number in range(8):
        body = json.dumps({**GOOD, "name": f"run {number}"}).encode()
        s3.put_object(Bucket=bucket.bucket, Key=f"requests/{number}.json", Body=body)
    others = [bucket, BucketSource(bucket.place, store, settings, s3)]
    threads = [threading.Thread(target=other.step) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bucket.step()
    assert _titles(store) == sorted(f"run {number}" for number in range(8))
    assert len(_keys(s3, bucket.bucket)) == 16


def test_a_watcher_that_dies_before_moving_takes_nothing_twice(
    bucket: BucketSource, s3: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket=bucket.bucket, Key="requests/a.json", Body=json.dumps(GOOD).encode())

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BucketSource, "_move", killed)
        with pytest.raises(KeyboardInterrupt):
            bucket.step()
    assert len(_titles(store)) == 1
    assert bucket.step() == 1
    assert len(_titles(store)) == 1


def test_a_bucket_tells_by_its_queue(
    bucket: BucketSource, front: SqsSource, s3: Any, sqs: Any, store: Store
) -> None:
    """The paper's way in: put an object, and the bucket's own event brings it."""
    arn = sqs.get_queue_attributes(QueueUrl=front.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    s3.put_bucket_notification_configuration(
        Bucket=bucket.bucket,
        NotificationConfiguration={
            "QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]
        },
    )
    front.bucket = bucket
    s3.put_object(Bucket=bucket.bucket, Key="requests/my cars.json", Body=json.dumps(GOOD).encode())
    until_s = time.monotonic() + 60
    while (not _titles(store) or _left(sqs, front.url)) and time.monotonic() < until_s:
        front.step()
        time.sleep(0.1)
    assert len(_titles(store)) == 1
    assert "requests/accepted/my cars.json" in _keys(s3, bucket.bucket)
    assert _left(sqs, front.url) == 0


def test_events_of_buckets_that_are_not_watched_are_refused(front: SqsSource, sqs: Any, store: Store) -> None:
    _send(sqs, front.url, {"Records": [{"s3": {"bucket": {"name": "others"}, "object": {"key": "a.json"}}}]})
    for _ in range(MOST_RECEIVES):
        front.step()
    assert _left(sqs, str(front._dead)) == 1
    assert _titles(store) == []


@pytest.mark.parametrize(
    ("body", "objects"),
    [
        ('{"Event": "s3:TestEvent"}', []),
        (
            '{"source": "aws.s3", "detail": {"bucket": {"name": "b"}, "object": {"key": "k+1"}}}',
            [("b", "k+1")],
        ),
        (json.dumps({"Type": "Notification", "Message": '{"Event": "s3:TestEvent"}'}), []),
        ('{"domain": "regression"}', None),
        ('{"Records": [{"s3": 3}]}', None),
        ("[]", None),
        ("x", None),
    ],
)
def test_events_in_every_wrapping(body: str, objects: Any) -> None:
    assert objects_of(body) == objects
