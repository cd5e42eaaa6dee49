"""Put all protection around an application, in one call."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from prudent.core.errors import BadInput
from prudent.service.security.accounts import Accounts, merged, of_file
from prudent.service.security.bodies import BodyLimit
from prudent.service.security.gate import Gate
from prudent.service.security.limits import Rate
from prudent.service.security.sessions import Sessions, session_key
from prudent.service.security.shell import Shell
from prudent.service.settings import Settings
from prudent.service.store import users
from prudent.service.store.store import Store

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY = ("0.0.0.0", "::", "")


class Wrappable(Protocol):
    """An application that layers are put around, such as FastAPI's."""

    def add_middleware(self, middleware_class: type, *args: object, **kwargs: object) -> None: ...


def install(app: Wrappable, settings: Settings, store: Store) -> Sessions:
    """Protect `app`: Host, origin and headers outermost, then bodies, then who may what how often.

    Handlers find who asks as `request.state.user`, and what their forms must carry as
    `request.state.form_token`. Answers the sessions, for the page that begins them.
    """
    sessions = Sessions(session_key(settings.home / "session.key"))
    app.add_middleware(
        Gate,
        accounts=Accounts(store, settings.tokens),
        sessions=sessions,
        open=for_one(settings),
        rate=Rate(settings.rate_per_s, burst=max(2 * settings.rate_per_s, 20.0)),
    )
    app.add_middleware(BodyLimit, most_bytes=int(settings.body_mb * 1e6))
    app.add_middleware(Shell, hosts=hosts_of(settings), origins=frozenset(settings.cors_origins))
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


def for_one(settings: Settings) -> bool:
    """Whether only this machine is served: it listens there, and no other name is meant to lead there."""
    return settings.loopback and not set(settings.trusted_hosts) - set(_LOOPBACK)


def check_bind(settings: Settings, store: Store) -> None:
    """Refuse to be reached from elsewhere while there is nobody with a token."""
    known = merged(store.read(users.all_), of_file(settings.tokens))
    if not for_one(settings) and not any(account.token_hash for account in known):
        place = settings.trusted_hosts[0] if settings.loopback else settings.host
        raise BadInput(
            f'Others could reach the service at "{place}", and nobody has a token; add users '
            'with "prudent users add NAME", or serve on 127.0.0.1.'
        )


def at_home(settings: Settings, store: Store) -> Settings:
    """On loopback without users the service is its operator's alone, and reads what they might point it at.

    That is the folder it was started in, their home, the temporary folder and the examples of what is
    installed, but nothing hidden. With users, or with folders named by the operator, only those are read.
    """
    if not settings.loopback or settings.data or merged(store.read(users.all_), of_file(settings.tokens)):
        return settings
    own = (Path.cwd(), Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix))
    return replace(settings, data=tuple(dict.fromkeys(folder.resolve() for folder in own)))
