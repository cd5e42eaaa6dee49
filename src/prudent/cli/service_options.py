"""Options that `prudent serve` and `prudent worker` share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from prudent.core.errors import BadInput

if TYPE_CHECKING:
    from prudent.service.settings import Settings

Home = Annotated[
    Path | None,
    typer.Option(help="The service's folder: database, data, runs; ~/.local/share/prudent otherwise."),
]
Config = Annotated[Path | None, typer.Option(help="A YAML file of settings.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        help="postgresql://host/name; SQLite in the home otherwise. Passwords: PRUDENT_DATABASE_URL."
    ),
]
Artifacts = Annotated[
    str | None, typer.Option(help="Where results go: a folder or s3://bucket/prefix; the home otherwise.")
]
Data = Annotated[
    list[Path] | None,
    typer.Option(help="A folder, beside HOME/data, in which data of requests may lie; repeatable."),
]

Where = Annotated[
    str | None,
    typer.Option(
        help="Where machines are rented for requests that ask for some: local, local:PRICES.csv, "
        "hosts:INVENTORY.yaml or ec2:CONFIG.yaml; nowhere otherwise."
    ),
]


@contextmanager
def private_files() -> Iterator[None]:
    """What is written meanwhile can be read by its owner only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def read_settings(
    home: Path | None, config: Path | None, database_url: str | None, said: Mapping[str, Any]
) -> Settings:
    """Settings of flags, variables and a file."""
    try:
        from prudent.service.settings import load
    except ImportError as error:
        raise BadInput(f'The service needs {error.name}; pip install "prudent[serve]".') from error
    if database_url is not None and urlsplit(database_url).password:
        raise BadInput(
            "A password on the command line is seen by everybody; put the URL into PRUDENT_DATABASE_URL."
        )
    return load({**said, "home": home, "database_url": database_url}, config)
