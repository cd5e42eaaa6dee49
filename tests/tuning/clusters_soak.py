"""Random studies on machines, in all kinds of trouble; what must hold of each of them, checked.

    python tests/tuning/clusters_soak.py FIRST COUNT AT_ONCE

runs the studies of COUNT seeds from FIRST on, each on real machines of this computer (see `LocalProvider`)
and in processes of its own, and prints a JSON object with what happened. `benchmarks/clusters_soak.py` runs
200 of them, `test_clusters_soak.py` a few. It exits with 1 if a study breaks a promise.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cloud" / "providers"))

from metered import metered, paid_usd
from troubled import Troubled

from prudent.cloud.catalog import Catalog
from prudent.cloud.clusters.rental import KILL_POINTS, RENEW_POINTS
from prudent.cloud.leases.lease import RELEASED
from prudent.cloud.leases.reaper import reap
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.machine_parameter import MachineParameter
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.cloud.providers.provider import CAPACITY, QUOTA, TRANSIENT, Instance, LaunchFailed, LaunchOrder
from prudent.core.errors import RunFailed
from prudent.core.money import ROUNDING_USD
from prudent.core.parameter_parsing import parse_parameter
from prudent.core.processes import KILL_AT
from prudent.core.seeds import rng_for
from prudent.core.space import Space
from prudent.tuning.jobs.cluster_command import ClusterCommandJob
from prudent.tuning.study.study import Study
from prudent.tuning.tune import tune

TYPES, COUNTS, XS = ("m3.medium", "m3.large"), (1, 2), (1, 2, 3)
PRICES = {"m3.medium": 0.067, "m3.large": 0.133}
AMPLE_USD = 5.0
PLACES = tuple(place for place in KILL_POINTS if place not in RENEW_POINTS)
TROUBLES = 2
"""So often at most a session has trouble with one kind of machines: three times would fail the trial."""


@dataclass(frozen=True)
class Case:
    """One study: what it looks for, with how much money, and what will befall it."""

    seed: int
    goal: str
    strategy: str
    budget_usd: float
    parallel: int
    spot: bool
    minimum_s: float
    broken: int
    """The value of x at which the command fails."""
    quota: tuple[str, ...]
    """Clusters that are never granted."""
    kills: tuple[str, ...]
    """Where one session after another is killed; the last one is not."""

    @classmethod
    def draw(cls, seed: int) -> Case:
        rng = rng_for(seed, "clusters soak")
        ample, spot = bool(rng.random() < 0.6), bool(rng.random() < 0.4)
        cheap = not spot and bool(rng.random() < 0.4)
        clusters = [f"{count}*{kind}" for kind in TYPES for count in COUNTS]
        denied = rng.permutation(clusters)[: int(rng.integers(0, 3))]
        killed = int(rng.integers(1, 4)) if rng.random() < 0.4 else 0
        strategies = ["grid", "random"] if ample else ["grid", "random", "random", "lynceus"]
        return cls(
            seed=seed,
            goal="minimise cost_usd subject to error <= 2" if cheap else "minimise error",
            strategy=str(rng.choice(strategies)),
            budget_usd=AMPLE_USD if ample else float(rng.uniform(0.0025, 0.012)),
            parallel=int(rng.integers(1, 4)),
            spot=spot,
            minimum_s=60.0 if cheap or rng.random() < 0.7 else 0.0,
            broken=int(rng.choice([0, 3])),
            quota=tuple(map(str, denied)),
            kills=tuple(f"{rng.choice(PLACES)}:{rng.integers(1, 4)}" for _ in range(killed)),
        )

    @property
    def ample(self) -> bool:
        return self.budget_usd == AMPLE_USD

    @property
    def truth(self) -> float:
        """The value of the best configuration that can be had, found by looking at all of them."""
        granted = [
            (kind, count, x)
            for kind in TYPES
            for count in COUNTS
            for x in XS
            if f"{count}*{kind}" not in self.quota and x != self.broken
        ]
        if self.goal == "minimise error":
            return float(min(_error(*one) for one in granted))
        return min(PRICES[kind] * count / 60 for kind, count, x in granted if _error(kind, count, x) <= 2)


def _error(kind: str, count: int, x: int) -> int:
    return (x - 2) ** 2 + (kind == "m3.medium") + (count == 1)


COMMAND = (
    "sleep 0.05; [ {x} = {broken} ] && exit 3; "
    "e=$(( ({x} - 2) * ({x} - 2) + {{cluster.vcpus}} / {{cluster.count}} % 2 + {{cluster.count}} % 2 )); "
    'echo "PRUDENT {{{{\\"error\\": $e}}}}"'
)


class Weather(Troubled):
    """Machines of this computer whose owner is short of them, forgets to answer, takes them back, haggles."""

    def __init__(self, provider: LocalProvider, case: Case, session: int) -> None:
        super().__init__(provider, before=self._before, after=self._after)
        self.local, self.case = provider, case
        self.befell: Counter[str] = Counter()
        self._rng = rng_for(case.seed, "weather", session)
        self._suffered: Counter[tuple[str, int] | str] = Counter()
        self._lock = threading.Lock()

    def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        if f"{order.count}*{order.type}" in self.case.quota:
            self.befell[QUOTA] += 1
            raise LaunchFailed("You may not have so many of these.", QUOTA)
        key = (order.type, order.count)
        if self.case.spot and self._happens(0.3, "price"):
            write_prices(self.local, self.case, 1.0 + float(self._rng.uniform(-0.5, 1.0)))
        if self._happens(0.08, CAPACITY, key):
            raise LaunchFailed("There are none of these now.", CAPACITY)
        if self._happens(0.12, TRANSIENT, key):
            raise LaunchFailed("Try again.", TRANSIENT)
        made = super().launch(order)
        if self._happens(0.12, "error after create", key):
            raise LaunchFailed("The answer was lost.", TRANSIENT)
        if self._happens(0.25, "preemption", key):
            wait_s = float(self._rng.uniform(0.0, 0.4))
            taken = made[int(self._rng.integers(len(made)))]
            threading.Timer(wait_s, self.local.preempt, [taken]).start()
        return made

    def ready(self, instances: Sequence[Instance], timeout_s: float) -> Any:
        if self._happens(0.08, "never ready", (instances[0].type, len(instances))):
            raise LaunchFailed("They did not come up.", TRANSIENT)
        return super().ready(instances, timeout_s)

    def ended_s(self, cluster: str) -> dict[str, float]:
        return self.local.ended_s(cluster)

    def _before(self, call: str, number: int) -> None:
        if call in ("list", "terminate") and self._happens(0.08, f"{call} failed", call):
            raise RunFailed("The service is not available; try again.")

    def _after(self, call: str, number: int) -> None:
        if call == "terminate" and self._happens(0.08, "answer to terminate lost", call):
            raise RunFailed("The service did not answer in time; try again.")

    def _happens(self, share: float, what: str, key: tuple[str, int] | str | None = None) -> bool:
        with self._lock:
            if self._rng.random() >= share or (key is not None and self._suffered[key] >= TROUBLES):
                return False
            if key is not None:
                self._suffered[key] += 1
            self.befell[what] += 1
            return True


def write_prices(provider: LocalProvider, case: Case, factor: float = 1.0) -> None:
    """A price list, read anew at the next question."""
    rows = [f"{kind},{price * factor},{case.minimum_s}" for kind, price in PRICES.items()]
    path = provider._catalog_path
    assert path is not None
    fresh = path.with_suffix(f".{threading.get_ident()}")
    fresh.write_text("\n".join(["name,price_usd_per_h,minimum_s", *rows]) + "\n")
    os.replace(fresh, path)
    provider.__dict__.pop("_catalog", None)


class Guard:
    """Looks at the money of a study, at every event and all the time between."""

    def __init__(self) -> None:
        self.study: Study | None = None
        self.most = 0.0
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()

    def watch(self, event: object, study: Study) -> None:
        self.study = study
        self._look()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(0.003):
            self._look()

    def _look(self) -> None:
        if self.study is not None:
            # In this order: what is settled in between is counted in neither, never twice.
            ledger = self.study.ledger
            spent_usd = ledger.spent_usd
            self.most = max(self.most, spent_usd + ledger.reserved_usd)
            self.looks += 1


def provider_in(folder: Path) -> LocalProvider:
    return LocalProvider(folder / "home", folder / "prices.csv")


def job_of(case: Case, folder: Path, session: int) -> tuple[ClusterCommandJob, Weather]:
    provider = provider_in(folder)
    if session == 0 and not (folder / "prices.csv").exists():
        write_prices(provider, case)
    weather = Weather(provider, case, session)
    catalog = Catalog.load(folder / "prices.csv")
    cluster = MachineParameter("cluster", TYPES, COUNTS, catalog)
    job = ClusterCommandJob(
        COMMAND.format(x="{x}", broken=case.broken),
        Space([cluster, parse_parameter("x", list(XS))]),
        weather,  # type: ignore[arg-type]
        ["error"],
        register=LeaseRegister(folder / "home"),
        directory=folder / "job",
        logs=folder / "logs",
        grace_s=0.5,
        lease_s=60.0,
        spot=case.spot,
        name=f"soak-{case.seed}",
    )
    return job, weather


def session(case: Case, folder: Path, number: int) -> None:
    """One process of a study: from where the last one was killed, to its own end."""
    journal = folder / "journal.jsonl"
    job, weather = job_of(case, folder, number)
    resumes = journal.exists()
    if resumes:
        job.reap()
    guard = Guard()
    options: dict[str, Any] = {"journal": journal, "parallel": case.parallel, "seed": case.seed}
    try:
        result = tune(
            job, case.goal, case.budget_usd, case.strategy, resume=resumes, watch=guard.watch, **options
        )
    finally:
        guard.close()
    calm = job_of(case, folder, number)[0]
    calm.reap()
    again = tune(
        calm, case.goal, case.budget_usd, case.strategy, resume=True, max_trials=len(result.trials), **options
    )
    said = {
        "best": None if result.best is None else result.best.values[result.goal.measure],
        "same": again.best == result.best and again.trials == result.trials,
        "spent_usd": result.spent_usd,
        "again_usd": again.spent_usd,
        "most_usd": guard.most,
        "looks": guard.looks,
        "trials": len(result.trials),
        "befell": weather.befell,
    }
    (folder / "answer.json").write_text(json.dumps(said))


def carriers(clusters: Sequence[str]) -> list[str]:
    """Processes of these clusters that live on."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = environ.read_bytes()
        except OSError:
            continue
        found += [environ.parent.name for cluster in clusters if cluster.encode() in text]
    return found


