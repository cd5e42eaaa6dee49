"""A shell command as a job on rented machines: local, hosts of one's own, or a cloud."""

from __future__ import annotations

import glob
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from prudent.cloud.catalog import cluster_text
from prudent.cloud.leases.reaper import reap
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.machine_parameter import MachineParameter
from prudent.cloud.providers.provider import Provider
from prudent.core.errors import BadInput, unknown
from prudent.core.files import write_whole
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.jobs.cluster_pool import KEEP_S, ClusterPool
from prudent.tuning.jobs.cluster_run import ClusterRun, ClusterTask
from prudent.tuning.jobs.command import folder_of, texts, variable
from prudent.tuning.jobs.job import (
    declared_fraction,
    declared_measures,
    declared_seconds,
    fingerprint_of,
)
from prudent.tuning.jobs.pricing import Formula
from prudent.tuning.jobs.run_output import TrialLog, cannot_write
from prudent.tuning.jobs.template import CommandTemplate, texts_of
from prudent.tuning.trial import Configuration

_REMEDY = (
    "add a parameter like cluster: {machine: {types: [m5.large], count: [1, 2]}}, or "
    "price: {machine: m5.large, count: workers}."
)


@dataclass(frozen=True)
class MachineSelection:
    """The type and the count of machines, by a machine parameter or by what the price says.

    >>> space = Space.parse({"workers": [1, 2, 4]})
    >>> MachineSelection.of({"machine": "m5.large", "count": "workers"}, space).wanted({"workers": 2})
    ('m5.large', 2)
    """

    types: tuple[str, ...]
    parameter: MachineParameter | None = None
    machine: str = ""
    count: Formula | None = None

    @classmethod
    def of(cls, price: Any, space: Space) -> MachineSelection:
        """What is said under `price`, or the one machine parameter of the space."""
        parameters = [one for one in space.parameters if isinstance(one, MachineParameter)]
        if isinstance(price, str):
            parameters = [one for one in parameters if one.name == price]
        elif isinstance(price, Mapping):
            return cls._said(price, space)
        elif price is not None:
            raise BadInput(
                "The price comes from where the machines are; remove it, and name machines instead."
            )
        if len(parameters) != 1:
            several = "It names several clusters; keep one" if parameters else "It names no machines"
            raise BadInput(f"{several}: {_REMEDY}")
        return cls(tuple(parameters[0].types), parameters[0])

    @classmethod
    def _said(cls, price: Mapping[str, Any], space: Space) -> MachineSelection:
        for key in price:
            if key not in ("machine", "count"):
                raise unknown("key of the price, where machines are rented,", key, ("machine", "count"))
        machine = price.get("machine")
        if not isinstance(machine, str):
            raise BadInput(f"The price names no machine: {_REMEDY}")
        count = Formula.parse(str(price.get("count", 1)), space)
        if machine not in space.names:
            return cls((machine,), None, machine, count)
        if not space[machine].finite:
            raise BadInput(f'"{machine}" lists no machine types; list them, like [m5.large, c5.xlarge].')
        types: Sequence[Any] = space[machine].values
        return cls(tuple(str(value) for value in types), None, machine, count)

    def wanted(self, configuration: Configuration) -> tuple[str, int]:
        """The type and the count for a canonical configuration."""
        if self.parameter is not None:
            count, machine = self.parameter.cluster(configuration[self.parameter.name])
            return machine.name, count
        assert self.count is not None
        number = self.count(configuration)
        if number < 1 or number != int(number):
            raise BadInput(
                f'The count "{self.count.text}" is {number:g} at {configuration}, which is not a number of '
                "machines; make it a whole number from 1."
            )
        return str(configuration.get(self.machine, self.machine)), int(number)

    def fingerprint(self) -> str:
        how = (
            self.parameter.name
            if self.parameter
            else f"{self.count.text if self.count else 1} x {self.machine}"
        )
        return f"{how}: {', '.join(self.types)}"


