"""Whether a service asks for tokens: the operator's choice, kept in the home; and the operator's own token.

The choice changes by the operator's hand only. A service that asks for tokens goes on to do so when its last
user is removed, for the operator still has one; an open one closes for good with its first user.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prudent.service.security.tokens import hash_token, new_token
from prudent.service.store.users import ADMIN, OPERATOR, User

MODE, TOKEN_FILE = "mode", "operator.token"
_OPEN, _CLOSED = "open", "token"
_log = logging.getLogger("prudent.access")


@dataclass(frozen=True)
class Access:
    """The mode of a home. `alone` is False where others reach the service: then it is never open."""

    home: Path
    alone: bool = True

    @property
    def chosen_open(self) -> bool:
        """What the operator chose; without a choice tokens are asked for."""
        return _text(self.home / MODE) == _OPEN

    def choose(self, is_open: bool) -> None:
        write_privately(self.home / MODE, f"{_OPEN if is_open else _CLOSED}\n")

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
    write_privately(home / TOKEN_FILE, f"{token}\n")
    return token


def write_privately(path: Path, text: str) -> None:
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
