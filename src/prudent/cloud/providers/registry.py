"""The providers by name, imported when they are first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from prudent.cloud.providers.provider import Provider
from prudent.core.errors import BadInput, RunFailed, unknown

PROVIDERS = {
    "local": ("prudent.cloud.providers.local.provider", "LocalProvider", ""),
    "hosts": ("prudent.cloud.providers.ssh.provider", "HostsProvider", "hosts"),
    "ec2": ("prudent.cloud.providers.ec2.provider", "Ec2Provider", "aws"),
}
"""Module, class, and the extra that it needs."""


def provider_of(where: str | Mapping[str, Any], home: Path, folder: Path = Path()) -> Provider:
    """The provider that `where:` means: `local`, `{hosts: inventory.yaml}` or `{ec2: aws.yaml}`.

    `home` is the folder where Prudent keeps its leases; files are found beside `folder`.
    """
    if isinstance(where, str):
        where = {where: None}
    if len(where) != 1:
        raise BadInput(f"{dict(where)!r} names no one place; write where: local, or where: {{hosts: FILE}}.")
    [(name, setting)] = where.items()
    if name not in PROVIDERS:
        raise unknown("place", name, PROVIDERS)
    module, kind, extra = PROVIDERS[name]
    try:
        built: Any = getattr(import_module(module), kind)
    except ImportError as error:
        raise RunFailed(
            f'The place "{name}" lacks {error.name}; install it with: pip install "prudent[{extra}]".'
        ) from error
    provider: Provider = built.of(setting, home, folder)
    return provider
