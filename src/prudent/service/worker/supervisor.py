"""Workers of a service on its own machine: started with it, again when they die, and ended with it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time

from prudent.core.processes import HELPER_NICE, lower_session_priority
from prudent.service.settings import Settings, environment_of

_log = logging.getLogger("prudent.crew")
_LEAST_S, _MOST_S = 0.5, 30.0


class WorkerSupervisor:
    """Keeps `size` workers running, each a process."""

    def __init__(self, settings: Settings, size: int) -> None:
        self._settings, self._size = settings, size
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self) -> None:
        self._processes = [self._begin() for _ in range(self._size)]
        if self._size:
            self._thread.start()

    def stop(self) -> None:
        """Let them drain: no new work, what runs ends or is handed over."""
        self._stop.set()
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        until_s = time.monotonic() + self._settings.grace_s + 30.0
        for process in self._processes:
            try:
                process.wait(max(until_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "prudent.cli.main", "worker", "--attached", str(os.getpid())]
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment_of(self._settings)},
            stdin=subprocess.DEVNULL,
            stdout=2,  # what its libraries print is for the log
            start_new_session=True,  # Ctrl-C is for the service, which then lets workers drain
        )
        level = min(HELPER_NICE, self._settings.nice)
        lower_session_priority(process.pid, level)
        os.setpriority(os.PRIO_PROCESS, process.pid, max(level, os.nice(0)))
        return process

    def _watch(self) -> None:
        wait_s = _LEAST_S
        while not self._stop.wait(wait_s):
            dead = [number for number, process in enumerate(self._processes) if process.poll() is not None]
            # One that dies at once, again and again, is started ever more slowly.
            wait_s = min(wait_s * 2, _MOST_S) if dead else _LEAST_S
            for number in dead:
                _log.warning("A worker ended (%s) and is started again", self._processes[number].returncode)
                if not self._stop.is_set():
                    self._processes[number] = self._begin()
