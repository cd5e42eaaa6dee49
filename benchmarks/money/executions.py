"""Workflows that are executed on rented machines of this computer, interrupted and killed."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from money.live import command, forked
from money.played import Played

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cloud" / "providers"))

from metered import metered, paid_usd

from prudent.workflows import Activation, File, Fleet, Vm, Workflow, World, schedule

TYPE = "m3.medium"
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def play(seed: int, folder: Path) -> Played:
    """A workflow of sleeping commands with too little, just enough or ample money."""
    chance = random.Random(f"executions {seed}")
    machines, usd_per_s = chance.randint(1, 2), chance.uniform(0.05, 0.5)
    steps = write(folder, chance, machines, usd_per_s)
    likely_usd = usd_per_s * machines * (4.0 + steps * 0.4)
    budget_usd = likely_usd * chance.uniform(0.7, 4.0)
    words = ["execute", "plan.json", "w.json", "--run", "run", "--where", "local:prices.csv", "--resume"]
    words += ["--budget", f"${budget_usd:.6f}", "--anyway", "--json"]
    troubles: Counter[str] = Counter()
    with metered(folder / "home", folder / "meter.jsonl"):
        for _ in range(chance.choice([0, 0, 1, 2])):
            how = chance.choice(STOPS)
            troubles[how.name] += session(folder, words, how, chance.uniform(0.0, 1.5))
        session(folder, words, None, 0.0)
        session(folder, ["clusters", "reap"], None, 0.0)  # ends what a killed session has left
    from prudent.workflows.execute.run import WorkflowRun

    run = WorkflowRun.read(folder / "run")
    return Played(
        "execute",
        seed,
        budget_usd,
        paid_usd(folder / "meter.jsonl"),
        run.cost_usd,
        usd_per_s * machines,
        run.over_usd,
        troubles=troubles + Counter(stopped=int(run.stopped is not None)),
    )


def write(folder: Path, chance: random.Random, machines: int, usd_per_s: float) -> int:
    """Prices, a workflow and its plan."""
    minimum_s = chance.choice([0, 0, 3])
    (folder / "prices.csv").write_text(
        f"name,price_usd_per_h,minimum_s\n{TYPE},{usd_per_s * 3600},{minimum_s}\n"
    )
    (folder / "in").write_text("x")
    steps: list[Activation] = []
    for number in range(chance.randint(3, 8)):
        earlier = [step.outputs[0] for step in steps if chance.random() < 0.4] or [File("in")]
        lasts_s = round(chance.uniform(0.05, 0.6), 2)
        script = f"touch begun; sleep {lasts_s}; echo {number} > out{number}"
        told_s = lasts_s * chance.uniform(0.5, 1.5)
        steps.append(
            Activation(
                f"step{number}", "step", told_s, tuple(earlier), (File(f"out{number}"),), ("sh", "-c", script)
            )
        )
    workflow = Workflow(f"soak-{machines}", tuple(steps))
    workflow.write(folder / "w.json")
    fleet = Fleet(tuple(Vm(f"v{at}", TYPE, usd_per_h=usd_per_s * 3600) for at in range(machines)))
    schedule(workflow, fleet, World(bandwidth_mb_s=1e6), scheduler="heft").save(folder / "plan.json")
    return len(steps)


def session(folder: Path, words: list[str], stop: signal.Signals | None, after_s: float) -> bool:
    """One process; whether it had to be stopped, which it is while commands run."""
    (folder / "begun").unlink(missing_ok=True)
    child = forked(folder, lambda: command(words))
    if stop is None:
        os.waitpid(child, 0)
        return False
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if (folder / "begun").exists():
            time.sleep(after_s)
            os.kill(child, stop)
            os.waitpid(child, 0)
            return True
        time.sleep(0.01)
    return False
