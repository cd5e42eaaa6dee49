"""What reading a run costs: processor time of the sampler over that of a run, and over the time it lasted.

    python benchmarks/readings_cost.py                 # a minute each: docs/explanation/thinking-ahead.md
    python benchmarks/readings_cost.py --seconds 10

A run keeps one core busy for so long, alone or with many processes that sleep; `machine` is the shell that
looks at a machine's memory, with the questions at the beginning and the end.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from prudent.cloud.machine_sampler import MachineSampler
from prudent.cloud.process_sampler import ProcessSampler, ProcessUsage
from prudent.cloud.processes import COOKIE, ProcessTree, new_cookie, processes_of_run

BUSY = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass"


class ShellChannel:
    """A machine that is this computer."""

    def __init__(self, folder: str, cookie: str) -> None:
        self._folder, self._environment = folder, {**os.environ, COOKIE: cookie}

    def run(self, command: str, environment: object = None, timeout_s: float = 60.0) -> tuple[int, str, str]:
        asked = ["sh", "-c", command]
        done = subprocess.run(
            asked,
            check=False,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return done.returncode, done.stdout, done.stderr


def command_cost(seconds: float, sleeping: int) -> tuple[float, float, float]:
    """Processor seconds of the sampler and of the run, and how long the run lasted."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "busy.py").write_text(BUSY.format(seconds))
        idle = f"for i in $(seq {sleeping}); do sleep 1000 & done; " if sleeping else ""
        command = f"{idle}{sys.executable} -S busy.py"
        tree = ProcessTree(command, Path(folder), dict(os.environ), new_cookie())
        sampler, began_s = ProcessSampler(tree.pid, tree.members), time.monotonic()
        tree.wait()
        lasted_s = time.monotonic() - began_s
        sampler.end()
        used = ProcessUsage.read(tree.pid)
        tree.close()
        assert used is not None
        return sampler.cost_s, used.cpu_s, lasted_s


def machine_cost(seconds: float) -> tuple[float, float, float]:
    """The same of a machine: what the shell there used, over a core that was busy for so long."""
    cookie = new_cookie()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        sampler = MachineSampler(ShellChannel(folder, cookie), "readings")  # type: ignore[arg-type]
        time.sleep(seconds)
        watching = ProcessUsage.together(ProcessUsage.read(one.pid) for one in processes_of_run(cookie))
        sampler.end()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    asked_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return asked_s + (watching.cpu_s if watching else 0.0), seconds, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    print(f"{len([name for name in os.listdir('/proc') if name.isdigit()])} processes on this machine\n")
    print("| run | sampler, CPU s | run, CPU s | part of it | of a core |")
    print("|---|---|---|---|---|")
    measured = [
        ("a command", command_cost(seconds, 0)),
        ("a command with 500 processes", command_cost(seconds, 500)),
        ("a command of a second", command_cost(1.0, 0)),
        ("a machine", machine_cost(seconds)),
    ]
    for name, (cost_s, used_s, lasted_s) in measured:
        parts = f"{100 * cost_s / used_s:.2f} % | {100 * cost_s / lasted_s:.2f} %"
        print(f"| {name} | {cost_s:.3f} | {used_s:.1f} | {parts} |")


if __name__ == "__main__":
    main()
