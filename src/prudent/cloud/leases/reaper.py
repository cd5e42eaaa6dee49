"""The reaper: ends machines that nobody is responsible for any more.

Machines of a lease that is over, of a run that is gone, and, by their tags, those that are in no
record at all. It may run at any time, anywhere the register can be read, and twice at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prudent.cloud.leases.lease import RELEASED, WANTED, Lease, LeasedMachine
from prudent.cloud.leases.register import KEPT_S, LeaseRegister
from prudent.cloud.providers.provider import Instance, Provider, ReportsEnds
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import PrudentError

GRACE_S = 120.0
"""A machine without a record is left alone for so long: who launches it may live where we cannot look."""

_LATELY_S = 24 * 3600.0
"""Machines of a lease that was released longer ago than this have been ended by their own switch."""


@dataclass(frozen=True)
class EndedMachine:
    """A machine that the reaper has ended (or would), why, and what it has cost."""

    instance: Instance
    why: str
    cost_usd: float


@dataclass(frozen=True)
class ReaperReport:
    """What a round of the reaper did; `complaints` are about what it could not do."""

    ended: tuple[EndedMachine, ...] = ()
    released: tuple[Lease, ...] = ()
    complaints: tuple[str, ...] = ()


def reap(
    register: LeaseRegister,
    providers: Iterable[Provider],
    now_s: float,
    grace_s: float = GRACE_S,
    dry_run: bool = False,
    abandoned: bool = False,
) -> ReaperReport:
    """End what has an expired lease, no live run, or no record; release the leases of what is gone.

    One provider in trouble does not keep the others waiting: it is reported, and its leases stay as
    they are until a later round. With `dry_run` nothing is ended or written. `abandoned`: the caller knows
    that all holders are gone, where the reaper itself cannot find that out.
    """
    leases, complaints = register.survey()
    clock, said = _clock(now_s), list(complaints)
    ended: list[EndedMachine] = []
    released: list[Lease] = []
    seen: dict[str, dict[str, Instance]] = defaultdict(dict)
    gone_s: dict[str, float] = {}
    for provider in _distinct(providers):
        own = [lease for lease in leases if _at(lease, provider)]
        try:
            rounds = _ProviderRound(
                register, provider, now_s, grace_s, dry_run, abandoned, seen, gone_s, clock
            )
            ended += rounds.end()
            released += rounds.release(own)
            said += rounds.complaints
        except (PrudentError, OSError) as error:
            said.append(f"{provider.name}: {error}")
    if not dry_run:
        register.forget(now_s - KEPT_S)
    return ReaperReport(tuple(ended), tuple(released), tuple(said))


def reap_all(
    register: LeaseRegister,
    now_s: float,
    also: Iterable[Provider] = (),
    grace_s: float = GRACE_S,
    dry_run: bool = False,
    abandoned: bool = False,
) -> ReaperReport:
    """`reap` at every place that the register knows of, and those in `also`."""
    providers, complaints = known_providers(register, now_s, also)
    done = reap(register, providers, now_s, grace_s, dry_run, abandoned)
    return replace(done, complaints=(*complaints, *done.complaints))


def known_providers(
    register: LeaseRegister, now_s: float, also: Iterable[Provider] = ()
) -> tuple[Sequence[Provider], tuple[str, ...]]:
    """A provider for each place where the register has machines, or had some lately; and complaints.

    This computer is always one of them, since looking there costs nothing.
    """
    leases = register.leases()
    held = [lease.settings for lease in leases if lease.state != RELEASED]
    lately = [lease.settings for lease in leases if (lease.released_s or 0.0) > now_s - _LATELY_S]
    found, complaints = list(also), []
    for where in _unique([{"local": ""}, *held, *lately]):
        try:
            found.append(provider_of(dict(where), register.home, Path("/")))
        except PrudentError as error:
            if where in held:  # of a place without leases nothing is expected any more
                complaints.append(f"{', '.join(where)}: {error}")
    return _distinct(found), tuple(complaints)


@dataclass
class _ProviderRound:
    """One provider's share of the work."""

    register: LeaseRegister
    provider: Provider
    now_s: float
    grace_s: float
    dry_run: bool
    abandoned: bool
    seen: dict[str, dict[str, Instance]]
    """Every machine of each cluster, by its id, of all rounds: two providers may know the same ones."""
    gone_s: dict[str, float]
    """When the machines of a cluster were gone that were ended here."""
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self.complaints: list[str] = []
        self._found: dict[str, list[Instance]] = defaultdict(list)
        for one in self.provider.list():
            if one.owner == self.register.owner and one.id not in self.seen[one.cluster]:
                self._found[one.cluster].append(one)
                self.seen[one.cluster][one.id] = one

    def end(self) -> list[EndedMachine]:
        """End the machines that should not be there, cluster by cluster."""
        ended = []
        for cluster, machines in self._found.items():
            try:
                why = self._why(cluster, machines)
                if why is None:
                    continue
                if not self.dry_run:
                    self.provider.terminate(machines)
                    self.gone_s[cluster] = self.clock()
            except (PrudentError, OSError) as error:
                self.complaints.append(f"{self.provider.name}: {cluster} could not be ended: {error}")
                continue
            ended += [EndedMachine(one, why, self._cost_usd(one)) for one in machines]
        return ended

    def release(self, leases: Iterable[Lease]) -> list[Lease]:
        """Mark the leases that are over and have no machines left."""
        over = [lease for lease in leases if self._over(lease) and self._matters(lease)]
        if self.dry_run or not over:
            return over
        there = {one.cluster for one in self.provider.list()}
        done = []
        for lease in over:
            if lease.cluster in there:
                self.complaints.append(f"{self.provider.name}: {lease.cluster} is still there; reap again.")
                continue
            found = [LeasedMachine.of(one) for one in self.seen[lease.cluster].values()]
            try:
                done.append(self._release(lease, found))
            except (PrudentError, OSError) as error:
                self.complaints.append(str(error))
        return done

    def _release(self, lease: Lease, found: Sequence[LeasedMachine]) -> Lease:
        why = self._over(lease) or ""
        known = self.provider.ended_s(lease.cluster) if isinstance(self.provider, ReportsEnds) else {}
        if not found and lease.state == WANTED and (known or lease.lease_end_s < self.now_s):
            # Nobody ever saw its machines. Those of which only the end is known, or all if the lease is
            # over, are taken for launched: money that may have been spent is counted as spent.
            ids = sorted(known) or [f"{lease.cluster}-{index}" for index in range(lease.order.count)]
            found = [LeasedMachine(name, lease.wanted_s, lease.price) for name in ids]
        return self.register.release(lease.cluster, self._end_s(lease, known), why, found, known)

    def _end_s(self, lease: Lease, known: Mapping[str, float]) -> float:
        """When its last machine was gone: by its provider, or the moment in which it was ended here.

        If neither is known it has ended by itself: now, or when its lease was over if that is earlier.
        """
        ends_s = [*known.values(), *filter(None, [self.gone_s.get(lease.cluster)])]
        return max(ends_s, default=min(self.now_s, lease.lease_end_s))

    def _matters(self, lease: Lease) -> bool:
        """A released lease matters only when machines of it have turned up after all."""
        return lease.state != RELEASED or bool(self.seen.get(lease.cluster))

    def _why(self, cluster: str, machines: Sequence[Instance]) -> str | None:
        """Why its machines are to be ended, by the record of this moment: it may be newer than the list."""
        try:
            lease = self.register.read(cluster)
        except PrudentError:
            lease = None  # damaged, which was reported; the machines themselves tell when their lease is over
        if lease is not None:
            return self._over(lease)
        if self.now_s >= max(one.lease_end_s for one in machines):
            return "its lease is over"
        youngest_s = max(one.launched_s for one in machines)
        return "it is in no record" if self.now_s - youngest_s > self.grace_s else None

    def _over(self, lease: Lease) -> str | None:
        return lease.over(self.now_s) or ("its run is gone" if self.abandoned else None)

    def _cost_usd(self, one: Instance) -> float:
        return one.price.cost_usd(max(self.now_s - one.launched_s, 0.0))


def _clock(now_s: float) -> Callable[[], float]:
    """A clock that shows `now_s` now."""
    zero_s = now_s - time.monotonic()
    return lambda: zero_s + time.monotonic()


def _at(lease: Lease, provider: Provider) -> bool:
    return lease.provider == provider.name and dict(lease.settings) == provider.settings


def _distinct(providers: Iterable[Provider]) -> list[Provider]:
    """Each place once."""
    known = {tuple(sorted(one.settings.items())): one for one in providers}
    return list(known.values())


def _unique(wheres: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    known = {tuple(sorted(where.items())): where for where in wheres}
    return list(known.values())
