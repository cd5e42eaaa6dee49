"""The workers that stand for a plan's VMs: on this machine, or at a Dask scheduler that runs already."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.cloud.clusters.dask_node import scheduler, security_of_run, worker_certificates
from prudent.cloud.leases.lease import Lease
from prudent.core.errors import BadInput, RunFailed
from prudent.workflows.execute.command import ActivationRequest, run_activation, stop_run
from prudent.workflows.execute.local_workers import LOOPBACK, READY
from prudent.workflows.fleet import Fleet

_START_S = 60.0


_ANSWER_S = 10.0


_SCHEMES = ("", "tcp", "tls")


_PORT = 8786
"""Where a Dask scheduler listens unless told otherwise."""


@dataclass(frozen=True)
class ActivationReport:
    """A worker reports that an activation has started or ended; `fact` is the journal's."""

    fact: dict[str, Any]


@dataclass(frozen=True)
class WorkerLost:
    """The worker of this VM is lost."""

    vm: str


WorkerEvent = ActivationReport | WorkerLost


class VmWorkers:
    """Dask workers by the name of the VM they stand for.

    Reports of workers come through the scheduler as events, in one stream with those about lost workers: an
    end that was reported counts, even if its worker dies right after.
    """

    copies_files = False
    """Whether files are copied between this machine and the workers; otherwise they share a folder."""
    are_rented = False
    """Whether its machines are rented, and cost money until they are given back."""
    poll_s = 0.25
    """The longest wait for an event before the clock is looked at again."""
    ordered_s: float | None = None
    """When its machines were ordered, by `time_s`; None if they were there before."""

    def __init__(self, client: Any, addresses: Mapping[str, str]) -> None:
        self.vms = set(addresses)
        self._client = client
        self._addresses = dict(addresses)
        self._slotted = _with_slots(client)
        self._events: queue.Queue[WorkerEvent] = queue.Queue()
        self._futures: dict[tuple[str, int], Any] = {}
        self._topic = ""

    def time_s(self) -> float:
        """Now, by the clock of these workers."""
        return time.monotonic()

    def listen(self, run: str) -> None:
        """Begin to listen to the workers, before anything is started."""
        self._topic = f"prudent-{run}"
        self._client.subscribe_topic(self._topic, self._on_message)
        self._client.subscribe_topic("all", self._on_scheduler_event)

    def start(self, request: ActivationRequest) -> None:
        """Run an activation on the worker of its VM, and on no other."""
        address = self._addresses[request.vm]
        future = self._client.submit(
            _run_activation,
            request,
            self._topic,
            key=f"prudent-{request.run}-{request.activation}-{request.attempt}",
            workers=[address],
            allow_other_workers=False,
            resources={"slot": 1} if address in self._slotted else None,
            retries=0,
            pure=False,
        )
        self._futures[request.activation, request.attempt] = future
        future.add_done_callback(lambda done: self._on_future_done(done, request))

    def next_event(self, patience_s: float) -> WorkerEvent | None:
        """The next event, or None if there is none for so long; RunFailed if the scheduler is gone."""
        try:
            return self._events.get(timeout=patience_s)
        except queue.Empty:
            if self._client.status != "running":
                raise RunFailed(
                    "The connection to the Dask scheduler was lost; start it again and continue with "
                    "--resume."
                ) from None
            return None

    def forget_attempt(self, activation: str, attempt: int) -> None:
        """Stop waiting for this attempt."""
        future = self._futures.pop((activation, attempt), None)
        if future is not None:
            with contextlib.suppress(Exception):
                future.cancel(force=True)

    def forget_vm(self, vm: str) -> None:
        """Remove a VM whose worker is gone."""
        self.vms.discard(vm)
        self._addresses.pop(vm, None)

    def give_back(self, vm: str, why: str) -> None:
        """Remove a VM that is lost or not needed any more, and stop paying for it."""
        del why
        self.forget_vm(vm)

    def leases(self) -> Mapping[str, Lease]:
        """The leases of its VMs, where they are rented."""
        return {}

    def call(self, vm: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a VM's worker."""
        try:
            future = self._client.submit(function, *arguments, workers=[self._addresses[vm]], pure=False)
            return future.result(timeout=_START_S)
        except Exception as error:
            why = f"{type(error).__name__}: {error}".strip(": ")
            raise RunFailed(f"The worker for VM {vm} does not answer ({why}); start it again.") from error

    def end_run(self, run: str) -> None:
        """End all commands of a run that still run."""
        with contextlib.suppress(Exception):
            self._client.run(stop_run, run, workers=list(self._addresses.values()), on_error="ignore")
        with contextlib.suppress(Exception):
            self._client.cancel(list(self._futures.values()), force=True)

    def stop_listening(self) -> None:
        """Stop listening; otherwise the scheduler complains when the connection closes."""
        with contextlib.suppress(Exception):
            for topic in (self._topic, "all"):
                if topic:
                    self._client.unsubscribe_topic(topic)

    def _on_message(self, event: tuple[float, Any]) -> None:
        self._put_report(json.loads(event[1]))

    def _put_report(self, fact: dict[str, Any]) -> None:
        self._events.put(ActivationReport(fact))

    def _on_scheduler_event(self, event: tuple[float, Any]) -> None:
        said = event[1]
        if isinstance(said, dict) and said.get("action") == "remove-worker":
            for vm, address in self._addresses.items():
                if address == said.get("worker"):
                    self._events.put(WorkerLost(vm))

    def _on_future_done(self, future: Any, request: ActivationRequest) -> None:
        """Report an activation that Dask could not run; the worker reports failures of the command."""
        if future.status != "error":
            return
        error = future.exception()
        why = f"the worker could not run it ({type(error).__name__}: {error})"
        fact = {"fact": "ended", "activation": request.activation, "vm": request.vm, "slot": request.slot}
        fact |= {"attempt": request.attempt, "outcome": "failed", "error": why, "stderr": "", "took_s": 0.0}
        self._put_report(fact)


def _run_activation(request: ActivationRequest, topic: str) -> None:
    """On the worker: run the command and report through the scheduler."""
    from distributed import get_worker

    worker = get_worker()

    def tell(fact: dict[str, Any]) -> None:
        worker.log_event(topic, json.dumps(fact))

    tell(run_activation(request, tell))


def require_dask() -> None:
    """Refuse to run workflows where Dask is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise BadInput('Running workflows needs Dask, which is not installed; install "prudent[workflows]".')


@contextlib.contextmanager
def vm_workers(fleet: Fleet, used: set[str], address: str | None, run: str = "") -> Iterator[VmWorkers]:
    """The workers for the VMs in use: new workers on this machine, or those of the scheduler at `address`."""
    require_dask()
    members = {vm.name: vm.slots for vm in fleet.vms if vm.name in used}
    with _local_workers(members, run) if address is None else _workers_at(members, address) as workers:
        try:
            yield workers
        finally:
            workers.stop_listening()


@contextlib.contextmanager
def _local_workers(members: Mapping[str, int], run: str = "") -> Iterator[VmWorkers]:
    import distributed

    security = security_of_run()
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(run))
        cluster = stack.enter_context(scheduler(scratch, security, LOOPBACK))
        told = {"scheduler": cluster.scheduler_address, "scratch": scratch, "members": dict(members)}
        stack.enter_context(_worker_processes(told | {"certificates": worker_certificates(security)}))
        connection = distributed.Client(cluster, set_as_default=False)
        client = stack.enter_context(connection)
        _wait_for(client, members)
        yield VmWorkers(client, _by_name(client))


@contextlib.contextmanager
def scratch_folder(run: str) -> Iterator[str]:
    """A temporary folder for what Dask writes; not in the run's folder, since Dask locks files."""
    scratch = tempfile.mkdtemp(prefix=_scratch_prefix(run))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def clear_scratch(run: str) -> None:
    """Remove what killed sessions of a run have left here; no session of it may be running."""
    for left in Path(tempfile.gettempdir()).glob(f"{_scratch_prefix(run)}*"):
        shutil.rmtree(left, ignore_errors=True)


def _scratch_prefix(run: str) -> str:
    return f"prudent-{hashlib.sha256(run.encode()).hexdigest()[:16]}-"


@contextlib.contextmanager
def _worker_processes(told: Mapping[str, Any]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "prudent.workflows.execute.local_workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(told) + "\n")
            process.stdin.flush()
        if process.stdout.readline() != READY:
            raise RunFailed("Worker processes could not be started on this machine; see the message above.")
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait()


@contextlib.contextmanager
def _workers_at(members: Mapping[str, int], address: str) -> Iterator[VmWorkers]:
    from distributed import Client

    with _connection(Client, address) as client:
        matched = _matched(_workers(client), members, address)
        _check_install(client, matched)
        yield VmWorkers(client, matched)


@contextlib.contextmanager
def _connection(make: Any, address: str) -> Iterator[Any]:
    try:
        _check_listening(address)  # Dask's own client leaves threads behind when it cannot connect
        _check_certificates(address)
        with _quiet():
            client = make(address, timeout=_ANSWER_S, set_as_default=False)
    except (OSError, ValueError, RuntimeError, TimeoutError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(
            f'No Dask scheduler answers at "{address}" ({why}); start one with `dask scheduler`, correct the '
            "address, or leave it out to use workers on this machine."
        ) from None
    with client:
        yield client


def _check_listening(address: str) -> None:
    """Check that a scheduler listens there; an OSError or a ValueError says why not."""
    scheme, _, place = address.rpartition("://")
    if scheme not in _SCHEMES:
        raise ValueError(f"{scheme} is not how Dask speaks, but tcp or tls")
    host, colon, port = place.rpartition(":")
    if not (colon and port.isdecimal()):
        host, port = place, str(_PORT)
    socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()


def _check_certificates(address: str) -> None:
    """Check that Dask's configuration has the certificate for a TLS scheduler."""
    from distributed import Security

    if address.startswith("tls:") and Security().get_connection_args("client")["ssl_context"] is None:
        raise BadInput(
            f'The scheduler at "{address}" wants a certificate, and the configuration of Dask has none; set '
            "ca-file, client.cert and client.key under distributed.comm.tls there."
        )


def _matched(workers: Mapping[str, Any], members: Mapping[str, int], address: str) -> dict[str, str]:
    """A worker for each VM: the one with its name, else an unnamed one with enough slots."""
    by_name = {str(info["name"]): at for at, info in workers.items()}
    matched = {vm: by_name[vm] for vm in members if vm in by_name}
    free = sorted(
        (at for at in workers if at not in matched.values()), key=lambda at: (workers[at]["nthreads"], at)
    )
    for vm, slots in members.items():
        if vm in matched:
            continue
        fitting = [at for at in free if workers[at]["nthreads"] >= slots]
        if not fitting:
            raise BadInput(
                f"The plan uses {len(members)} VMs, but the scheduler at {address} has {len(workers)} "
                f"workers and none left with {slots} threads for VM {vm}; start more, like "
                f"`dask worker {address} --name {vm} --nthreads {slots}`."
            )
        matched[vm] = fitting[0]
        free.remove(fitting[0])
    return matched


def _check_install(client: Any, matched: Mapping[str, str]) -> None:
    """Check that workers have Prudent: one that cannot import what it is sent would never answer."""
    found = client.run(importlib.util.find_spec, "prudent", workers=list(matched.values()))
    for vm, address in matched.items():
        if found.get(address) is None:
            raise BadInput(f"The worker at {address} (for VM {vm}) has no Prudent; install the same there.")


def _wait_for(client: Any, members: Mapping[str, int]) -> None:
    try:
        client.wait_for_workers(len(members), timeout=_START_S)
    except TimeoutError:
        raise RunFailed(
            f"{len(members)} workers did not start within {_START_S:.0f} s; use a smaller fleet."
        ) from None


def _workers(client: Any) -> dict[str, Any]:
    return dict(client.scheduler_info(n_workers=-1)["workers"])


def _by_name(client: Any) -> dict[str, str]:
    return {str(info["name"]): address for address, info in _workers(client).items()}


def _with_slots(client: Any) -> set[str]:
    return {at for at, info in _workers(client).items() if "slot" in (info.get("resources") or {})}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from logging every attempt to connect; the user gets one sentence instead."""
    import logging

    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 10)
    try:
        yield
    finally:
        logger.setLevel(before)
