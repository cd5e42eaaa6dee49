"""What must be known to rent machines from EC2: a file such as `aws.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from prudent.core.documents import KeyPath, read_yaml_file
from prudent.core.errors import BadInput, unknown
from prudent.core.units import USD, parse_in

USERS = {"amazon-linux": "ec2-user", "debian": "admin"}
"""Images that are found by name (the newest), and who logs in to them."""

PUBLIC, PRIVATE = "public", "private"
_SECRET = "does not belong in a file; let `aws configure` put it where the AWS tools look."
_WORDS = ("region", "profile", "endpoint", "user", "key", "instance_profile")
_LISTS = ("subnets", "zones", "security_groups", "packages", "setup")
_OTHERS = {
    "subnet": 'is written "subnets: […]": one for each zone, in the order to try.',
    "zone": 'is written "zones: […]", in the order to try.',
    "security_group": 'is written "security_groups: […]".',
    "type": (
        'is not a setting: the job\'s machine parameter names the type, "alternatives" what may replace it.'
    ),
    "count": "is not a setting: the job's machine parameter says how many.",
    "access_key": _SECRET,
    "secret_key": _SECRET,
}


@dataclass(frozen=True)
class Ec2Settings:
    """One place on EC2. Lists of subnets, zones and alternatives are in the order in which they are tried.

    >>> settings = Ec2Settings.parse({"region": "eu-west-1", "image": "debian"})
    >>> settings.login, settings.address
    ('admin', 'public')
    >>> Ec2Settings.parse({"region": "eu-west-1", "subnetz": []})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    prudent.core.documents._LocatedBadInput: the EC2 settings, subnetz: Unknown key "subnetz". Did you...
    """

    region: str
    profile: str = ""
    endpoint: str = ""
    subnets: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    image: str = "amazon-linux"
    user: str = ""
    key: str = ""
    key_file: Path | None = None
    instance_profile: str = ""
    alternatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spot_max_usd_per_h: float | None = None
    packages: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    disk_gb: int | None = None
    address: str = PUBLIC
    port: int = 22
    prices: Path | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def login(self) -> str:
        """The user who logs in: the one in the settings, else that of the image."""
        return self.user or USERS.get(self.image, "ec2-user")

    @classmethod
    def read(cls, path: Path) -> Ec2Settings:
        """The settings in a file; paths in it are relative to it."""
        said, where = read_yaml_file(path, "file of EC2 settings", '"prudent infra aws" writes one.')
        return cls.parse(said, path.resolve().parent, where)

    @classmethod
    def parse(cls, said: Any, folder: Path = Path(), where: KeyPath | None = None) -> Ec2Settings:
        """The same from a mapping."""
        where = where or KeyPath("the EC2 settings")
        with where:
            if not isinstance(said, Mapping):
                raise BadInput("It holds no keys; write at least region, such as region: us-east-1.")
        where.check_keys(said, [one.name for one in fields(cls)], _OTHERS)
        where.require(said, "region", "write it like region: us-east-1.")
        words: dict[str, Any] = {key: where.text(said, key, "") for key in _WORDS}
        lists: dict[str, Any] = {key: tuple(where.texts(said, key)) for key in _LISTS}
        settings = cls(
            **words,
            **lists,
            image=where.text(said, "image", "amazon-linux"),
            key_file=_file(where, said, "key_file", folder),
            alternatives=_alternatives(where / "alternatives", where.mapping(said, "alternatives")),
            spot_max_usd_per_h=_money(where / "spot_max_usd_per_h", said.get("spot_max_usd_per_h")),
            disk_gb=where.integer(said, "disk_gb", None, least=1),
            address=where.text(said, "address", PUBLIC),
            port=where.integer(said, "port", 22, least=1),
            prices=_file(where, said, "prices", folder),
            tags={name: str(value) for name, value in where.mapping(said, "tags").items()},
        )
        settings._fits(where)
        return settings

    def _fits(self, where: KeyPath) -> None:
        with where / "image":
            if self.image not in USERS and not self.image.startswith("ami-"):
                raise unknown("image", self.image, [*USERS, "ami-…"])
        with where / "address":
            if self.address not in (PUBLIC, PRIVATE):
                raise unknown("address", self.address, (PUBLIC, PRIVATE))
        with where / "zones":
            if self.zones and self.subnets:
                raise BadInput("There are subnets as well, each in a zone already; keep one of the two.")
        with where / "tags":
            for name in self.tags:
                if name.startswith(("prudent", "aws:")):
                    raise BadInput(f'The tag "{name}" is not yours to set; choose another name.')


def _file(where: KeyPath, said: Mapping[str, Any], key: str, folder: Path) -> Path | None:
    text = where.text(said, key, "")
    return folder / Path(text).expanduser() if text else None


def _alternatives(where: KeyPath, said: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(where.texts(said, name)) for name in said}


def _money(where: KeyPath, said: Any) -> float | None:
    with where:
        return None if said is None else parse_in(said, USD)
