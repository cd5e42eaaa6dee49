"""What a job file may run: a command, here or on rented machines, a table of runs, a Python function."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from prudent.cloud.catalog import Catalog
from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput, unknown
from prudent.core.parameter_parsing import parse_parameter
from prudent.core.rules import Rule
from prudent.core.space import Space
from prudent.core.units import UNITS, USD, parse_in
from prudent.tuning.goal import TIME
from prudent.tuning.jobs.job import Job, declared_fraction, declared_measures
from prudent.tuning.jobs.pricing import pricing

if TYPE_CHECKING:
    from prudent.cloud.providers.provider import Provider
    from prudent.tuning.jobs.cluster_command import ClusterCommandJob

JobDocument: TypeAlias = Mapping[str, Any]
Build: TypeAlias = Callable[[JobDocument, KeyPath, Path, str, Path | None], Job]

_RATE = re.compile(r"(?P<amount>[^/]*[\d$¢][^/]*?)\s*(?:/|\bper\b)\s*(?P<unit>[a-z]+)", re.IGNORECASE)
_PLAIN_AMOUNT = re.compile(r"\$\s*[\d._]+|[\d._]+\s*(?:\$|usd|dollars?|cents?|¢)", re.IGNORECASE)
_FUNCTION = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")


_LEAST_LEASE_S = 10.0


@dataclass(frozen=True)
class JobKind:
    """A kind of job, the keys it understands beside those of every study, and how it is made of them."""

    name: str
    keys: tuple[str, ...]
    build: Build


def _command(said: JobDocument, where: KeyPath, folder: Path, name: str, logs: Path | None) -> Job:
    from prudent.tuning.jobs.command import CommandJob

    if said.get("where") is not None:
        return command_on_machines(said, where, folder, name, logs)
    for key in _MACHINE_KEYS:
        with where / key:
            if said.get(key) is not None:
                raise BadInput("This key is for machines that are rented; add where: local, hosts or ec2.")
    space = space_of(said, where, folder)
    options = _command_options(said, where, folder)
    command = where.require(said, "command", "write the shell command to run.")
    measures, fraction = _declared(said, where, space)
    price, setup_s = _checked_price(said, where, space, folder), where.seconds(said, "setup", 0.0)
    with where / "command":
        return CommandJob(command, space, measures, price, fraction, setup_s, logs=logs, name=name, **options)


def _table(said: JobDocument, where: KeyPath, folder: Path, name: str, logs: Path | None) -> Job:
    from prudent.tuning.jobs.table import TableJob

    del name, logs
    parameters = where.texts(said, "parameters")
    if not parameters:
        with where / "parameters":
            raise BadInput("No column is named; list those that can be chosen, like [vm_type, workers].")
    progress = where.text(said, "progress", "")
    with where / "table":
        return TableJob.read_csv(
            folder / where.text(said, "table", ""),
            parameters,
            time=where.text(said, "time", TIME),
            price=where.text(said, "price", "price_usd_per_h"),
            measures=where.texts(said, "measures"),
            fraction=where.text(said, "fraction", "") or None,
            progress=folder / progress if progress else None,
            minimum_s=where.seconds(said, "minimum", 0.0),
            boot_s=where.seconds(said, "boot", 0.0),
            readings=_readings(said, where, folder),
        )


def _readings(said: JobDocument, where: KeyPath, folder: Path) -> Path | list[str]:
    """A list of columns, or the file that the text names."""
    if isinstance(said.get("readings"), str):
        return folder / where.text(said, "readings", "")
    return where.texts(said, "readings")


def _function(said: JobDocument, where: KeyPath, folder: Path, name: str, logs: Path | None) -> Job:
    from prudent.tuning.jobs.function import FunctionJob

    del logs
    space = space_of(said, where, folder)
    with where / "function":
        function = import_function(where.text(said, "function", ""), folder)
    measures, fraction = _declared(said, where, space)
    price = _checked_price(said, where, space, folder)
    with where / "function":
        return FunctionJob(
            function,
            space,
            measures,
            price,
            fraction,
            where.seconds(said, "setup", 0.0),
            name=name,
            virtual=where.flag(said, "virtual", False),
            grace_s=where.seconds(said, "grace", 5.0),
        )


_SPACE_KEYS = ("parameters", "rule", "price", "setup", "grace")
_MACHINE_KEYS = ("worker", "fetch", "exclude", "keep", "lease", "spot")
KINDS = (
    JobKind(
        "command",
        ("command", *_SPACE_KEYS, "directory", "environment", "timeout", "where", *_MACHINE_KEYS),
        _command,
    ),
    JobKind(
        "table", ("table", "parameters", "time", "price", "progress", "minimum", "boot", "readings"), _table
    ),
    JobKind("function", ("function", *_SPACE_KEYS, "virtual"), _function),
)


def import_function(said: str, folder: Path) -> Callable[..., Any]:
    """The function that `package.module:function` names, from `folder` or from what is installed."""
    found = _FUNCTION.fullmatch(said)
    if found is None:
        raise BadInput(f'"{said}" names no function; write it like package.module:function.')
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        value: Any = importlib.import_module(found["module"])
    except ModuleNotFoundError as error:
        if error.name and f"{found['module']}.".startswith(f"{error.name}."):
            names = sorted(path.stem for path in folder.glob("*.py"))
            raise unknown(f"module (looked in {folder} and what is installed)", error.name, names) from None
        raise BadInput(f'Importing "{found["module"]}" fails: {error}; install what it needs.') from error
    except Exception as error:  # a user's module may raise anything when it is imported
        said_error = f"{type(error).__name__}: {error}"
        raise BadInput(f'Importing "{found["module"]}" fails ({said_error}); correct it.') from error
    for part in found["name"].split("."):
        if not hasattr(value, part):
            raise unknown(f"name in {found['module']}", part, [n for n in vars(value) if n[0] != "_"])
        value = getattr(value, part)
    return value  # type: ignore[no-any-return]


def space_of(said: JobDocument, where: KeyPath, folder: Path, catalog: Catalog | None = None) -> Space:
    """Parameters and rule; machine types are looked up in the price list of the file, else in `catalog`."""
    remedy = "name what can be chosen, like batch: [16, 64, 256]."
    parameters = where.require(said, "parameters", remedy)
    with where / "parameters":
        if not isinstance(parameters, Mapping) or not parameters:
            raise BadInput(f"{parameters!r} are not parameters; {remedy}")
    price = said.get("price")
    listed = price.get("catalog") if isinstance(price, Mapping) else None
    with where / "price" / "catalog":
        catalog = Catalog.load(folder / str(listed)) if listed is not None else catalog

    def machine(name: str, spec: Any) -> MachineParameter:
        if isinstance(spec, Mapping) and spec.get("catalog") is not None:
            spec = {**spec, "catalog": str(folder / str(spec["catalog"]))}
        return MachineParameter.parse(name, spec, catalog)

    made = []
    for name, spec in parameters.items():
        with where / "parameters" / name:
            made.append(parse_parameter(name, spec, {"machine": machine}))
    with where / "rule":
        rule = said.get("rule")
        rules = [] if rule is None else rule if isinstance(rule, list) else [rule]
        for part in rules:
            Rule.parse(part)  # alone first, so that an error quotes the part that is wrong
        joined = rules[0] if len(rules) == 1 else " and ".join(f"({part})" for part in rules)
        return Space(made, joined or None)


def _declared(said: JobDocument, where: KeyPath, space: Space) -> tuple[list[str], str | None]:
    """Measures and fraction, each checked where it stands."""
    measures = where.texts(said, "measures")
    with where / "measures":
        declared_measures(measures)
    fraction = where.text(said, "fraction", "") or None
    with where / "fraction":
        declared_fraction(fraction, space)
    return measures, fraction


def _command_options(said: JobDocument, where: KeyPath, folder: Path) -> dict[str, Any]:
    """What a command is told wherever it runs."""
    timeout_s = where.seconds(said, "timeout", -1.0)
    return {
        "directory": folder / where.text(said, "directory", "."),
        "environment": {key: str(value) for key, value in where.mapping(said, "environment").items()},
        "grace_s": where.seconds(said, "grace", 5.0),
        "timeout_s": None if timeout_s < 0 else timeout_s,
    }


def _checked_price(said: JobDocument, where: KeyPath, space: Space, folder: Path) -> Any:
    with where / "price":
        price = _price(said.get("price"), folder)
        pricing(price, space)
    return price


def _price(said: Any, folder: Path) -> Any:
    """A price as `pricing` takes it: `$0.096/h` in dollars per hour, files found beside the job file."""
    if isinstance(said, Mapping):
        given = {**said}
        if given.get("catalog") is not None:
            given["catalog"] = str(folder / str(given["catalog"]))
        # A price list alone: the machine parameters have looked themselves up in it already.
        return None if set(given) == {"catalog"} else given
    if not isinstance(said, str):
        return said
    rate = _RATE.fullmatch(said.strip())
    if rate is not None and rate["unit"].lower() in UNITS and UNITS[rate["unit"].lower()][1] == "s":
        return parse_in(rate["amount"], USD) * 3600.0 / UNITS[rate["unit"].lower()][0]
    return parse_in(said, USD) if _PLAIN_AMOUNT.fullmatch(said.strip()) else said


def command_on_machines(
    said: JobDocument, where: KeyPath, folder: Path, name: str, logs: Path | None
) -> ClusterCommandJob:
    """The job of a file that says where its machines are."""
    from prudent.tuning.jobs.cluster_command import LEASE_S, ClusterCommandJob, MachineSelection
    from prudent.tuning.jobs.cluster_pool import KEEP_S

    provider = _provider(said, where, folder)
    space = space_of(said, where, folder, provider.catalog())
    price = said.get("price")
    with where / "price":
        MachineSelection.of(price, space)
    measures, fraction = _declared(said, where, space)
    with where / "setup":
        if said.get("setup") is not None:
            raise BadInput(
                "Rented machines are paid for from their launch on, as long as it takes; remove it."
            )
    lease_s = where.seconds(said, "lease", LEASE_S)
    with where / "lease":
        if lease_s < _LEAST_LEASE_S:
            raise BadInput(
                f"A lease of {lease_s:g} s is over before it is renewed; give {_LEAST_LEASE_S:g} s."
            )
    options = _command_options(said, where, folder)
    with where:
        return ClusterCommandJob(
            where.require(said, "command", "write the shell command to run."),
            space,
            provider,
            measures,
            price,
            fraction,
            logs=logs,
            worker=said.get("worker"),
            fetch=where.texts(said, "fetch"),
            exclude=where.texts(said, "exclude"),
            keep_s=where.seconds(said, "keep", KEEP_S),
            lease_s=lease_s,
            spot=where.flag(said, "spot", False),
            name=name,
            **options,
        )


def _provider(said: JobDocument, where: KeyPath, folder: Path) -> Provider:
    from prudent.cloud.home_folder import default_home
    from prudent.cloud.providers.registry import provider_of

    place: Any = said["where"]
    with where / "where":
        if not isinstance(place, (str, Mapping)):
            raise BadInput(
                f"{place!r} is not a place; write where: local, or where: {{hosts: inventory.yaml}}."
            )
        return provider_of(place, default_home(), folder)
