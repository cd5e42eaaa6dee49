"""Access tokens: shown once, kept only as a hash, compared in constant time.

A token is 256 random bits, so a plain SHA-256 is enough at rest: there is no guessing it from its hash, and
checking it costs microseconds for every request.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.service.store.users import ADMIN, LOCAL, OPERATOR, User

PREFIX = "prudent_"
_LONGEST = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_RESERVED = (LOCAL.name, OPERATOR)


def new_token() -> str:
    """A token that nobody has; the prefix lets scanners find one that leaked."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """What is kept of a token.

    >>> hash_token("prudent_abc")[:12]
    '5b3452efb3f0'
    """
    return hashlib.sha256(token.encode()).hexdigest()


def identify(token: str, accounts: Iterable[User]) -> User | None:
    """Whose token this is; all are compared, each in constant time, so that the time tells nothing."""
    if not token or len(token) > _LONGEST or not token.isascii():
        return None
    mine, found = hash_token(token), None
    for account in accounts:
        if hmac.compare_digest(mine, account.token_hash or ""):
            found = account
    return found


def checked_name(name: str) -> str:
    """A user's name, if it can stand in logs, addresses and mails as it is.

    >>> checked_name("ada.l@example.org")
    'ada.l@example.org'
    """
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise BadInput(
            f'"{name}" cannot be a user name; use up to 64 letters, digits and . _ @ - '
            '(but not "local" or "operator").'
        )
    return name


MODE, TOKEN_FILE = "mode", "operator.token"
_OPEN, _CLOSED = "open", "token"
_log = logging.getLogger("prudent.access")


@dataclass(frozen=True)
class AccessMode:
    """The mode of a home. `alone` is False where others reach the service: then it is never open."""

    home: Path
    alone: bool = True

    @property
    def chosen_open(self) -> bool:
        """What the operator chose; without a choice tokens are asked for."""
        return _text(self.home / MODE) == _OPEN

    def choose(self, is_open: bool) -> None:
        write_private_file(self.home / MODE, f"{_OPEN if is_open else _CLOSED}\n")

    def is_open(self, accounts: Sequence[User]) -> bool:
        """Whether somebody without a token is let in; the first user closes it, for good."""
        if not self.alone or not self.chosen_open:
            return False
        if any(account.name != OPERATOR for account in accounts):
            _log.warning("There are users now: the service asks everybody for a token")
            self.choose(False)
            return False
        return True


def operator(home: Path) -> User | None:
    """The operator's account, if there is a token for it."""
    token = _text(home / TOKEN_FILE)
    return User(OPERATOR, ADMIN, None, hash_token(token)) if token else None


def make_token(home: Path) -> str | None:
    """Give the operator a token; answers it if there was none before."""
    if operator(home) is not None:
        return None
    token = new_token()
    write_private_file(home / TOKEN_FILE, f"{token}\n")
    return token


def write_private_file(path: Path, text: str) -> None:
    """A file that its owner alone may read, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
