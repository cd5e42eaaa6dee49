"""Remove secrets from documents and texts: environment values, signatures in addresses, passwords."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HIDDEN = "***"
_ENVIRONMENT = "environment"
_SHORTEST = 6
"""Shorter values are also parts of other words; to hide them everywhere would hide too much."""
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>]+")
_NAMES = re.compile(r"(?i)pass(word|wd)?$|secret|token|api[-_]?key|credential")
# No pattern begins with what may go on for long: a word of a megabyte would take hours.
_PATTERNS = (
    re.compile(r"(?i)(bearer\s+)[\w.~+/=-]+"),
    re.compile(
        r"(?i)((?:pass(?:word|wd)?|secret|token|api[-_]?key|signature)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;]+"
    ),
    re.compile(r"(://[^\s/:@]+:)[^\s/@]+(?=@)"),
    re.compile(r"(?i)([?&](?:x-(?:amz|goog)-[\w-]+|awsaccesskeyid|sig|key|token)=)[^\s&]+"),
    re.compile(r"()AKIA[0-9A-Z]{16}"),
    re.compile(r"(\bprudent_)[\w-]{43}(?![\w-])"),  # our own tokens
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)(?:(?!-----END).)+", re.DOTALL),
)


def scrubbed(text: str) -> str:
    """A text without what looks like a secret.

    >>> scrubbed("GET /x Authorization: Bearer abc.def")
    'GET /x Authorization: Bearer ***'
    >>> scrubbed("postgresql://me:hush@host/db")
    'postgresql://me:***@host/db'
    >>> scrubbed("nobody has prudent_" + "x" * 43)
    'nobody has prudent_***'
    """
    for pattern in _PATTERNS:
        text = pattern.sub(r"\1***", text)
    return text


def redacted(value: Any, name: str = "") -> Any:
    """A document for others than its owner.

    >>> redacted({"environment": {"KEY": "x"}, "dataset": {"path": "https://host/a.csv?X-Amz-Signature=1"}})
    {'environment': {'KEY': '***'}, 'dataset': {'path': 'https://host/a.csv?***'}}
    """
    if isinstance(value, Mapping):
        hide = name == _ENVIRONMENT
        return {key: HIDDEN if hide else redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    if _NAMES.search(name):
        return HIDDEN
    return scrubbed(_URL.sub(lambda found: _unsigned(found[0]), value))


@dataclass(frozen=True)
class Redaction:
    """Leaves out the secrets of one document, wherever in a text they come up."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Redaction:
        found = {secret for secret in _secrets(document, "") if len(secret) >= _SHORTEST}
        return cls(tuple(sorted(found, key=len, reverse=True)))

    def text(self, text: str) -> str:
        """
        >>> Redaction.of({"environment": {"KEY": "hush-hush"}}).text("no such key: hush-hush!")
        'no such key: ***!'
        """
        for secret in self.secrets:
            for form in (secret, json.dumps(secret)[1:-1], html.escape(secret)):
                text = text.replace(form, HIDDEN)
        return text

    def file(self, path: Path) -> None:
        """The same for a file that was written; one that cannot be read or written again is removed."""
        if not self.secrets or not path.is_file():
            return
        try:
            path.write_text(self.text(path.read_text(encoding="utf-8")), encoding="utf-8")
        except ValueError:
            path.unlink(missing_ok=True)
        except OSError:
            path.unlink(missing_ok=True)
            raise


def _secrets(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if name == _ENVIRONMENT or _NAMES.search(str(key)):
                yield str(inner)
            else:
                yield from _secrets(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _secrets(inner, name)
    elif isinstance(value, str) and "://" in value:
        for found in _URL.finditer(value):
            yield from _signing(found[0])


def _signing(url: str) -> Iterator[str]:
    """The parts of an address that let its holder in."""
    try:
        parts = urlsplit(url)
        yield parts.query
        yield parts.password or ""
    except ValueError:
        yield url


def _unsigned(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"{place}?{HIDDEN}" if parts.query else place