def study(case: Case, folder: Path) -> dict[str, Any]:
    """A whole study, with its deaths; answers what happened, or says which promise was broken."""
    (folder / "job").mkdir()
    with metered(folder / "home", folder / "meter.jsonl"):
        deaths, broken = _sessions(case, folder)
    happened = json.loads((folder / "answer.json").read_text()) if not broken else {}
    if happened:
        broken += _checked(case, folder, happened)
    return {"case": asdict(case), "deaths": deaths, "broken": broken, **happened}


def _sessions(case: Case, folder: Path) -> tuple[int, list[str]]:
    """How many were killed, and what was broken."""
    broken: list[str] = []
    for number, kill_at in enumerate((*case.kills, "")):
        code = forked(lambda at=kill_at, now=number: _one(case, folder, now, at))  # type: ignore[misc]
        broken += _left_behind(folder)
        if code == -signal.SIGKILL:
            continue
        if code != 0:
            broken.append(f"session {number} ended with {code}: {(folder / 'trouble').read_text()}")
        return number, broken
    return len(case.kills) + 1, broken


def _one(case: Case, folder: Path, number: int, kill_at: str) -> None:
    os.environ[KILL_AT] = kill_at
    try:
        session(case, folder, number)
    except BaseException:
        (folder / "trouble").write_text(traceback.format_exc())
        raise


