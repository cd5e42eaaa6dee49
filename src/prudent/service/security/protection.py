"""Put all protection around an application, in one call."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from prudent.core.errors import BadInput
from prudent.service.security.accounts import Accounts, all_accounts
from prudent.service.security.authentication import AuthMiddleware
from prudent.service.security.browser_sessions import BrowserSessions, RevokedSessions, session_key
from prudent.service.security.middleware import BodyLimitMiddleware, OriginMiddleware
from prudent.service.security.rate_limits import ConcurrencyLimit, RateLimit
from prudent.service.security.tokens import AccessMode
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL, OPERATOR

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY = ("0.0.0.0", "::", "")


class Wrappable(Protocol):
    """An application that layers are put around, such as FastAPI's."""

    def add_middleware(self, middleware_class: type, *args: object, **kwargs: object) -> None: ...


def install(app: Wrappable, settings: Settings, store: Store) -> BrowserSessions:
    """Protect `app`: Host, origin and headers outermost, then bodies, then who may what how often.

    Handlers find who asks as `request.state.user`, and what their forms must carry as
    `request.state.form_token`. Answers the sessions, for the page that begins them.
    """
    signed_out = RevokedSessions(settings.home / "signed-out")
    sessions = BrowserSessions(session_key(settings.home / "session.key"), signed_out)
    app.add_middleware(
        AuthMiddleware,
        accounts=Accounts(store, settings.tokens, settings.home),
        sessions=sessions,
        open=access_of(settings).is_open,
        rate=RateLimit(settings.rate_per_s, burst=max(2 * settings.rate_per_s, 20.0)),
        concurrency=ConcurrencyLimit(settings.requests_at_once, settings.requests_waiting),
    )
    app.add_middleware(BodyLimitMiddleware, most_bytes=int(settings.body_mb * 1e6))
    app.add_middleware(OriginMiddleware, hosts=hosts_of(settings), origins=frozenset(settings.cors_origins))
    return sessions


def hosts_of(settings: Settings) -> frozenset[str]:
    """The names under which the service may be asked for; none is any.

    A service that only this machine reaches must know its names: else a page of another site, whose name is
    made to lead here, could use it.
    """
    named = tuple(host.lower() for host in settings.trusted_hosts)
    if settings.host in _ANY and not named:
        return frozenset()
    own = f"[{settings.host}]" if ":" in settings.host else settings.host.lower()
    return frozenset({*_LOOPBACK, *named, *(() if settings.host in _ANY else (own,))})


def is_local_only(settings: Settings) -> bool:
    """Whether only this machine is served: it listens there, and no other name is meant to lead there."""
    return settings.loopback and not set(settings.trusted_hosts) - set(_LOOPBACK)


def access_of(settings: Settings) -> AccessMode:
    """Whether tokens are asked for, as the home says; where others reach the service, always."""
    return AccessMode(settings.home, alone=is_local_only(settings))


def check_access(settings: Settings, store: Store, is_open: bool | None = None) -> AccessMode:
    """Keep the mode that the operator wants (None: as it was), unless it would let strangers in."""
    access = access_of(settings)
    wanted = access.chosen_open if is_open is None else is_open
    users = [account for account in all_accounts(store, settings) if account.name != OPERATOR]
    if wanted and not access.alone:
        raise BadInput(
            f'Other people could reach the service at "{_place(settings)}", and an open service requires '
            "no token; say --no-open, or serve on 127.0.0.1."
        )
    if is_open and users:
        raise BadInput(
            "There are users with tokens, and an open service would not require them; leave out --open, "
            'or remove them with "prudent users remove NAME".'
        )
    if not access.alone and not any(account.token_hash for account in users):
        raise BadInput(
            f'Other people could reach the service at "{_place(settings)}", and nobody has a token; add '
            'users with "prudent users add NAME", or serve on 127.0.0.1.'
        )
    access.choose(wanted)
    return access


def _place(settings: Settings) -> str:
    """The host name or address by which others can reach the service."""
    return settings.trusted_hosts[0] if settings.loopback else settings.host


def with_own_folders(settings: Settings) -> Settings:
    """A service that only this machine reaches may read its operator's own folders.

    That is the folder it was started in, their home, the temporary folder and the examples of what is
    installed, but nothing hidden. With folders named by the operator, only those are read.
    """
    if not is_local_only(settings) or settings.data:
        return settings
    own = (Path.cwd(), Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix))
    return replace(settings, own_data=tuple(dict.fromkeys(folder.resolve() for folder in own)))


def own_folders(settings: Settings, user: str) -> tuple[Path, ...]:
    """The folders that are read for this user alone: the operator's, for nobody else."""
    return settings.own_data if user in (LOCAL.name, OPERATOR) else ()


def folders_for(settings: Settings, user: str) -> tuple[Path, ...]:
    """Where this user's requests may read data from; asked for each request."""
    return (*settings.data_folders, *own_folders(settings, user))
