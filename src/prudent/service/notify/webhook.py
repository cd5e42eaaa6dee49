"""A signed POST for each run that ends, for programs that want to know.

The signature covers the time as well, so that a stranger who saw one cannot send it again tomorrow.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import ssl
from urllib.parse import urlsplit

from prudent._version import __version__
from prudent.core.errors import BadInput, RunFailed
from prudent.service.notify.mail import Undeliverable
from prudent.service.notify.notice import Notice

SIGNATURE, TIMESTAMP = "Prudent-Signature", "Prudent-Timestamp"
_PATIENCE_S = 15.0
_AGAIN = (408, 409, 423, 425, 429)


def sign(secret: str, body: bytes, timestamp_s: int) -> str:
    """The header's value: HMAC-SHA256 of `timestamp.body`.

    >>> sign("hush", b"{}", 1700000000)[:16]
    'v1=763081ea12e3b'
    """
    digest = hmac.digest(secret.encode(), f"{timestamp_s}.".encode() + body, hashlib.sha256).hex()
    return f"v1={digest}"


def verify(
    secret: str, body: bytes, timestamp: str, signature: str, now_s: float, tolerance_s: float = 300.0
) -> bool:
    """For receivers: whether a message has a valid signature and is recent."""
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now_s - int(timestamp)) > tolerance_s:
        return False
    return hmac.compare_digest(sign(secret, body, int(timestamp)).encode(), signature.encode())


def body_of(notice: Notice) -> bytes:
    """What is sent: the event, the run, and what there is to tell."""
    said = notice.to_dict()
    del said["to"]
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


def post(url: str, secret: str | None, notice: Notice, now_s: float) -> None:
    """Send it; RunFailed if it was not taken now, Undeliverable if it never will be."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput("The address of the webhook is not valid; write it as https://host/path.")
    body, moment = body_of(notice), int(now_s)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"prudent/{__version__}",
        "Prudent-Event": notice.event,
        "Prudent-Delivery": f"{notice.run}.{notice.event}",
        TIMESTAMP: str(moment),
    }
    if secret:
        headers[SIGNATURE] = sign(secret, body, moment)
    status = _status(
        parts.scheme, parts.netloc.rpartition("@")[2], parts.path or "/", parts.query, body, headers
    )
    if 200 <= status < 300:
        return
    kind = Undeliverable if 300 <= status < 500 and status not in _AGAIN else RunFailed
    raise kind(f"The webhook answered {status}; look there why.")


def _status(scheme: str, place: str, path: str, query: str, body: bytes, headers: dict[str, str]) -> int:
    line: http.client.HTTPConnection
    if scheme == "https":
        line = http.client.HTTPSConnection(place, timeout=_PATIENCE_S, context=ssl.create_default_context())
    else:
        line = http.client.HTTPConnection(place, timeout=_PATIENCE_S)
    try:
        line.request("POST", path + (f"?{query}" if query else ""), body, headers)
        return line.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise RunFailed(
            f"The webhook did not answer ({type(error).__name__}); it will be tried again."
        ) from None
    finally:
        line.close()