def _left_behind(folder: Path) -> list[str]:
    """After one round of the reaper there is nothing left, whatever the session has done or suffered."""
    register, provider = LeaseRegister(folder / "home"), provider_in(folder)
    done = reap(register, [provider], time.time())
    leases = register.leases()
    said = [f"the reaper: {complaint}" for complaint in done.complaints]
    said += [f"orphan {one.id}" for one in provider.list()]
    said += [f"{lease.cluster} is {lease.state}" for lease in leases if lease.state != RELEASED]
    end_s = time.monotonic() + 60
    while (living := carriers([lease.cluster for lease in leases])) and time.monotonic() < end_s:
        time.sleep(0.05)  # what was killed is gone in a moment, longer on a busy computer
    return said + [f"processes {living} live on"] * bool(living)


def _checked(case: Case, folder: Path, happened: dict[str, Any]) -> list[str]:
    bill_usd = sum(lease.cost_usd(0.0) for lease in LeaseRegister(folder / "home").leases())
    happened["bill_usd"] = bill_usd
    paid = happened["paid_usd"] = paid_usd(folder / "meter.jsonl")
    second_usd = case.parallel * max(COUNTS) * max(PRICES.values()) * (1 + case.spot) / 3600
    # Who is killed between two machines of one order cannot know that the second never came: it is counted.
    uncertain_usd = sum("launch.partial" in place for place in case.kills) * 60 * second_usd
    spent_usd, budget_usd = happened["spent_usd"], case.budget_usd
    facts = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    told = [fact["trial"]["number"] for fact in facts if fact.get("fact") == "told"]
    promises = {
        f"spent and reserved {happened['most_usd']} of {budget_usd}": happened["most_usd"]
        <= budget_usd + ROUNDING_USD,
        f"spent {spent_usd}, {happened['again_usd']} when taken up again": happened["again_usd"] == spent_usd,
        f"the machines cost {bill_usd}, {spent_usd} of {budget_usd} were charged": abs(bill_usd - spent_usd)
        <= 1e-6,
        f"by a meter of their own they cost {paid}, by their leases {bill_usd}": abs(paid - bill_usd)
        <= max(0.01 * paid, second_usd) + uncertain_usd,
        # Billed by the second, a machine that takes longer to end than any before costs that; it is counted.
        f"the machines cost {bill_usd} of a budget of {budget_usd}": bill_usd <= budget_usd + 1e-6
        or case.minimum_s == 0,
        f"trials paid twice: {told}": len(told) == len(set(told)),
        "taken up again, it has another answer": happened["same"],
        f"the best is {happened['best']}, the truth {case.truth}": not case.ample
        or (happened["best"] is not None and abs(happened["best"] - case.truth) < 1e-12),
    }
    return [promise for promise, kept in promises.items() if not kept]


