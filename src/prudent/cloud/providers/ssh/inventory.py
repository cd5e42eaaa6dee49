"""The inventory of machines that one can log in to: a YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.cloud.catalog import Catalog, Machine, mips_of, speed_of
from prudent.cloud.providers.ssh.connection import Login
from prudent.core.documents import KeyPath, read_yaml_file
from prudent.core.errors import BadInput, unknown
from prudent.core.money import Price
from prudent.core.parameters import is_number
from prudent.core.units import USD, parse_in

FOLDER = ".prudent"
_SHARED = ("user", "port", "key", "host_key", "known_hosts", "timeout")
_KEYS = ("name", "address", "type", "vcpus", "memory_gb", "price", "minimum", *_SHARED)
_TOP = ("hosts", "folder", *(key for key in _SHARED if key != "host_key"))
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Host:
    """One machine of the inventory: how to get in, what it has, what an hour of it costs."""

    name: str
    login: Login
    machine: Machine

    @property
    def type(self) -> str:
        return self.machine.name


@dataclass(frozen=True)
class Inventory:
    """All machines that one can log in to, by name. `folder` is where Prudent works on each of them."""

    hosts: tuple[Host, ...]
    folder: str = FOLDER

    @classmethod
    def read(cls, path: Path) -> Inventory:
        """The inventory at `path`; relative paths in it are relative to it."""
        said, where = read_yaml_file(path, "inventory")
        return cls.parse(said, path.absolute().parent, where)

    @classmethod
    def parse(cls, said: Any, beside: Path, where: KeyPath | None = None) -> Inventory:
        """The same from a mapping.

        >>> said = {"user": "me", "hosts": [{"name": "alpha", "address": "10.0.0.7", "type": "m5.large"}]}
        >>> [alpha] = Inventory.parse(said, Path()).hosts
        >>> alpha.type, alpha.machine.vcpus, alpha.machine.price.usd_per_h, alpha.login.user
        ('m5.large', 2, 0.096, 'me')
        """
        where = where or KeyPath("the inventory")
        with where:
            if not isinstance(said, Mapping) or not isinstance(said.get("hosts"), list) or not said["hosts"]:
                raise BadInput("It lists no hosts; write hosts: [{name: alpha, address: 10.0.0.7, type: …}].")
        where.check_keys(said, _TOP, {})
        shared = {key: said[key] for key in _SHARED if said.get(key) is not None}
        hosts: list[Host] = []
        for number, one in enumerate(said["hosts"], start=1):
            title = one.get("name", number) if isinstance(one, Mapping) else number
            hosts.append(_host(one, shared, beside, where / "hosts" / title))
        with where / "hosts":
            _check_all(hosts)
        return cls(tuple(hosts), where.text(said, "folder", FOLDER))

    def of_type(self, name: str) -> tuple[Host, ...]:
        """The hosts of a type; BadInput if there is none."""
        found = tuple(host for host in self.hosts if host.type == name)
        if not found:
            raise unknown("machine type", name, self.types)
        return found

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(host.type for host in self.hosts))

    def named(self, name: str) -> Host | None:
        return next((host for host in self.hosts if host.name == name), None)

    def catalog(self) -> Catalog:
        """The types of the inventory, to choose among."""
        return Catalog({host.type: host.machine for host in reversed(self.hosts)}.values())


def _host(one: Any, shared: Mapping[str, Any], beside: Path, where: KeyPath) -> Host:
    with where:
        if not isinstance(one, Mapping):
            raise BadInput(
                f"{one!r} is not a host; write {{name: alpha, address: 10.0.0.7, type: m5.large}}."
            )
    where.check_keys(one, _KEYS, {})
    said = {**shared, **{key: value for key, value in one.items() if value is not None}}
    address = where.text(said, "address", "") or where.text(said, "name", "")
    name = where.text(said, "name", address)
    with where:
        if not address:
            raise BadInput("It has no address; write address: 10.0.0.7 or a host name.")
        if not _NAME.fullmatch(name):
            raise BadInput(f'"{name}" is not a name; use letters, digits, "-", "_" and ".".')
    return Host(name, _login(said, name, address, beside, where), _machine(said, name, where))


def _login(said: Mapping[str, Any], name: str, address: str, beside: Path, where: KeyPath) -> Login:
    key, known_hosts = (_path(where.text(said, which, ""), beside) for which in ("key", "known_hosts"))
    with where / "key":
        if key is not None and not key.is_file():
            raise BadInput(
                f'There is no key "{key}"; name the file of a private key, or leave it to the agent.'
            )
    with where / "port":
        port = said.get("port", 22)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 1 << 16:
            raise BadInput(f"{port!r} is not a port; write a number from 1 to 65535.")
    host_key = where.text(said, "host_key", "") or None
    timeout_s = where.seconds(said, "timeout", 15.0)
    user = where.text(said, "user", "") or None
    return Login(address, user, port, key, host_key, known_hosts, name, timeout_s)


def _machine(said: Mapping[str, Any], name: str, where: KeyPath) -> Machine:
    """What a host has: by its type in the catalog, and what is said of it otherwise."""
    type_name = where.text(said, "type", name)
    known = next((one for one in Catalog.load() if one.name == type_name), None)
    with where / "type":
        if not _NAME.fullmatch(type_name):
            raise BadInput(f'"{type_name}" is not a type; use letters, digits, "-", "_" and ".".')
        lacking = [key for key in ("vcpus", "memory_gb", "price") if key not in said]
        if known is None and lacking:
            if "type" in said and len(lacking) == 3:
                hint = unknown("machine type", type_name, (one.name for one in Catalog.load()))
                raise BadInput(f"{hint} Or say its vcpus, memory_gb and price.")
            raise BadInput(f"The size of {name} is not known; add {' and '.join(lacking)}, or a known type.")
    vcpus = _number(said, "vcpus", known.vcpus if known else 1, where)
    with where / "vcpus":
        if vcpus < 1 or vcpus != int(vcpus):
            raise BadInput(f"{vcpus:g} is not a number of vCPUs; write a whole number from 1.")
    memory_gb = _number(said, "memory_gb", known.memory_gb if known else 0.0, where)
    speed = known.speed if known else speed_of("")
    return Machine(
        name=type_name,
        vcpus=int(vcpus),
        memory_gb=memory_gb,
        family=known.family if known else type_name.partition(".")[0],
        gpus=known.gpus if known else 0,
        gpu=known.gpu if known else "",
        price=_price(said, known, where),
        region="",
        speed=speed,
        mips=mips_of(int(vcpus), speed),
    )


def _price(said: Mapping[str, Any], known: Machine | None, where: KeyPath) -> Price:
    """Machines of one's own are paid by the second; no minimum, unless the inventory says so."""
    minimum_s = where.seconds(said, "minimum", 0.0)
    given = said.get("price")
    if given is None:
        assert known is not None
        return Price(known.price.usd_per_h, known.price.date, known.price.source, minimum_s)
    with where / "price":
        if isinstance(given, str):
            given = parse_in(re.sub(r"\s*(/|per)\s*(h|hour)\s*$", "", given), USD)
        if not is_number(given):
            raise BadInput(f"{given!r} is not a price; write dollars per hour, like 0.096.")
        return Price(float(given), "", f"inventory {where.source}", minimum_s)


def _number(said: Mapping[str, Any], key: str, otherwise: float, where: KeyPath) -> float:
    value = said.get(key, otherwise)
    with where / key:
        if not is_number(value) or float(value) < 0:
            raise BadInput(f"{value!r} is not a number; write it like 4.")
    return float(value)


def _path(text: str, beside: Path) -> Path | None:
    return beside / Path(text).expanduser() if text else None


def _check_all(hosts: Sequence[Host]) -> None:
    """Names and places are used once; hosts of one type are alike, or a type would have no price."""
    names: dict[str, Host] = {}
    places: dict[tuple[str, int], Host] = {}
    types: dict[str, Host] = {}
    for host in hosts:
        place = (host.login.address, host.login.port)
        twin = names.setdefault(host.name, host)
        if twin is not host:
            raise BadInput(f'"{host.name}" is given twice; give each host its own name.')
        twin = places.setdefault(place, host)
        if twin is not host:
            raise BadInput(f"{twin.name} and {host.name} are the same machine; remove one of them.")
        twin = types.setdefault(host.type, host)
        if twin.machine != host.machine:
            raise BadInput(
                f"{twin.name} and {host.name} have the type {host.type}, but differ in size or price; make "
                "them alike, or give one another type."
            )
