"""Everyone who has an account: of the database, of a file that the operator keeps, and the operator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prudent.core.documents import read_yaml
from prudent.core.errors import BadInput
from prudent.service.security.tokens import checked_name, operator
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store, StoreUnavailable
from prudent.service.store.users import User

FRESH_S = 2.0
"""So soon a removed user is a stranger."""
_STALE_S = 60.0


@dataclass
class Accounts:
    """All accounts, looked up every two seconds at most: every request asks.

    While the database is away, those who were known a minute ago still are.
    """

    store: Store
    file: Path | None = None
    home: Path | None = None
    clock: Callable[[], float] = time.monotonic
    _known: tuple[User, ...] = ()
    _read_s: float | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def __call__(self) -> Sequence[User]:
        if self._age_s() <= FRESH_S:
            return self._known
        async with self._turn:
            if self._age_s() > FRESH_S:
                await self._read()
            return self._known

    def forget(self) -> None:
        """Look again at the next request."""
        self._read_s = None

    def _age_s(self) -> float:
        return float("inf") if self._read_s is None else self.clock() - self._read_s

    async def _read(self) -> None:
        began_s = self.clock()
        try:
            stored = await self.store.read_async(users.all_)
        except StoreUnavailable:
            if self._age_s() > _STALE_S:
                raise
            return
        found = merged(stored, of_file(self.file), self.home)
        self._known = tuple(account for account in found if account.token_hash)
        self._read_s = began_s


def all_accounts(store: Store, settings: Settings) -> tuple[User, ...]:
    """All accounts, as they are at this moment."""
    return merged(store.read(users.all_), of_file(settings.tokens), settings.home)


def merged(stored: Sequence[User], listed: Sequence[User], home: Path | None = None) -> tuple[User, ...]:
    """All accounts. The file's word counts for a name that is stored too, the home's for the operator."""
    found = {account.name: account for account in stored}
    found.update({account.name: account for account in listed})
    own = None if home is None else operator(home)
    if own is not None:
        found[own.name] = own
    return tuple(found.values())


def of_file(path: Path | None) -> tuple[User, ...]:
    """The accounts in a YAML or JSON file: name -> token_hash, role, daily_usd."""
    if path is None:
        return ()
    try:
        said = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f'Cannot read the tokens "{path}" ({error.strerror}); check the path.') from error
    if not isinstance(said, Mapping):
        raise BadInput(f'"{path}" holds no accounts; write "ada: {{token_hash: …, role: member}}".')
    return tuple(_account(path, str(name), entry) for name, entry in said.items())


def _account(path: Path, name: str, entry: Any) -> User:
    known = {"token_hash", "role", "daily_usd"}
    if not isinstance(entry, Mapping) or "token_hash" not in entry or set(entry) - known:
        raise BadInput(f'"{path}": {name} needs token_hash, and may have role and daily_usd; correct it.')
    token_hash, limit = str(entry["token_hash"]).lower(), entry.get("daily_usd")
    if len(token_hash) != 64 or set(token_hash) - set("0123456789abcdef"):
        raise BadInput(
            f'"{path}": the token_hash of {name} is not a SHA-256; take that of the token, in hex.'
        )
    if limit is not None and not (isinstance(limit, (int, float)) and 0 <= limit < float("inf")):
        raise BadInput(f'"{path}": daily_usd of {name} must be an amount of money; correct it.')
    return User(checked_name(name), str(entry.get("role", users.MEMBER)), limit, token_hash)