def forked(work: Callable[[], None]) -> int:
    """The exit code of some work in a process of its own; minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1])


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:  # noqa: BLE001  whatever it was, this process ends here
        os._exit(1)
    os._exit(0)


def soak(seeds: Sequence[int], at_once: int) -> list[dict[str, Any]]:
    """All studies; each has an overseer that is a process without threads, so that it may fork."""
    root = Path(tempfile.mkdtemp(prefix="prudent-soak-"))
    try:
        running: set[int] = set()
        for seed in seeds:
            if len(running) >= at_once:
                running.discard(os.wait()[0])
            running.add(fork(lambda now=seed: _overseen(now, root)))  # type: ignore[misc]
        while running:
            running.discard(os.wait()[0])
        return [json.loads((root / f"{seed}.json").read_text()) for seed in seeds]
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _overseen(seed: int, root: Path) -> None:
    case, folder = Case.draw(seed), root / str(seed)
    folder.mkdir()
    try:
        happened = study(case, folder)
    except BaseException:  # noqa: BLE001  told with the rest
        happened = {"case": asdict(case), "deaths": 0, "broken": [traceback.format_exc()]}
    (root / f"{seed}.json").write_text(json.dumps(happened))


def summary(happened: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What befell all studies together, and what was broken."""
    befell: Counter[str] = Counter()
    for one in happened:
        befell.update(one.get("befell", {}))
    over = [max(one["bill_usd"] - one["case"]["budget_usd"], 0.0) for one in happened if "bill_usd" in one]
    return {
        "studies": len(happened),
        "trials": sum(one.get("trials", 0) for one in happened),
        "killed": sum(one["deaths"] for one in happened),
        "resumed": sum(one["deaths"] > 0 for one in happened),
        "looks_at_the_money": sum(one.get("looks", 0) for one in happened),
        "befell": dict(sorted(befell.items())),
        "bill_over_budget": sum(usd > 1e-6 for usd in over),
        "most_over_budget_usd": max(over, default=0.0),
        "broken": {one["case"]["seed"]: one["broken"] for one in happened if one["broken"]},
    }


if __name__ == "__main__":
    first, count, together = (int(word) for word in sys.argv[1:])
    seen = summary(soak(range(first, first + count), together))
    json.dump(seen, sys.stdout, indent=1)
    sys.exit(bool(seen["broken"]))
