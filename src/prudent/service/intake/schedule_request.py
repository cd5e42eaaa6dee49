"""A request for a plan: workflow, fleet, world, scheduler, options, seed, slots, execute."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput, did_you_mean, unknown
from prudent.core.units import SECONDS, USD, parse_in
from prudent.service.intake.refusal import Refused
from prudent.service.security.data_locations import resolve_in_folders
from prudent.training.request.errors import RequestError
from prudent.workflows.fleet import Fleet
from prudent.workflows.schedulers.registry import scheduler_named, schedulers
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

KEYS = ("name", "workflow", "fleet", "world", "scheduler", "options", "seed", "slots", "execute")
EXECUTE_KEYS = ("replay", "retries", "timeout", "budget", "deadline", "anyway")
_LIMITS = {"budget": (USD, "$3"), "deadline": (SECONDS, "2 h")}
MOST_VMS = 10_000
_NO_OPTIONS = ("tables", "carry_on")  # these name files; a run keeps its own


@dataclass(frozen=True)
class ScheduleRequest:
    """What to plan, on which machines, how; `execute` then runs the plan (or rehearses it: `replay`)."""

    workflow: Any = field(repr=False)
    """A WfFormat object, the text of a DAX, or the name of a file in a data folder."""
    fleet: str
    world: Mapping[str, Any] = field(default_factory=dict)
    scheduler: str = "prudent"
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    slots: str = "vm"
    name: str = ""
    execute: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, document: Mapping[str, Any], folders: Sequence[Path]) -> ScheduleRequest:
        """The request that a document says; Refused has every error of it."""
        wrong = [RequestError(path, message) for path, message in _wrong(document, folders)]
        if wrong:
            raise Refused(wrong)
        said = {key: value for key, value in document.items() if value is not None}
        return cls(**said)

    def limit(self, key: str) -> float | None:
        """The budget (USD) or deadline (s) of the execution."""
        said = (self.execute or {}).get(key)
        return None if said is None else parse_in(said, _LIMITS[key][0])

    @property
    def commands(self) -> bool:
        """Whether it runs programs."""
        return self.execute is not None and self.execute.get("replay") is None

    def read_workflow(self, folders: Sequence[Path]) -> Workflow:
        return read_workflow(self.workflow, folders, self.name or "workflow")

    def read_fleet(self) -> Fleet:
        return Fleet.parse(self.fleet, self.slots)  # type: ignore[arg-type]

    def read_world(self) -> World:
        return World(**dict(self.world))


def read_workflow(said: Any, folders: Sequence[Path], name: str = "workflow") -> Workflow:
    """The workflow that a request holds or names."""
    from prudent.workflows.formats import dax, wfformat

    if isinstance(said, Mapping):
        return wfformat.parse(json.dumps(said), name=name)
    if said.lstrip("\ufeff \t\r\n").startswith("<"):
        return dax.parse(said, name=name)
    return Workflow.read(resolve_in_folders(said, folders))


def _wrong(document: Mapping[str, Any], folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for key in document:
        if key not in KEYS:
            yield str(key), f'Unknown key "{key}".{did_you_mean(str(key), KEYS)} Use: {", ".join(KEYS)}.'
    yield from _workflow(document.get("workflow"), folders)
    yield from _fleet(document)
    yield from _world(document.get("world"))
    yield from _scheduler(document)
    seed = document.get("seed", 0)
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
        yield "seed", "Give a whole number of 0 or more."
    if not isinstance(document.get("name") or "", str):
        yield "name", "Give a text."
    yield from _execute(document.get("execute"))


def _workflow(said: Any, folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    if not isinstance(said, (str, Mapping)) or not said:
        yield "workflow", "Give a WfFormat object, the text of a DAX, or the name of a file in a data folder."
        return
    try:
        if isinstance(said, str) and not said.lstrip("\ufeff \t\r\n").startswith("<"):
            resolve_in_folders(said, folders)  # read when it is its turn: it may be large
        else:
            read_workflow(said, folders)
    except BadInput as error:
        yield "workflow", str(error)


def _fleet(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from prudent.cloud.catalog import parse_fleet

    said, slots = document.get("fleet"), document.get("slots") or "vm"
    if slots not in ("vm", "vcpu"):
        yield "slots", str(unknown("kind of slots", slots, ("vm", "vcpu")))
        slots = "vm"
    if not isinstance(said, str) or not said:
        yield "fleet", "Name the machines, like 8*m3.medium,3*m3.2xlarge."
        return
    try:
        if sum(count for count, _ in parse_fleet(said)) > MOST_VMS:
            yield "fleet", f"It has more than {MOST_VMS} machines; take fewer."
            return
        Fleet.parse(said, slots)  # type: ignore[arg-type]
    except BadInput as error:
        yield "fleet", str(error)


def _world(said: Any) -> Iterator[tuple[str, str]]:
    if said is None:
        return
    if not isinstance(said, Mapping):
        yield "world", 'Give an object, as {"bandwidth_mb_s": 15}.'
        return
    known, right = [each.name for each in fields(World)], {}
    for name, value in said.items():
        place = f"world.{name}"
        if name not in known:
            yield place, str(unknown("setting of the world", name, known))
            continue
        wanted = getattr(World(), name)
        if isinstance(wanted, float | int) and (
            isinstance(value, bool) or not isinstance(value, float | int)
        ):
            yield place, f"Give a number, like {wanted:g}."
            continue
        right[name] = value
        try:
            World(**{name: value})
        except BadInput as error:
            yield place, str(error)
        except (TypeError, ValueError, OverflowError):
            yield place, "It does not fit; give a number or a distribution like lognormal(1,0.3)."


def _scheduler(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    name = document.get("scheduler") or "prudent"
    if name not in schedulers():
        yield "scheduler", str(unknown("scheduler", name, schedulers()))
        return
    options = document.get("options")
    if options is None:
        return
    if not isinstance(options, Mapping):
        yield "options", 'Give an object, as {"episodes": 100}.'
        return
    for key in _NO_OPTIONS:
        if key in options:
            yield f"options.{key}", "It names files, which a run here keeps for itself; leave it out."
    try:
        scheduler_named(name, {key: value for key, value in options.items() if key not in _NO_OPTIONS})
    except BadInput as error:
        yield "options", str(error)
    except (TypeError, ValueError, OverflowError) as error:
        yield "options", f"They do not fit ({error}); correct them."


def _execute(said: Any) -> Iterator[tuple[str, str]]:
    if said is None:
        return
    if not isinstance(said, Mapping):
        yield "execute", 'Give an object: {} to run the commands, {"replay": 0.01} to rehearse.'
        return
    for key, value in said.items():
        if key not in EXECUTE_KEYS:
            yield f"execute.{key}", str(unknown("key", key, EXECUTE_KEYS))
        elif key in _LIMITS:
            yield from _limit(key, value)
        elif key == "anyway":
            if not isinstance(value, bool):
                yield f"execute.{key}", "Say true or false."
        elif isinstance(value, bool) or not isinstance(value, float | int) or value < 0:
            yield f"execute.{key}", "Give a number of 0 or more."


def _limit(key: str, value: Any) -> Iterator[tuple[str, str]]:
    unit, example = _LIMITS[key]
    try:
        if value is not None and not parse_in(value, unit) > 0:
            yield f"execute.{key}", f'Give an amount above zero, such as "{example}".'
    except BadInput as error:
        yield f"execute.{key}", str(error)
