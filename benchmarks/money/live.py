"""Studies of commands on this computer, interrupted and killed; metered by the commands' own clocks."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from money.played import Played

WORK = """
import os, sys, time
ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
age = float(open("/proc/uptime").read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
begun, n, lasts_s, chatty = time.time() - age, int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "chatty"
clock = open(f"clock.{os.getpid()}.{begun}", "w")
while time.time() < begun + lasts_s:
    clock.seek(0)
    clock.write(f"{begun:.4f} {time.time():.4f}")
    clock.flush()
    if chatty:
        print('PRUDENT {"error": %d}' % (n + 1), flush=True)
    time.sleep(0.005)
print('PRUDENT {"error": %d}' % n, flush=True)
clock.seek(0)
clock.write(f"{begun:.4f} {time.time():.4f}")
clock.flush()
os._exit(0)
"""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def play(seed: int, folder: Path) -> Played:
    """A study in sessions that are stopped in some way, and one that runs until its money is gone."""
    chance = random.Random(f"live {seed}")
    usd_per_s, parallel = chance.uniform(0.05, 0.5), chance.randint(1, 4)
    budget_usd = usd_per_s * chance.uniform(1.5, 6.0)
    job = {
        "command": f"exec {sys.executable} -S work.py {{n}} {{lasts_s}} {chance.choice(['chatty', 'quiet'])}",
        "parameters": {"n": list(range(1, 7)), "lasts_s": [0.1, 0.4, 0.9, chance.choice([1.5, 30.0])]},
        "measures": ["error"],
        "price": usd_per_s * 3600,
        "goal": "minimise error",
        "budget": f"${budget_usd:.6f}",
        "strategy": chance.choice(["grid", "random", "lynceus", "obol"]),
        "parallel": parallel,
        "seed": seed,
    }
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "work.py").write_text(WORK)
    troubles: Counter[str] = Counter()
    for _ in range(chance.choice([0, 0, 1, 2, 3])):
        how = chance.choice(STOPS)
        troubles[how.name] += session(folder, how, chance.uniform(0.0, 0.8))
    session(folder, None, 0.0)
    text = (folder / "answer").read_text()
    assert text, (folder / "said").read_text()[-400:]
    answer = json.loads(text)
    return Played(
        "tune, commands",
        seed,
        budget_usd,
        usd_per_s * lived_s(folder),
        answer["spent_usd"],
        usd_per_s * parallel,
        answer["over_usd"],
        troubles=troubles,
    )


def lived_s(folder: Path) -> float:
    """The time of all commands, as each has noted its own."""
    lives = [path.read_text().split() for path in folder.glob("clock.*")]
    return sum(float(life[1]) - float(life[0]) for life in lives if len(life) == 2)


def session(folder: Path, stop: signal.Signals | None, after_s: float) -> bool:
    """One process of the study; whether it had to be stopped."""
    before = len(list(folder.glob("clock.*")))
    child = forked(folder, lambda: command(["tune", "job.json", "--json", "--resume"]))
    if stop is None:
        os.waitpid(child, 0)
        return False
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if len(list(folder.glob("clock.*"))) > before:
            time.sleep(after_s)
            os.kill(child, stop)
            os.waitpid(child, 0)
            return True
        time.sleep(0.01)
    return False


def command(words: list[str]) -> int:
    from prudent.cli.main import run

    return run(words)


def forked(folder: Path, work: Callable[[], int]) -> int:
    """A process in the folder, with a home and files for what it says there."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        os.environ["PRUDENT_HOME"] = str(folder / "home")
        for name, stream in (("answer", 1), ("said", 2)):
            os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = work()
        sys.stdout.flush()
    finally:
        os._exit(code)