LEASE_S = 300.0
EXCLUDED = (".git", "__pycache__", "*.pyc", ".venv", "*.prudent")
"""What is never brought to a machine: it is large, ours, or of no use there."""

_CONFIRMING = 0
_REAPS = 3
_LISTED = 10_000


class ClusterCommandJob:
    """A command that runs on machines of the type and count that a configuration names.

    For each run the machines are rented from `provider` (or kept from the run before, if they are the same),
    the files of `directory` are brought to each of them, and the command is started on the first. It finds
    its parameters in its places and in the environment, like any command, and there also `PRUDENT_MACHINES`
    (`2*m5.large`), `PRUDENT_ADDRESSES` (of all, with commas between, its own first), `PRUDENT_COUNT` and
    `PRUDENT_INDEX` (0). `worker` is a command that is started on each of the others before (index 1, 2, …)
    and ended with the run. `fetch` lists what is brought back, into `results` beside the logs.

    `time_s` and `cost_usd` of a trial are those of the command; the budget pays for the machines from their
    launch to their release, by the price at the launch. Machines that are lost or taken away are replaced,
    and the run begins again; after three losses it has failed.
    """

    virtual = False

    def __init__(
        self,
        command: str | Sequence[str],
        space: Space,
        provider: Provider,
        measures: Sequence[str] = (),
        price: Any = None,
        fraction: str | None = None,
        *,
        register: LeaseRegister | None = None,
        directory: Path | str = Path("."),
        logs: Path | str | None = None,
        worker: str | Sequence[str] | None = None,
        fetch: Sequence[str] = (),
        exclude: Sequence[str] = (),
        keep_s: float = KEEP_S,
        lease_s: float = LEASE_S,
        spot: bool = False,
        grace_s: float = 5.0,
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        name: str | None = None,
    ) -> None:
        self.space = space
        self.provider = provider
        self.measures = declared_measures(measures)
        self.fraction = declared_fraction(fraction, space)
        self.directory = folder_of(Path(directory))
        self.logs = None if logs is None else Path(logs).resolve()
        self.results = None if self.logs is None else self.logs.parent / "results"
        self.machines = MachineSelection.of(price, space)
        self.name = name or "command"
        self._said = [command if isinstance(command, str) else list(command), worker, list(fetch)]
        self._template = CommandTemplate.parse(command, space)
        self._worker = None if worker is None else CommandTemplate.parse(worker, space)
        self._fetch = tuple(_inside(path) for path in fetch)
        self._exclude = (*EXCLUDED, *exclude)
        self._keep_s = declared_seconds("The time to keep a cluster", keep_s)
        self._lease_s = declared_seconds("The lease", lease_s)
        self._spot = spot
        self._grace_s = declared_seconds("The grace time", grace_s)
        self._timeout_s = None if timeout_s is None else declared_seconds("The time-out", timeout_s)
        self._environment = texts(environment or {})
        # A type that cannot be had is found now, not after money was spent.
        self._prices = {kind: provider.offer(kind, spot).price for kind in self.machines.types}
        self._register = register
        self._rentals: ClusterPool | None = None
        self._run_id = ""
        self._lock = threading.Lock()

    def _own_home(self) -> tuple[str, ...]:
        """The folder of machines of this computer, to be excluded if it is inside the job's folder."""
        home = (self._register or LeaseRegister()).home.resolve()
        folder = self.directory.resolve()
        return (glob.escape(home.relative_to(folder).as_posix()),) if home.is_relative_to(folder) else ()

    def price(self, configuration: Configuration) -> Price:
        kind, count = self.machines.wanted(self.space.check(configuration))
        return self._prices[kind].times(count)

    def start(self, configuration: Configuration, number: int) -> ClusterRun:
        """Begin a run; BadInput or RunFailed if its files cannot be written, before anything is rented."""
        chosen = self.space.check(configuration)
        kind, count = self.machines.wanted(chosen)
        if self._spot:
            self._prices[kind] = self.provider.offer(kind, True).price
        rentals = self._opened()
        values = {variable(name): text for name, text in texts_of(self.space, chosen).items()}
        ours = {"PYTHONUNBUFFERED": "1", "PRUDENT_TRIAL": str(number), **values, **self._environment}
        task = ClusterTask(
            number=number,
            command=self._template.fill(chosen),
            worker=None if self._worker is None else self._worker.fill(chosen),
            environment=ours,
            type=kind,
            count=count,
            price=self._prices[kind].times(count),
            run=self._confirming_id if number == _CONFIRMING else self._run_id,
            source=self.directory,
            exclude=(*self._exclude, *self._own_home()),
            fetch=self._fetch,
            results=self.results,
            measures=self.measures,
            grace_s=self._grace_s,
            timeout_s=self._timeout_s,
        )
        return ClusterRun(task, rentals, TrialLog.both(self.logs, number))

    def check(self) -> list[str]:
        """What would go wrong at the machines, one sentence each; nothing is rented."""
        return self.provider.check(self._clusters(), self._spot)

    def release(self) -> None:
        """Give all machines back."""
        if self._rentals is not None:
            self._rentals.close()

    def bill_usd(self) -> float:
        """What the machines of this study have cost, by their leases, in every session of it."""
        return self._bill_usd(self._run_id) if self._run_id else 0.0

    def confirming_usd(self) -> float:
        """The same for its confirming runs, whose money is beside the study's."""
        return self._bill_usd(self._confirming_id) if self._run_id else 0.0

    def reap(self) -> tuple[int, ...]:
        """End what an interrupted study left running; the study is known by a note beside its logs."""
        self._run_id = self._noted() or self._run_id
        for _ in range(_REAPS):
            # What is not found now would be on the bill only when its money was spent again.
            if not reap(self._registered(), [self.provider], time.time()).complaints:
                break
        return ()

    def fingerprint(self) -> str:
        prices = {kind: (price.usd_per_h, price.minimum_s) for kind, price in self._prices.items()}
        return fingerprint_of(
            "cluster command",
            self._said,
            self.space.fingerprint(),
            self.measures,
            self.machines.fingerprint(),
            self.provider.name,
            sorted(prices.items()) if not self._spot else "spot",
            self.fraction,
        )

    # Inside

    @property
    def _confirming_id(self) -> str:
        return f"{self._run_id}-confirm"

    def _bill_usd(self, run: str) -> float:
        now_s = time.time()
        return sum(lease.cost_usd(now_s) for lease in self._registered().leases() if lease.run == run)

    def _clusters(self) -> list[str]:
        """The largest cluster of each type that may be proposed; the types alone where that is not listed."""
        if not self.space.finite or (self.space.size or 0) > _LISTED:
            return list(self.machines.types)
        most: dict[str, int] = {}
        for kind, count in map(self.machines.wanted, self.space.configurations()):
            most[kind] = max(count, most.get(kind, 1))
        return [cluster_text(count, kind) for kind, count in most.items()]

    def _opened(self) -> ClusterPool:
        with self._lock:
            if not self._run_id:
                self._run_id = f"{self.name}-{secrets.token_hex(4)}"
                self._note()
            if self._rentals is None:
                register = self._registered()
                self._rentals = ClusterPool(
                    self.provider, register, self._keep_s, self._lease_s, self._spot, self._grace_s
                )
            return self._rentals

    def _registered(self) -> LeaseRegister:
        if self._register is None:
            self._register = LeaseRegister()
        return self._register

    def _note(self) -> None:
        """Note the study's id before anything is rented, so that a killed study finds its machines again."""
        if self.logs is None:
            return
        path = self.logs / "machines.json"
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps({"run": self._run_id}), durable=True)
        except OSError as error:
            raise cannot_write(path, error) from error

    def _noted(self) -> str:
        if self.logs is None:
            return ""
        try:
            return str(json.loads((self.logs / "machines.json").read_text(encoding="utf-8"))["run"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or str(pure) == ".":
        raise BadInput(
            f'"{path}" is not a path to fetch; give one below the folder of the job, like model.bin.'
        )
    return str(pure)
