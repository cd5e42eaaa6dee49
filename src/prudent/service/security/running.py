"""What a running service says of itself in its home: where it listens, and its settings without secrets."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.service.security.access import write_privately
from prudent.service.settings import PREFIX, SECRETS, Settings, environment_of, load

FILE = "service.json"
_SECRET = {f"{PREFIX}{name.upper()}" for name in SECRETS}


@dataclass(frozen=True)
class Running:
    """A service that runs, or ran last."""

    address: str
    pid: int
    settings: Settings
    walled: bool = True
    """Whether it found a wall around commands when it was started."""
    secrets: frozenset[str] = frozenset()
    """Which secret settings it has; what they are is not told."""

    @classmethod
    def read(cls, home: Path) -> Running:
        try:
            said = json.loads((home / FILE).read_text(encoding="utf-8"))
            settings = load({}, None, {**said["settings"], **(_own_database() if said["elsewhere"] else {})})
            secrets = frozenset(str(name) for name in said["secrets"])
            return cls(str(said["address"]), int(said["pid"]), settings, bool(said["walled"]), secrets)
        except FileNotFoundError:
            raise BadInput(
                f'No service has run in "{home}"; start it with "prudent serve --home {home}", then check.'
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f'"{home / FILE}" cannot be read ({error}); start the service again.') from error


def _own_database() -> dict[str, str]:
    """The database of a service whose users are not in its home; its address is a secret."""
    names = (f"{PREFIX}DATABASE_URL", f"{PREFIX}DATABASE_URL_FILE")
    found = {name: os.environ[name] for name in names if name in os.environ}
    if not found:
        raise BadInput(
            "Its users are in a database; set PRUDENT_DATABASE_URL as for the service, then check."
        )
    return found


def tell(settings: Settings, address: str, walled: bool) -> Path:
    """Write it, for `prudent check --service`; answers the file."""
    said = {name: value for name, value in environment_of(settings).items() if name not in _SECRET}
    elsewhere = settings.database_url is not None
    document = {
        "address": address,
        "pid": os.getpid(),
        "elsewhere": elsewhere,
        "walled": walled,
        "secrets": [name for name in SECRETS if getattr(settings, name)],
        "settings": said,
    }
    write_privately(settings.home / FILE, json.dumps(document, indent=2) + "\n")
    return settings.home / FILE
