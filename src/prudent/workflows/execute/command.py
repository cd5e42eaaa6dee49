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
"""How much of the end of a failing command's standard error is kept."""


_GRACE_S = 3.0


# The command begins only after the guard knows its group: if the worker dies before, the pipe breaks.
_START_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh")


_running: dict[int, str] = {}


_stopped: set[str] = set()


_lock = threading.Lock()


@dataclass(frozen=True)
class ActivationRequest:
    """What a worker is asked to run; plain values, because it is sent over the network."""

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


def run_activation(request: ActivationRequest, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run the command; calls `tell` when it starts, returns how it ended. A failing command never raises."""
    tell({"fact": "started", **_who(request), "host": platform.node(), "pid": os.getpid()})
    begun_s = time.monotonic()
    answer: dict[str, Any] = {"fact": "ended", **_who(request), "error": "", "stderr": "", "exit_code": None}
    if request.sleep_s is not None:
        time.sleep(request.sleep_s)
    else:
        answer |= _run(request)
    answer["took_s"] = answer.get("took_s", time.monotonic() - begun_s)
    return answer | {"outcome": "failed" if answer["error"] else "done"}


def stop_run(run: str) -> None:
    """End every command of a run on this worker, and let none begin that is still on its way."""
    with _lock:
        _stopped.add(run)
        groups = [group for group, of in _running.items() if of == run]
    for group in groups:
        _signal(group, signal.SIGKILL)


def _who(request: ActivationRequest) -> dict[str, Any]:
    return {
        "activation": request.activation,
        "vm": request.vm,
        "slot": request.slot,
        "attempt": request.attempt,
    }


def _run(request: ActivationRequest) -> dict[str, Any]:
    try:
        inputs = fingerprints_of(request.directory, request.inputs)
        lost = [name for name in request.inputs if name not in inputs]
        if lost:
            return {"error": f'its input "{lost[0]}" is not in {request.directory} on VM {request.vm}'}
        for name in request.outputs:
            Path(request.directory, name).parent.mkdir(parents=True, exist_ok=True)
        before = change_stamps(request.directory, request.outputs)
        begun_s = time.monotonic()
        code, error = _supervise(request)
        took_s = time.monotonic() - begun_s
    except OSError as problem:
        return {"error": f"it could not be started ({problem})"}
    answer = {"exit_code": code, "took_s": took_s, "error": error, "stderr": ""}
    if not error and code != 0:
        answer["error"] = _why_ended(code, request.command[0])
    if answer["error"]:
        return answer | {"stderr": _tail(Path(f"{request.log}.err"))}
    return answer | {"inputs": inputs, **_written(request, before)}


def _written(request: ActivationRequest, before: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Fingerprints of the declared outputs, or an error about one that was not written."""
    after = change_stamps(request.directory, request.outputs)
    for name in request.outputs:
        if name not in after:
            return {"error": f'it ended well, but did not write its output "{name}"'}
        if name not in request.kept and before.get(name) == after[name]:
            return {"error": f'it ended well, but left the old output "{name}" as it was'}
    return {"outputs": fingerprints_of(request.directory, request.outputs)}


def _supervise(request: ActivationRequest) -> tuple[int, str]:
    """The exit code, and why it was ended if we did it."""
    environment = {
        **os.environ,
        "PRUDENT_ACTIVATION": request.activation,
        "PRUDENT_VM": request.vm,
        "PRUDENT_SLOT": str(request.slot),
        **request.environment,
    }
    Path(request.log).parent.mkdir(parents=True, exist_ok=True)
    with open(f"{request.log}.out", "wb") as out, open(f"{request.log}.err", "wb") as err:
        process = _begin(request, environment, out, err)
        try:
            return _wait(process, request)
        finally:
            _signal(process.pid, signal.SIGKILL)  # what it left behind in its group
            process.wait()
            with _lock:
                _running.pop(process.pid, None)
            process_guard().forget(process.pid)


def _begin(
    request: ActivationRequest, environment: dict[str, str], out: IO[bytes], err: IO[bytes]
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*_START_GATE, *request.command],
        cwd=request.directory,
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
        _running[process.pid] = request.run
        may_begin = request.run not in _stopped
    with process.stdin as gate:
        if may_begin:
            gate.write(b"go\n")
    return process


def _wait(process: subprocess.Popen[bytes], request: ActivationRequest) -> tuple[int, str]:
    try:
        code = process.wait(request.timeout_s)
    except subprocess.TimeoutExpired:
        _signal(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            _signal(process.pid, signal.SIGKILL)
        return process.wait(), f"it was ended after {request.timeout_s:g} s, the longest it may take"
    with _lock:
        stopped = request.run in _stopped
    return code, "the run was stopped" if stopped and code != 0 else ""


def _why_ended(code: int, program: str) -> str:
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
