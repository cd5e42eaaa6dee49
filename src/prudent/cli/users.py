"""`prudent users`: who may use the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prudent.cli.console import out, say, say_json
from prudent.cli.options import AsJson, command_group
from prudent.cli.serve import private_files
from prudent.core.errors import BadInput, unknown

if TYPE_CHECKING:
    from prudent.service.security.tokens import AccessMode
    from prudent.service.store.store import Store

users = command_group("Who may use the service, with which role and for how much a day.")

Home = Annotated[Path | None, typer.Option(help="The service's folder, as of prudent serve.")]
Config = Annotated[Path | None, typer.Option(help="The service's settings, a YAML file.")]


@users.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and . _ @ -")],
    role: Annotated[
        str, typer.Option(help="viewer, member, commander (may run commands) or admin.")
    ] = "member",
    daily_usd: Annotated[
        float | None, typer.Option(help="The most that their runs may cost in a day. \\[default: no limit]")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace the token of an existing user.")] = False,
    home: Home = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Add a user and show the token, this once: only its hash is kept."""
    from prudent.service.security.tokens import checked_name, hash_token, new_token
    from prudent.service.store import users as stored
    from prudent.service.store.users import User

    if daily_usd is not None and not 0 <= daily_usd < float("inf"):
        raise BadInput(f"--daily-usd is {daily_usd:g}; give an amount of 0 or more.")
    token = new_token()
    user = User(checked_name(name), role, daily_usd, hash_token(token))
    with _store(home, config) as (store, access):
        if not replace and store.read(stored.get, name) is not None:
            raise BadInput(f'There is a user "{name}" already; use --replace to give them a new token.')
        store.write(stored.put, user)
        closed = access.chosen_open
        if closed:
            access.choose(False)
    if as_json:
        say_json({"name": name, "role": role, "daily_usd": daily_usd, "token": token})
    else:
        say(out(), f"{name} is {_article(role)} {role} now. Their token, shown this once:", token)
        if closed:
            say(out(), "The service was open; from now on it asks everybody for a token.")


@users.command("list")
def list_(home: Home = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show all users."""
    from prudent.core.units import format_money
    from prudent.service.store import users as stored

    with _store(home, config) as (store, _):
        found = store.read(stored.all_)
    if as_json:
        say_json([{"name": u.name, "role": u.role, "daily_usd": u.daily_usd} for u in found])
        return
    if not found:
        say(out(), 'No users yet: only the operator can use the service. "prudent users add NAME" adds one.')
        return
    from rich.table import Table

    table = Table("User", "Role", "A day", box=None, pad_edge=False)
    for user in found:
        table.add_row(
            user.name, user.role, format_money(user.daily_usd) if user.daily_usd is not None else "any"
        )
    say(out(), table)


@users.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user whose token ends.")],
    home: Home = None,
    config: Config = None,
) -> None:
    """Remove a user; the token and all sessions end within seconds, the runs stay."""
    from prudent.service.store import users as stored

    with _store(home, config) as (store, _):
        if not store.write(stored.remove, name):
            raise unknown("user", name, [user.name for user in store.read(stored.all_)])
    say(out(), f"{name} is removed.")


@contextmanager
def _store(home: Path | None, config: Path | None) -> Iterator[tuple[Store, AccessMode]]:
    from prudent.service.security.tokens import AccessMode
    from prudent.service.settings import load
    from prudent.service.store.store import Store

    settings = load({"home": home}, config)
    settings.create()
    with private_files(), Store(settings.database) as store:
        yield store, AccessMode(settings.home)


def _article(role: str) -> str:
    return "an" if role == "admin" else "a"
