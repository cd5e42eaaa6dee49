"""All commands as one program; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from prudent._version import __version__
from prudent.cli.options import HELP_NAMES
from prudent.core.errors import unknown

# name -> (module, function, or a typer application with commands of its own)
COMMANDS = {
    "tune": ("prudent.cli.tune", "tune"),
    "compare": ("prudent.cli.compare", "compare"),
    "report": ("prudent.cli.report", "report"),
    "schedule": ("prudent.cli.schedule", "schedule"),
    "simulate": ("prudent.cli.schedule", "simulate"),
    "execute": ("prudent.cli.execute", "execute"),
    "workflow": ("prudent.cli.workflow", "workflow"),
    "train": ("prudent.cli.train", "train"),
    "predict": ("prudent.cli.predict", "predict"),
    "users": ("prudent.cli.users", "users"),
    "serve": ("prudent.cli.serve", "serve"),
    "worker": ("prudent.cli.serve", "worker"),
    "demo": ("prudent.cli.demo", "demo"),
    "prices": ("prudent.cli.prices", "prices"),
    "money": ("prudent.cli.prices", "money"),
    "clusters": ("prudent.cli.clusters", "clusters"),
    "check": ("prudent.cli.check", "check"),
    "infra": ("prudent.cli.infra", "infra"),
}

UsageError: Any = typer.BadParameter.__mro__[1]
"""What typer raises for arguments it cannot use; it has no public name there."""


class LazyGroup(TyperGroup):
    """Typer's group, with commands that are imported late."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, (module, _) in COMMANDS.items() if find_spec(module) is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)


def group() -> Any:
    """The whole program, to be called with arguments."""
    app = typer.Typer(
        cls=LazyGroup,
        name="prudent",
        no_args_is_help=True,
        context_settings=HELP_NAMES,
    )
    app.callback()(prudent)
    return typer.main.get_command(app)  # with the options that set up completion in a shell


def prudent(
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    """Think ahead before paying: find the cheapest way to run heavy jobs on rented machines."""
    if version:
        typer.echo(f"prudent {__version__}")
        raise typer.Exit


def _command(name: str) -> Any:
    module, function = COMMANDS[name]
    found = getattr(import_module(module), function)
    if isinstance(found, typer.Typer):
        several = typer.main.get_group(found)
        several.name = name  # for the list of commands
        return several
    app = typer.Typer(add_completion=False, context_settings=HELP_NAMES)
    app.command(name)(found)
    return typer.main.get_command(app)
