"""Point 3, roles are walls: what a commander's command tries against the service that runs it."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from attacks.target import Found, Service, ended, submitted, wait_for

SECRETS = {
    "PRUDENT_SMTP_PASSWORD": "s3cret-of-mail",
    "PRUDENT_WEBHOOK_SECRET": "s3cret-of-hooks",
    "AWS_SECRET_ACCESS_KEY": "s3cret-of-cloud",
    "GITHUB_TOKEN": "s3cret-of-code",
}
"""In the environment of the service, as an operator would put them there."""
PROCESSES, FILE_MB, MEMORY_MB = 120, 2.0, 600.0
"""The limits of the service that is attacked."""
_MORE = 400
_HOG = (
    "import time; kept = []\n"
    "for _ in range({blocks}): kept.append(bytearray(b'x') * (10 << 20))\n"
    "time.sleep({stay_s})"
)


def play(service: Service) -> Iterator[Found]:
    yield from _roles(service)
    folder = _stolen(service)
    yield _evil(service, folder)
    yield _written(service)
    yield _secrets(service, folder)
    size_mb = (folder / "large.bin").stat().st_size / 1e6
    yield Found(3, "a huge file", f"at most {FILE_MB:g} MB", f"{size_mb:.1f} MB", size_mb <= FILE_MB)
    yield _memory(service, "memory bomb, one process", _python(_HOG.format(blocks=400, stay_s=600)))
    hog = _python(_HOG.format(blocks=15, stay_s=600))
    yield _memory(service, "memory bomb, eight processes", " & ".join([hog] * 8) + " & wait")
    yield _forks(service)


def _roles(service: Service) -> Iterator[Found]:
    for user in ("mallory", "vic"):
        with service.client(user) as client:
            status = client.post("/v1/runs/tune", json=_tuned("id")).status_code
        role = {"mallory": "member", "vic": "viewer"}[user]
        yield Found(3, f"a {role} sends a command", "403", str(status), status == 403)


def _tuned(command: str) -> dict[str, Any]:
    return {"command": command, "parameters": {"n": [1]}, "goal": "minimise time_s", "max_trials": 1}


def _python(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -IS -c {shlex.quote(code)}"


def _stolen(service: Service) -> Path:
    """Try everything at once; what it finds lies in the run's own folder, which is answered."""
    home = service.home
    words = [
        "cd $PRUDENT_HOME/..",
        "env > env.txt",
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline > processes.txt 2>/dev/null",
        f"cat {home}/* > home.txt 2>/dev/null; ls {home}/runs > runs.txt",
        f"cat {home}/prudent.db {home}/prudent-engine.db > database.txt 2>/dev/null",
        f"{sys.executable} -m prudent.cli.main users add evil --role admin --home {home} > evil.txt 2>&1",
        f"for name in mode operator.token data/written.txt runs/written.txt; do "
        f"echo open > {home}/$name; done 2>/dev/null",
        f"rm -rf {home}/prudent.db {home}/data 2>/dev/null",
        "head -c 9000000 /dev/zero > large.bin 2>/dev/null",
        "touch done.txt",
    ]
    with service.client("kim") as client:
        place = submitted(client, "tune", _tuned("; ".join(words)))
        run = ended(client, place)
    folder = service.settings.folder_of(run["id"])
    if not (folder / "done.txt").exists():
        raise ValueError(f"the command did not come to its end: {run['status']} {run['error']}")
    return folder


def _evil(service: Service, folder: Path) -> Found:
    with contextlib.closing(sqlite3.connect(service.home / "prudent.db")) as base:
        names = sorted(name for (name,) in base.execute("SELECT name FROM users"))
    answer = (folder / "evil.txt").read_text(errors="replace").strip().splitlines()[-1:]
    seen = f"accounts: {', '.join(names)}; it was told: {''.join(answer)[:120]}"
    known = sorted(name for name in service.tokens if name != "operator")
    return Found(3, "prudent users add evil --role admin", "no such account", seen, names == known)


def _written(service: Service) -> Found:
    home = service.home
    changed = [name for name in ("data/written.txt", "runs/written.txt") if (home / name).exists()]
    token = (home / "operator.token").read_text().strip()
    changed += ["operator.token"] if token != service.tokens["operator"] else []
    changed += ["mode"] if (home / "mode").read_text().strip() != "token" else []
    changed += [name for name in ("prudent.db", "data") if not (home / name).exists()]
    with service.client() as stranger:
        status = stranger.get("/v1/runs").status_code
    seen = f"changed: {', '.join(changed) or 'nothing'}; a stranger gets {status}"
    return Found(3, "writing to the home", "nothing is changed", seen, not changed and status == 401)


def _secrets(service: Service, folder: Path) -> Found:
    found = b"".join(
        path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    )
    secrets = {**SECRETS, **{f"token of {name}": token for name, token in service.tokens.items()}}
    leaked = [name for name, secret in secrets.items() if secret.encode() in found]
    leaked += [name for name in ("home.txt", "database.txt") if (folder / name).read_bytes()]
    leaked += [] if (folder / "runs.txt").read_text().split() == [folder.name] else ["runs of others"]
    seen = f"{len(secrets)} secrets looked for in {len(found)} bytes: {', '.join(leaked) or 'none'}"
    return Found(3, "environment, /proc and files of the home", "no secret is seen", seen, not leaked)


class _Watched:
    """What the processes below the service hold while a command runs: the largest, and how many."""

    def __init__(self, service: Service) -> None:
        self._own = psutil.Process(service.process.pid)
        self.largest_mb, self.most = 0.0, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            found = self._own.children(recursive=True)
            self.most = max(self.most, len(found))
            for process in found:
                with contextlib.suppress(psutil.Error):
                    held = process.memory_info()
                    self.largest_mb = max(self.largest_mb, (held.rss - held.shared) / 1e6)


def _left(service: Service, word: str) -> int:
    """Processes below the service whose command has this word; after a moment there should be none."""

    def count() -> int:
        found = 0
        for process in psutil.Process(service.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found += word in " ".join(process.cmdline())
        return found

    until_s = time.monotonic() + 30
    while count() and time.monotonic() < until_s:
        time.sleep(0.1)
    return count()


def _memory(service: Service, name: str, command: str) -> Found:
    with service.client("kim") as client, _Watched(service) as watched:
        run = ended(client, submitted(client, "tune", _tuned(f"{command}; false")))
    limit_mb = MEMORY_MB * 1.048576
    seen = f"{run['status']}: {run['error'][:160]}; largest process {watched.largest_mb:.0f} MB"
    held = run["status"] != "succeeded" and watched.largest_mb <= limit_mb
    return Found(3, name, f"it fails, no process beyond {limit_mb:.0f} MB", seen, held)


def _forks(service: Service) -> Found:
    """Not without end, for the sake of this machine: more than the limit, again and again."""
    more = f"n=0; while [ $n -lt {_MORE} ]; do sleep 613 & n=$((n+1)); done; wait"
    with service.client("kim") as client, _Watched(service) as watched:
        run = ended(client, submitted(client, "tune", _tuned(more)))
    left = _left(service, "sleep 613")
    seen = f"{run['status']}: {run['error'][:160]}; at most {watched.most} at a time, {left} left"
    held = run["status"] != "succeeded" and not left
    promise = f"more than {PROCESSES} are ended, and none is left"
    well = bool(wait_for(lambda: service.client("kim").get("/ready").status_code == 200, "the service"))
    return Found(3, f"fork bomb ({_MORE} processes)", promise, seen, held and well)
