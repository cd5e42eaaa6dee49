"""`prudent infra aws`: what must exist on AWS before machines can be rented there, as Terraform."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from prudent._version import __version__
from prudent.cli.console import out, say, say_json
from prudent.cli.options import AsJson, command_group
from prudent.core.errors import BadInput

infra = command_group(
    "Write what must exist before machines can be rented: network, roles, bucket and queue."
)

FILES = ("variables.tf", "network.tf", "roles.tf", "storage.tf", "outputs.tf")
_NAME = re.compile(r"[a-z][a-z0-9-]{1,20}[a-z0-9]")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")


@infra.callback()
def _infra() -> None:
    """Write what must exist before machines can be rented: network, roles, bucket and queue."""


@infra.command()
def aws(
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder for the files.")] = Path(
        "prudent-aws"
    ),
    region: Annotated[str, typer.Option(help="The AWS region.")] = "us-east-1",
    name: Annotated[
        str, typer.Option(help="A prefix for the names of everything that is created.")
    ] = "prudent",
    zones: Annotated[
        int, typer.Option(help="In how many availability zones machines may run.", min=1, max=6)
    ] = 3,
    ssh_from: Annotated[
        list[str] | None,
        typer.Option(
            help="Who may log in, such as 203.0.113.7/32; may be repeated. \\[default: Terraform asks]"
        ),
    ] = None,
    key_file: Annotated[
        str, typer.Option(help="The private key to log in with; its .pub must be in the same folder.")
    ] = "~/.ssh/id_ed25519",
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write Terraform for AWS; nothing is created there until you apply it."""
    files = terraform(region, name, zones, [network(text) for text in ssh_from or ()], key_file)
    write(files, folder, force)
    if as_json:
        say_json({"folder": str(folder), "files": list(files)})
        return
    say(
        out(),
        f"{folder}: {', '.join(files)}",
        "Then:",
        f"  terraform -chdir={folder} init",
        f"  terraform -chdir={folder} apply",
        f"  terraform -chdir={folder} output -raw aws_yaml > aws.yaml",
        "  prudent check --where ec2:aws.yaml --type m5.large",
    )


def terraform(
    region: str, name: str, zones: int, ssh_from: Sequence[str], key_file: str = "~/.ssh/id_ed25519"
) -> dict[str, str]:
    """The files by name."""
    from jinja2 import Environment, StrictUndefined

    if not _NAME.fullmatch(name):
        raise BadInput(f'"{name}" cannot begin names on AWS; use 3 to 22 small letters, digits and "-".')
    if not _REGION.fullmatch(region):
        raise BadInput(f'"{region}" is not a region of AWS; write one like us-east-1.')
    if not key_file or any(sign in key_file for sign in '"\\\n${}%'):
        raise BadInput(f"The key file {key_file!r} cannot be written into a setting; give a plain path.")
    said = {
        "version": f"Prudent {__version__}",
        "region": region,
        "name": name,
        "zones": zones,
        "ssh_from": ssh_from,
        "key_file": key_file,
    }
    # Terraform is no HTML: every value was checked above, and escaping would only spoil it.
    made = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    folder = resources.files("prudent.cli").joinpath("terraform", "aws")
    texts = {file: folder.joinpath(f"{file}.j2").read_text(encoding="utf-8") for file in FILES}
    return {file: made.from_string(text).render(said) for file, text in texts.items()}


def network(text: str) -> str:
    """Addresses that may log in; one address alone means itself.

    >>> network("203.0.113.7"), network("10.0.0.0/8")
    ('203.0.113.7/32', '10.0.0.0/8')
    """
    try:
        found = ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise BadInput(f'"{text}" is not an address ({error}); write one like 203.0.113.7/32.') from error
    if found.version != 4:
        raise BadInput(f'"{text}" is of version 6; the network is of version 4: give such an address.')
    return str(found)


def write(files: Mapping[str, str], folder: Path, force: bool) -> None:
    """All files, or none where one would be overwritten that says something else."""
    changed = [
        file
        for file, text in files.items()
        if (folder / file).exists() and (folder / file).read_text(encoding="utf-8") != text
    ]
    if changed and not force:
        raise BadInput(
            f'"{folder}" has another {", ".join(changed)} already; choose another folder with --out, or '
            "replace them with --force."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f'Cannot write to "{folder}" ({error.strerror}); choose another folder.') from error
