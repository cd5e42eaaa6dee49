"""Faults between a client and EC2, at the place where botocore sends a request.

A plan names what happens to the next calls of an operation, one word each: `ok`; `lost` (the request never
arrives); `unheard` (it arrives and is done, the answer does not come back); `broken` (the same, with status
500); `throttled`; `crash` (done, and our program is gone); or EC2's own word for an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from prudent.cloud.providers.ec2.provider import Ec2Provider

NO_MACHINES = (
    '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>'
    "<reservationSet/></DescribeInstancesResponse>"
)


class Crash(BaseException):
    """Our program is gone; nothing of it runs any more."""


class _Body:
    def __init__(self, text: str) -> None:
        self._text = text.encode()

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._text


def _answer(request: Any, status: int, text: str) -> AWSResponse:
    return AWSResponse(request.url, status, {"content-type": "text/xml"}, _Body(text))


def refusal(request: Any, code: str, status: int) -> AWSResponse:
    return _answer(
        request,
        status,
        f"<Response><Errors><Error><Code>{code}</Code><Message>said {code}</Message></Error></Errors>"
        "<RequestID>r</RequestID></Response>",
    )


class Faults:
    """What was planned for a provider's calls, and how often each was made."""

    def __init__(self, provider: Ec2Provider, plan: Mapping[str, Sequence[str]]) -> None:
        self.plan = {operation: list(words) for operation, words in plan.items()}
        self.calls: dict[str, int] = {}
        self._clients = {id(one): one for one in (provider.clients.ec2, provider.clients.launching)}
        for client in self._clients.values():
            client.meta.events.register_first("before-send.ec2", self._hook(client))

    def _hook(self, client: Any) -> Any:
        def before_send(request: Any, event_name: str, **_: Any) -> AWSResponse | None:
            operation = event_name.rpartition(".")[2]
            self.calls[operation] = self.calls.get(operation, 0) + 1
            words = self.plan.get(operation)
            return self._happen(words.pop(0), client, request) if words else None

        return before_send

    def _happen(self, word: str, client: Any, request: Any) -> AWSResponse | None:
        if word == "ok":
            return None
        if word == "unlisted":
            return _answer(request, 200, NO_MACHINES)
        if word == "lost":
            raise ReadTimeoutError(endpoint_url=request.url)
        if word in ("unheard", "broken", "reset", "crash"):
            client._endpoint.http_session.send(request)
            if word == "crash":
                raise Crash
            if word == "unheard":
                raise ReadTimeoutError(endpoint_url=request.url)
            if word == "reset":
                raise ConnectionClosedError(endpoint_url=request.url)
            return refusal(request, "InternalError", 500)
        if word == "throttled":
            return refusal(request, "RequestLimitExceeded", 503)
        return refusal(request, word, 500 if word.startswith("Insufficient") else 400)
