"""Python that has its packages loaded: a server that forks one process for each program it is asked to run.

Most of what a short `prudent` command needs is the time to import numpy, scipy, numba and Plotly. Tests that
run many commands start this server once and put the folder of its two clients, `prudent` and `python`, first
on the PATH. A program then starts in a fork, with the working folder, environment, arguments and standard
streams of whoever called it; signals and the exit code are passed on.

Programs that go on for long (`prudent serve`, `prudent worker`) and options of the interpreter (`python -m`)
are left to the real interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

PACKET = 1 << 18
LOADED = (
    "scipy.optimize", "scipy.stats", "scipy.linalg", "numba", "sklearn.datasets", "sklearn.ensemble",
    "plotly.graph_objects", "plotly.io", "jinja2", "rich.live", "rich.table", "typer",
    "distributed", "pytest",
    "prudent.cli.app", "prudent.cli.confirm", "prudent.cli.display.study", "prudent.cli.display.study_live",
    "prudent.reports.tuning", "prudent.reports.fractions", "prudent.reports.training",
    "prudent.reports.workflow", "prudent.tuning.tune", "prudent.training.train",
    "prudent.training.models.model", "prudent.workflows.scheduling", "prudent.workflows.execute.runner",
)  # fmt: skip
"""Imported before the first fork, as far as they are installed. With onnxruntime, a fork does not end."""

CLIENT = """\
#!{python} -IS
import array, json, os, signal, socket, sys
program = {program!r}
words = sys.argv[1:]
if {left_to_it}:
    os.execv({real!r}, [{real!r}, *words])
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda got, _: line.send(b"%d" % got))
asked = {{"words": program + words, "folder": os.getcwd(), "environment": dict(os.environ)}}
os.chdir({folder!r})  # the address of a socket must be short, and this folder's is not
line.connect("line")
streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
line.sendmsg([json.dumps(asked).encode()], streams)
code = json.loads(line.recv(100) or b"70")
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """A server, and the folder with its clients; it ends with the block, or with this process."""
    folder.mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable)
    script = python.with_name("prudent")
    programs: dict[str, tuple[Path, list[str], str]] = {
        "python": (python, [], "not words or words[0] != '-c' and words[0].startswith('-')"),
        "prudent": (script, [str(script)], "words[:1] in (['serve'], ['worker'])"),
    }
    for name, (real, before, left_to_it) in programs.items():
        client = folder / name
        filled = {"python": python, "program": before, "real": str(real), "left_to_it": left_to_it}
        client.write_text(CLIENT.format(**filled, folder=str(folder)))
        client.chmod(0o755)
    # Its standard input is how it learns that whoever started it has gone.
    server = subprocess.Popen(
        [python, __file__],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == "ready\n", "the fork server did not start"
        yield folder
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()


class Server:
    """Forks a process for each request, and stands between it and its client."""

    def __init__(self) -> None:
        self._lines: dict[int, socket.socket] = {}
        """By the number of the process that runs for a client."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("line")
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._ended, ending = socket.socketpair()
        for end in (self._ended, ending):
            end.setblocking(False)
        signal.set_wakeup_fd(ending.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._ending = ending
        for source in (self._listener, self._ended, sys.stdin):
            self._selector.register(source, selectors.EVENT_READ)

    def serve(self) -> Sequence[str] | None:
        """None when the server is to end; in a forked process, the words of the program that it is to run."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    self._end()
                    return None
                if key.fileobj is self._ended:
                    self._ended.recv(PACKET)
                    self._bury()
                elif key.fileobj is self._listener:
                    words = self._fork(self._listener.accept()[0])
                    if words is not None:
                        return words
                else:
                    self._pass_on(key.data)

    def _fork(self, line: socket.socket) -> Sequence[str] | None:
        packet, streams, _, _ = socket.recv_fds(line, PACKET, 3)
        if not packet:
            line.close()
            return None
        asked = json.loads(packet)
        pid = os.fork()
        if pid == 0:
            line.close()
            self._become(asked, streams)
            words: Sequence[str] = asked["words"]
            return words
        for stream in streams:
            os.close(stream)
        self._lines[pid] = line
        self._selector.register(line, selectors.EVENT_READ, pid)
        return None

    def _become(self, asked: Mapping[str, object], streams: Sequence[int]) -> None:
        """In the fork: what a process that somebody has just started would find."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for end in (self._listener, self._ended, self._ending, *self._lines.values()):
            end.close()
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(
                io.BufferedWriter(io.FileIO(number, "w", closefd=False)), line_buffering=number == 2
            )
            for number in (1, 2)
        )
        os.environ.clear()
        os.environ.update(asked["environment"])  # type: ignore[call-overload]
        os.chdir(str(asked["folder"]))

    def _pass_on(self, pid: int) -> None:
        """A signal that the client got; one that is gone has no more use for its program."""
        if pid not in self._lines:
            return  # it ended at the same moment
        said = self._lines[pid].recv(100)
        if not said:
            self._selector.unregister(self._lines[pid])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, int(said) if said else signal.SIGKILL)

    def _bury(self) -> None:
        while self._lines:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            line = self._lines.pop(pid)
            with contextlib.suppress(KeyError):
                self._selector.unregister(line)
            with contextlib.suppress(OSError):
                line.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            line.close()

    def _end(self) -> None:
        for pid in self._lines:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def execute(words: Sequence[str]) -> None:
    """What `python WORDS` does: a script with its arguments, or `-c` with code."""
    name, *rest = words
    if name == "-c":
        main = ModuleType("__main__")
        sys.modules["__main__"] = main
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
        return
    sys.argv, sys.path[0] = list(words), str(Path(name).resolve().parent)
    runpy.run_path(name, run_name="__main__")


def load(names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)


def leave(words: Sequence[str]) -> NoReturn:
    """Run a program to its end, and end as it does; taking all that was loaded apart would take long."""
    code: object = 0
    try:
        execute(words)
    except SystemExit as ended:
        code = ended.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    load(LOADED)
    gc.freeze()
    server = Server()
    print("ready", flush=True)
    asked_for = server.serve()
    if asked_for is not None:
        leave(asked_for)
