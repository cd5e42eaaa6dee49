"""Access tokens: shown once, kept only as a hash, compared in constant time.

A token is 256 random bits, so a plain SHA-256 is enough at rest: there is no guessing it from its hash, and
checking it costs microseconds for every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

from prudent.core.errors import BadInput
from prudent.service.store.users import LOCAL, OPERATOR, User

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
