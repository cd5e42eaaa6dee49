"""One activation's command on the worker that stands for its VM."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from prudent.cloud.process_guard import process_guard
from prudent.workflows.execute.work_folder import change_stamps, fingerprints_of

_TAIL_BYTES = 4000
"""So much of the end of a failing command's standard error is kept."""


_GRACE_S = 3.0


# The command begins only after the guard knows its group: if the worker dies before, the pipe breaks.
_START_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh")


_running: dict[int, str] = {}


_stopped: set[str] = set()


_lock = threading.Lock()


@dataclass(frozen=True)
class ActivationCommand:
    """What a worker is asked to do; plain values, because it travels."""

    run: str
    activation: str
    attempt: int
    vm: str
    slot: int
    directory: str
    log: str
    command: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    timeout_s: float | None = None
    sleep_s: float | None = None
    environment: dict[str, str] = field(default_factory=dict)


def run_activation(order: ActivationCommand, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run the command; tells when it begins, answers how it ended. What a command does never raises."""
    tell({"fact": "started", **_who(order), "host": platform.node(), "pid": os.getpid()})
    begun_s = time.monotonic()
    answer: dict[str, Any] = {"fact": "ended", **_who(order), "error": "", "stderr": "", "exit_code": None}
    if order.sleep_s is not None:
        time.sleep(order.sleep_s)
    else:
        answer |= _run(order)
    answer["took_s"] = answer.get("took_s", time.monotonic() - begun_s)
    return answer | {"outcome": "failed" if answer["error"] else "done"}


def stop_run(run: str) -> None:
    """End every command of a run on this worker, and let none begin that is still on its way."""
    with _lock:
        _stopped.add(run)
        groups = [group for group, of in _running.items() if of == run]
    for group in groups:
        _signal(group, signal.SIGKILL)


def _who(order: ActivationCommand) -> dict[str, Any]:
    return {
        "activation": order.activation,
        "vm": order.vm,
        "slot": order.slot,
        "attempt": order.attempt,
    }


def _run(order: ActivationCommand) -> dict[str, Any]:
    try:
        inputs = fingerprints_of(order.directory, order.inputs)
        lost = [name for name in order.inputs if name not in inputs]
        if lost:
            return {"error": f'its input "{lost[0]}" is not in {order.directory} on VM {order.vm}'}
        for name in order.outputs:
            Path(order.directory, name).parent.mkdir(parents=True, exist_ok=True)
        before = change_stamps(order.directory, order.outputs)
        begun_s = time.monotonic()
        code, error = _supervise(order)
        took_s = time.monotonic() - begun_s
    except OSError as problem:
        return {"error": f"it could not be started ({problem})"}
    answer = {"exit_code": code, "took_s": took_s, "error": error, "stderr": ""}
    if not error and code != 0:
        answer["error"] = _ended(code, order.command[0])
    if answer["error"]:
        return answer | {"stderr": _tail(Path(f"{order.log}.err"))}
    return answer | {"inputs": inputs, **_written(order, before)}


def _written(order: ActivationCommand, before: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """The outputs it declared, or which of them it did not write."""
    after = change_stamps(order.directory, order.outputs)
    for name in order.outputs:
        if name not in after:
            return {"error": f'it ended well, but did not write its output "{name}"'}
        if name not in order.kept and before.get(name) == after[name]:
            return {"error": f'it ended well, but left the old output "{name}" as it was'}
    return {"outputs": fingerprints_of(order.directory, order.outputs)}


def _supervise(order: ActivationCommand) -> tuple[int, str]:
    """The exit code, and why it was ended if we did it."""
    environment = {
        **os.environ,
        "PRUDENT_ACTIVATION": order.activation,
        "PRUDENT_VM": order.vm,
        "PRUDENT_SLOT": str(order.slot),
        **order.environment,
    }
    Path(order.log).parent.mkdir(parents=True, exist_ok=True)
    with open(f"{order.log}.out", "wb") as out, open(f"{order.log}.err", "wb") as err:
        process = _begin(order, environment, out, err)
        try:
            return _wait(process, order)
        finally:
            _signal(process.pid, signal.SIGKILL)  # what it left behind in its group
            process.wait()
            with _lock:
                _running.pop(process.pid, None)
            process_guard().forget(process.pid)


def _begin(
    order: ActivationCommand, environment: dict[str, str], out: IO[bytes], err: IO[bytes]
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*_START_GATE, *order.command],
        cwd=order.directory,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=err,
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdin is not None
    process_guard().watch(process.pid)
    with _lock:
        _running[process.pid] = order.run
        may_begin = order.run not in _stopped
    with process.stdin as gate:
        if may_begin:
            gate.write(b"go\n")
    return process


def _wait(process: subprocess.Popen[bytes], order: ActivationCommand) -> tuple[int, str]:
    try:
        code = process.wait(order.timeout_s)
    except subprocess.TimeoutExpired:
        _signal(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            _signal(process.pid, signal.SIGKILL)
        return process.wait(), f"it was ended after {order.timeout_s:g} s, the longest it may take"
    with _lock:
        stopped = order.run in _stopped
    return code, "the run was stopped" if stopped and code != 0 else ""


def _ended(code: int, program: str) -> str:
    if code < 0:
        return f"it was ended by signal {-code} ({signal.strsignal(-code)})"
    if code in (126, 127):
        return f'it ended with exit code {code}: the program "{program}" is not there, or may not be run'
    return f"it ended with exit code {code}"


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
