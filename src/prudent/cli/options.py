"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.core.errors import BadInput, unknown

if TYPE_CHECKING:
    from prudent.workflows.fleet import Fleet
    from prudent.workflows.world import World

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def command_group(about: str, no_args_is_help: bool = True) -> typer.Typer:
    """A command with commands of its own, such as `prudent users`."""
    return typer.Typer(
        help=about, no_args_is_help=no_args_is_help, add_completion=False, context_settings=HELP_NAMES
    )


HomeFolder = Annotated[
    Path | None,
    typer.Option(help="The folder of Prudent. \\[default: $PRUDENT_HOME, or ~/.local/share/prudent]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]

WorkflowPath = Annotated[
    Path,
    typer.Argument(
        metavar="WORKFLOW",
        help="A Pegasus (YAML or DAX) or WfFormat (JSON) file, or the folder where Snakemake ran.",
    ),
]
DagPath = Annotated[
    Path | None,
    typer.Option("--dag", help="Of a Nextflow trace: the DAG that Nextflow drew, dag.dot or dag.mmd."),
]
FleetText = Annotated[
    str, typer.Option("--fleet", help="Machines, such as 8*m3.medium,3*m3.2xlarge; spot:TYPE for a spot VM.")
]
OptionalFleet = Annotated[
    str | None,
    typer.Option("--fleet", help="Machines, such as 8*m3.medium. \\[default: those of the plan]"),
]
Slots = Annotated[str, typer.Option(help="Run one activation at a time per vm, or one per vcpu.")]
Speeds = Annotated[
    list[str] | None,
    typer.Option(
        "--mips",
        help="The speed of a type: m3.medium=1200 (1000 is the reference); may be repeated.",
    ),
]
CatalogPath = Annotated[
    Path | None,
    typer.Option("--catalog", help="Your own price list (CSV); it overrides or extends the bundled one."),
]
WorldSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--world",
        help="A setting of the world, such as bandwidth_mb_s=15, storage=local, boot_s=60, failure_rate=0.02 "
        "or speed=lognormal(1,0.3); may be repeated.",
    ),
]
SchedulerOptions = Annotated[
    list[str] | None,
    typer.Option("--option", help="An option of the scheduler, name=value; may be repeated."),
]
Seed = Annotated[int, typer.Option(min=0, help="The seed of the random numbers.")]
OtherSeed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="The seed of the random numbers. \\[default: that of the file]",
    ),
]


def complete_strategies(typed: str) -> list[str]:
    """The strategies that begin with what was typed, for the shell."""
    from prudent.tuning.strategies.registry import strategies

    return [name for name in strategies() if name.startswith(typed)]


def complete_schedulers(typed: str) -> list[str]:
    """The same of schedulers."""
    from prudent.workflows.schedulers.registry import schedulers

    return [name for name in schedulers() if name.startswith(typed)]


def complete_search_methods(typed: str) -> list[str]:
    """The same of the searches of a training request."""
    from prudent.training.request.request import searches

    return [name for name in searches() if name.startswith(typed)]


def read_assignments(said: Sequence[str] | None, flag: str, example: str) -> dict[str, Any]:
    """Words like `name=value`; values are read as YAML reads them.

    >>> read_assignments(["episodes=50", "speed=lognormal(1,0.3)"], "--option", "a=1")
    {'episodes': 50, 'speed': 'lognormal(1,0.3)'}
    """
    from prudent.core.documents import read_yaml

    settings: dict[str, Any] = {}
    for text in said or ():
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise BadInput(f'"{text}" is not an assignment; write it like {flag} {example}.')
        settings[name.strip()] = read_yaml(value)
    return settings


def read_world(said: Sequence[str] | None, base: Mapping[str, Any] | None = None) -> World:
    """The world of these settings, on top of those a plan was made for."""
    from prudent.workflows.world import World

    settings = read_assignments(said, "--world", "bandwidth_mb_s=15")
    known = [each.name for each in fields(World)]
    for name, value in settings.items():
        if name not in known:
            raise unknown("setting of the world", name, known)
        wanted = getattr(World(), name)
        if isinstance(wanted, float | int) and (
            isinstance(value, bool) or not isinstance(value, float | int)
        ):
            raise BadInput(
                f'The world\'s {name} is "{value}"; give a number, like --world {name}={wanted:g}.'
            )
    return World(**{**dict(base or {}), **settings})


def read_fleet(text: str, slots: str, mips: Sequence[str] | None, catalog: Path | None) -> Fleet:
    """The fleet of these words."""
    from prudent.cloud.catalog import Catalog
    from prudent.workflows.fleet import Fleet

    speeds = {}
    for name, value in read_assignments(mips, "--mips", "m3.medium=1200").items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadInput(f'"{value}" is not a speed of {name}; give a number of MIPS, like {name}=1200.')
        speeds[name] = float(value)
    return Fleet.parse(text, slots, mips=speeds, catalog=Catalog.load(catalog))  # type: ignore[arg-type]


def check_speeds(fleet: Fleet, mips: Sequence[str] | None) -> None:
    """A speed for a machine that the fleet does not have is a slip of the pen."""
    machines = {vm.machine for vm in fleet.vms}
    for name in read_assignments(mips, "--mips", "m3.medium=1200"):
        if name not in machines:
            raise unknown("machine of the fleet", name, sorted(machines))


def write_to(path: Path, what: str, write: Any) -> None:
    """Call `write(path)`; a path that cannot be written to is bad input."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
    except OSError as error:
        raise BadInput(
            f'Cannot write the {what} "{path}" ({error.strerror}); choose another place.'
        ) from None
