"""A cluster for as long as it is needed, and not a second longer."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from prudent.cloud.catalog import cluster_text
from prudent.cloud.leases.lease import Lease, LeasedMachine, LeaseHolder
from prudent.cloud.leases.register import LeaseLost, LeaseRegister
from prudent.cloud.providers.channel import Channel
from prudent.cloud.providers.provider import Instance, LaunchFailed, LaunchOrder, Provider, ReportsEnds
from prudent.core.errors import BadInput, PrudentError, RunFailed
from prudent.core.money import Price
from prudent.core.processes import kill_point

LEASE_S = 300.0
"""How long machines outlive a run that dies where no reaper comes by."""

READY_S = 600.0
_TRIES, _TRY_AGAIN_S = 4, 0.5
_JOIN_S = 5.0


class Rental:
    """Machines of one type under a lease that is renewed until they are released.

        with Rental(provider, "m5.large", count=2, run="study-7", register=register) as cluster:
            cluster.channel(0).run("hostname")
        cluster.cost_usd()

    In steps, to boot one cluster while another is still in use: `launch` (returns when the provider
    has accepted), `wait_ready`, and in any case `release`. All may be called from any thread.

    The lease is renewed every `renew_s`; by default every third of it, so that two attempts may fail.
    """

    def __init__(
        self,
        provider: Provider,
        type_name: str,
        count: int = 1,
        *,
        run: str,
        register: LeaseRegister,
        lease_s: float = LEASE_S,
        renew_s: float | None = None,
        ready_s: float = READY_S,
        spot: bool = False,
        cluster: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if count < 1:
            raise BadInput(f"A cluster cannot have {count} machines: ask for 1 or more.")
        if lease_s <= 0:
            raise BadInput(f"A lease cannot last {lease_s:g} s: give a time above 0.")
        if renew_s is not None and not 0 < renew_s < lease_s:
            raise BadInput(
                f"A lease of {lease_s:g} s cannot be renewed every {renew_s:g} s: "
                "give a time above 0 and below the lease."
            )
        self.provider = provider
        self.register = register
        self.cluster = cluster or f"prudent-{secrets.token_hex(6)}"
        self.lease_s = lease_s
        self.renew_s = lease_s / 3 if renew_s is None else renew_s
        self._ready_s = ready_s
        self._clock = clock
        self._order = LaunchOrder(self.cluster, run, register.owner, type_name, count, 0.0, spot)
        self._lease: Lease | None = None
        self._gone_s: float | None = None
        self._instances: tuple[Instance, ...] = ()
        self._seen: dict[str, Instance] = {}
        self._channels: dict[int, Channel] = {}
        self._lost: str | None = None
        self._released = False
        self._over = threading.Event()
        self._renewing: threading.Thread | None = None
        self._safe_until_s = 0.0
        self._lock = threading.RLock()
        self._lease_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Rental {self.cluster}: {self.text} at {self.provider.name}>"

    # What it is

    @property
    def text(self) -> str:
        """The cluster as people write it: `2*m5.large`."""
        return cluster_text(self._order.count, self._order.type)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """Its machines, the first one first; addresses are known when it is ready."""
        return self._instances

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(one.address for one in self._instances)

    @property
    def ordered(self) -> bool:
        """Whether it was launched, well or not."""
        return self._lease is not None

    @property
    def ended(self) -> bool:
        """Whether nothing is left to end: it was never launched, or its release is done."""
        return self._lease is None or self._released

    @property
    def lease(self) -> Lease:
        """What the register says of it, as far as this process knows."""
        if self._lease is None:
            raise RunFailed(f"{self.cluster} was not launched yet; call launch() first.")
        return self._lease

    @property
    def record(self) -> Lease | None:
        """The same, for a meter: None while nothing was ordered.

        From the moment the provider accepts their end, machines cost nothing more, although it is still to
        be seen whether they are gone.
        """
        lease, gone_s = self._lease, self._gone_s
        if lease is None or lease.released_s is not None or gone_s is None:
            return lease
        return replace(lease, released_s=gone_s)

    @property
    def price(self) -> Price:
        """What all machines together cost, at the launch."""
        price = self._instances[0].price if self._instances else self.lease.price
        return price.times(self._order.count)

    def cost_usd(self, now_s: float | None = None) -> float:
        """What it has cost, so far or in all: each machine from its launch, boot included."""
        lease = self.record
        return 0.0 if lease is None else lease.cost_usd(self._clock() if now_s is None else now_s)

    @property
    def lost(self) -> str | None:
        """Why the cluster cannot be relied on any more; None while it can."""
        return self._lost

    def preempted(self) -> str | None:
        """Why one of its machines was or will be taken away by its owner; None if none is.

        A machine that is gone costs nothing from the moment that its provider names.
        """
        for one in self._instances:
            if why := self.provider.preempted(one):
                self._note_gone()
                return why
        return None

    def channel(self, index: int = 0) -> Channel:
        """The way into one of its machines; opened once, closed with the cluster."""
        with self._lock:
            if self._over.is_set() or not self._instances:
                raise RunFailed(f"{self.cluster} has no machines now; launch it first.")
            if index in self._channels:
                return self._channels[index]
            instance = self._instances[index]
        # Outside the lock: to log in takes its time, and several machines are entered at once.
        opened = self.provider.channel(instance)
        with self._lock:
            kept = None if self._over.is_set() else self._channels.setdefault(index, opened)
        if kept is not opened:
            opened.close()
        if kept is None:
            raise RunFailed(f"{self.cluster} was released meanwhile; launch another one.")
        return kept

    # Its life

    def launch(self, most_usd_per_h: float | None = None) -> Self:
        """Order the machines, with the lease on disk before; whatever goes wrong, none is left.

        At a price above `most_usd_per_h`, each, none is launched: `LaunchFailed` of the kind "price".
        """
        if self._lease is not None:
            raise BadInput(f"{self.cluster} was launched already; make another Rental.")
        offer = self.provider.offer(self._order.type, self._order.spot)
        kill_point("launch.decided")
        now_s = self._clock()
        order = replace(self._order, lease_end_s=now_s + self.lease_s, most_usd_per_h=most_usd_per_h)
        self._order = order
        wanted = Lease(
            order=order,
            provider=self.provider.name,
            settings=self.provider.settings,
            holder=LeaseHolder.here(),
            wanted_s=now_s,
            lease_end_s=order.lease_end_s,
            price=offer.price,
        )
        self._safe_until_s = order.lease_end_s
        self._lease = self.register.add(wanted)
        try:
            kill_point("launch.recorded")
            self._renewing = threading.Thread(target=self._renew_for_ever, name=self.cluster, daemon=True)
            self._renewing.start()
            instances = self.provider.launch(order)
            kill_point("launch.accepted")
            self._instances = instances
            with self._lease_lock:
                self._lease = self.register.record_machines(self.cluster, map(LeasedMachine.of, instances))
            kill_point("launch.up")
        except BaseException as error:
            self._release_after(error)
            raise
        return self

    def wait_ready(self) -> Self:
        """Wait until every machine can be used; if they do not come, all are released."""
        try:
            kill_point("ready.waiting")
            self._instances = self.provider.ready(self._instances, self._ready_s)
            kill_point("ready.done")
        except BaseException as error:
            self._release_after(error)
            raise
        return self

    def release(self, why: str = "") -> None:
        """End the machines and the lease. Done twice, the first time counts."""
        with self._lock:
            if self._lease is not None and not self._released:
                self._release(why)
        if self._renewing is not None:
            self._renewing.join(timeout=_JOIN_S)

    def __enter__(self) -> Self:
        return self.launch().wait_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release(kind.__name__ if kind is not None else "")
        except PrudentError as trouble:
            if error is None:
                raise
            error.add_note(str(trouble))  # what went wrong first is what to tell

    def _release(self, why: str) -> None:
        kill_point("release.begun")
        self._over.set()
        for channel in self._channels.values():
            with contextlib.suppress(PrudentError, OSError):
                channel.close()
        self._channels.clear()
        begun_s = self._clock()
        try:
            self._terminate()
        except (PrudentError, OSError):
            self._record_seen()
            raise
        kill_point("release.terminated")
        gone_s, known_s = self._gone_s, self._ends_s()
        assert gone_s is not None
        # What ended because of us is paid until we know; what was taken away before, until its provider says.
        ends_s = {name: end_s for name, end_s in known_s.items() if end_s < begun_s}
        rented = self._rented(known_s)
        with self._lease_lock:
            self._lease = self.lease.ended(gone_s, why, rented, ends_s)
            # The machines are gone; if that cannot be written (a full disk), the reaper writes it later.
            with contextlib.suppress(PrudentError):
                self._lease = self.register.release(self.cluster, gone_s, why, rented, ends_s)
        self._released = True
        kill_point("release.recorded")

    def _release_after(self, error: BaseException) -> None:
        """Release it after an error, even if somebody else released it while it was being launched.

        If that fails too, the first error is the one that is raised, and the reaper does the rest.
        """
        why = str(error) if isinstance(error, LaunchFailed) else type(error).__name__
        with self._lock:
            try:
                self._release(why)
            except (PrudentError, OSError) as trouble:
                error.add_note(str(trouble))

    def _terminate(self) -> None:
        """End all machines of the cluster, then list them again: a launch that failed half-way leaves some.

        A machine that was seen once is remembered even if this fails: it may have cost money.
        """
        self._seen.update((one.id, one) for one in self._instances)
        self._gone_s = None
        troubles = rounds = 0
        while rounds < _TRIES:
            try:
                self.provider.terminate(tuple(self._seen.values()))
                if self._gone_s is None:
                    self._gone_s = self._clock()
                left = [one for one in self.provider.list() if one.cluster == self.cluster]
            except PrudentError:
                troubles += 1
                if troubles == _TRIES:
                    raise
                time.sleep(_TRY_AGAIN_S)
                continue
            if not left:
                return
            self._seen.update((one.id, one) for one in left)
            self._gone_s = None
            rounds += 1
        raise RunFailed(f"{self.cluster} could not be ended; run: prudent clusters reap.")

    def _rented(self, ends_s: Mapping[str, float]) -> list[LeasedMachine]:
        """Its machines; where only the end of one is known, it counts from the order on."""
        lease = self.lease
        known = {*self._seen, *(one.id for one in lease.machines)}
        unseen = [LeasedMachine(name, lease.wanted_s, lease.price) for name in ends_s if name not in known]
        return [*map(LeasedMachine.of, self._seen.values()), *unseen]

    def _record_seen(self) -> None:
        """Machines that could not be ended are paid for until somebody has ended them."""
        machines = [LeasedMachine.of(one) for one in self._seen.values()]
        with self._lease_lock:
            self._lease = self.lease.with_machines(machines)
            if machines:
                with contextlib.suppress(PrudentError):  # the reaper finds them as well
                    self._lease = self.register.record_machines(self.cluster, machines)

    def _ends_s(self) -> Mapping[str, float]:
        """When machines of it were gone, by their ids, as far as the provider knows."""
        if isinstance(self.provider, ReportsEnds):
            with contextlib.suppress(PrudentError, OSError):
                return self.provider.ended_s(self.cluster)
        return {}

    def _note_gone(self) -> None:
        """Record which machines are gone, and since when: nobody pays for them while the others stay."""
        ends_s = self._ends_s()
        with self._lease_lock:
            self._lease = self.lease.with_ends(ends_s)
            with contextlib.suppress(PrudentError):  # written again with the release
                self._lease = self.register.record_ends(self.cluster, ends_s)

    # Its lease

    def _renew_for_ever(self) -> None:
        """Again and again until it is released; sooner after an attempt that failed."""
        wait_s = self.renew_s
        while not self._over.wait(wait_s):
            try:
                self._renew()
                wait_s = self.renew_s
            except LeaseLost as error:
                if not self._over.is_set():
                    self._lost = str(error)
                return
            except Exception as error:  # noqa: BLE001  a provider's trouble must not end the renewing
                wait_s = self.renew_s / 4
                if self._clock() > self._safe_until_s:
                    self._lost = f"The lease of {self.cluster} could not be renewed in time ({error})."
                    return

    def _renew(self) -> None:
        """First in the register, for the reaper; then at the provider, for the switch on each machine."""
        kill_point("renew.due")
        end_s = self._clock() + self.lease_s
        with self._lease_lock:
            self._lease = self.register.renew(self.cluster, end_s)
        kill_point("renew.recorded")
        if self._instances:
            self.provider.renew(self._instances, end_s)
        self._safe_until_s = end_s
        kill_point("renew.done")


# The steps at which a run may die, in the order in which they are passed: the tests kill it at each of them.
# Whoever adds a step that costs money adds its kill point here.
LAUNCH_POINTS = (
    "launch.decided",  # nothing is written yet
    "launch.recorded",  # the lease is on disk, nobody was asked for machines
    "launch.partial",  # inside the provider: some machines are there, others not
    "launch.accepted",  # the provider has said yes, and nobody has written it down
    "launch.up",  # the machines are in the register
)
READY_POINTS = ("ready.waiting", "ready.done")
RENEW_POINTS = ("renew.due", "renew.recorded", "renew.done")
TRIAL_POINTS = ("trial.put", "trial.started", "trial.ended", "trial.fetched")
RELEASE_POINTS = ("release.begun", "release.terminated", "release.recorded")

KILL_POINTS = (*LAUNCH_POINTS, *READY_POINTS, *RENEW_POINTS, *TRIAL_POINTS, *RELEASE_POINTS)
