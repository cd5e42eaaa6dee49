"""The guard process: commands must not outlive the process that started them, however it ends.

A study or a worker that is killed cannot clean up: its commands would go on, cost money that nobody counts
and write the same files as their repetitions. So each has one small guard process, which is told of every
command: its process group, or a word in its environment (a cookie) that all its descendants carry. When the
pipe from its owner breaks it kills those that are left, and writes down when. It also kills a command at
a given moment, however busy its owner is then.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from pathlib import Path

from prudent.cloud.processes import ProcessIdentity

_PROGRAM = """
import os, select, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
groups, cookies, due_s, text = set(), {}, {}, b""

def carries(pid, wanted):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read()
        return any(cookie in words for cookie in wanted)
    except OSError:
        return False

def kill(send, number):
    try:
        send(number, signal.SIGKILL)
    except OSError:
        pass

def kill_carriers(wanted, patience_s):
    quiet, until_s = 0, time.monotonic() + patience_s
    while wanted and quiet < 2 and time.monotonic() < until_s:  # what is killed may have started more
        found = [int(name) for name in os.listdir("/proc") if name.isdigit() and carries(name, wanted)]
        for pid in found:
            kill(os.kill, pid)
        quiet = 0 if found else quiet + 1
        time.sleep(0.02)

def hear(sign, kind, name, *note):
    if kind == "group":
        (groups.add if sign == "+" else groups.discard)(int(name))
    elif sign == "+":
        cookies[name.encode()] = bytes.fromhex("".join(note))
    elif sign == "-":
        cookies.pop(name.encode(), None)
        due_s.pop(name.encode(), None)
    elif name.encode() in cookies:
        due_s[name.encode()] = float(*note)

while True:
    left_s = max(min(due_s.values()) - time.monotonic(), 0.0) if due_s else None
    if select.select([0], [], [], left_s)[0]:
        heard = os.read(0, 65536)
        if not heard:
            break
        *lines, text = (text + heard).split(b"\\n")
        for line in lines:
            hear(*line.decode().split())
    late = [cookie for cookie, moment_s in due_s.items() if moment_s <= time.monotonic()]
    for cookie in late:
        del due_s[cookie]
    kill_carriers(late, 1.0)

for group in groups:
    kill(os.killpg, group)
kill_carriers(cookies, 5.0)
for note in filter(None, cookies.values()):
    try:
        with open(note, "w") as file:
            file.write(str(time.time()))
    except OSError:
        pass
"""


class ProcessGuard:
    """The guard of this process; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, Path | None] = {}
        self._due_s: dict[str, float] = {}
        # A session of its own: Ctrl-C at the terminal must not end the guard before its owner.
        self._popen = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    @property
    def identity(self) -> ProcessIdentity | None:
        """Its process, by which others know whether it is still at work."""
        return ProcessIdentity.of(self._popen.pid)

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def watch(self, group: int) -> None:
        """Kill this process group if this process ends before `forget`."""
        self._tell(f"group {group}", watched=True)

    def forget(self, group: int) -> None:
        """The group has ended by itself; its number may be given to others."""
        self._tell(f"group {group}", watched=False)

    def watch_cookie(self, cookie: str, note: Path | None = None) -> None:
        """Kill whoever has this word in its environment if this process ends before `forget_cookie`.

        It may be called before anything is started. `note` is the file for the moment in which all were gone.
        """
        self._tell(f"cookie {cookie}", watched=True, note=note)

    def forget_cookie(self, cookie: str) -> None:
        self._due_s.pop(cookie, None)
        self._tell(f"cookie {cookie}", watched=False)

    def kill_at(self, cookie: str, moment_s: float) -> None:
        """Kill the carriers of a watched cookie at this moment (monotonic clock); a later call moves it."""
        self._due_s[cookie] = moment_s
        with self._lock:
            self._write(f"@ cookie {cookie} {moment_s!r}\n")

    def follow(self, other: ProcessGuard) -> None:
        """Watch what another guard watched that has ended."""
        for who, note in dict(other._watched).items():
            self._tell(who, watched=True, note=note)
        for cookie, moment_s in dict(other._due_s).items():
            self.kill_at(cookie, moment_s)

    def close(self) -> None:
        """End the guard; groups still watched are killed."""
        assert self._popen.stdin is not None
        with self._lock:
            self._popen.stdin.close()
        self._popen.wait()

    def _tell(self, who: str, watched: bool, note: Path | None = None) -> None:
        with self._lock:
            if watched:
                self._watched[who] = note
            else:
                self._watched.pop(who, None)
            said = f"{'+' if watched else '-'} {who} {'' if note is None else os.fsencode(note).hex()}\n"
            self._write(said)

    def _write(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line.encode())


_guards: dict[int, ProcessGuard] = {}
_starting = threading.Lock()


def process_guard() -> ProcessGuard:
    """This process's guard, started when first asked for; a fork gets its own.

    All threads share one: a second guard would be dropped, and would then kill what it watches.
    """
    with _starting:
        found = _guards.get(os.getpid())
        if found is not None and found.alive:
            return found
        made = _guards[os.getpid()] = ProcessGuard()
        atexit.register(_end, os.getpid(), made)
        if found is not None:
            made.follow(found)
        return made


def _end(owner: int, made: ProcessGuard) -> None:
    if os.getpid() == owner:  # a fork that ends must not end its parent's
        made.close()
