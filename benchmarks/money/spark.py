"""Requests that really train on Spark, on rented machines of this computer."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pyspark

from money.executions import metered, paid_usd
from money.live import command, forked
from money.played import Played

DATA = Path(pyspark.__file__).parent / "data" / "mllib" / "sample_linear_regression_data.txt"
TYPE = "mine.small"
STOPS = (signal.SIGINT, signal.SIGKILL)


def play(seed: int, folder: Path) -> Played:
    """A request that is left alone, interrupted or killed, and taken up again."""
    chance = random.Random(f"spark {seed}")
    usd_per_s = chance.uniform(0.005, 0.02)
    budget_usd = usd_per_s * chance.uniform(60.0, 200.0)
    (folder / "prices.csv").write_text(
        f"name,price_usd_per_h,vcpus,memory_gb,minimum_s\n{TYPE},{usd_per_s * 3600},1,4,0\n"
    )
    request = {
        "domain": "regression",
        "methods": [{"algorithm": "linear-regression"}],
        "dataset": {"path": str(DATA), "format": "libsvm"},
        "parameterSearch": "random",
        "budget": f"${budget_usd:.6f}",
        "parallelism": 1,
        "computationalResources": {
            "instances": [{"ec2Instance": TYPE}],
            "minTotalInstances": 1,
            "maxTotalInstances": 1,
        },
    }
    (folder / "request.json").write_text(json.dumps(request))
    troubles: Counter[str] = Counter()
    with metered(folder / "home", folder / "meter.jsonl"):
        if chance.random() < 0.6:
            how = chance.choice(STOPS)
            troubles[how.name] += session(folder, how, chance.uniform(5.0, 25.0))
        session(folder, None, 0.0)
    text = (folder / "answer").read_text()
    assert text, (folder / "said").read_text()[-600:]
    answer = json.loads(text)
    return Played(
        "train, Spark",
        seed,
        budget_usd,
        paid_usd(folder / "meter.jsonl"),
        answer["spent_usd"],
        usd_per_s,
        answer["over_usd"],
        troubles=troubles,
    )


def session(folder: Path, stop: signal.Signals | None, after_s: float) -> bool:
    words = ["train", "request.json", "--engine", "spark", "--where", "local:prices.csv"]
    child = forked(folder, lambda: command([*words, "--out", "models", "--resume", "--json"]))
    if stop is not None:
        time.sleep(after_s)
        ended, _ = os.waitpid(child, os.WNOHANG)
        if ended:
            return False
        os.kill(child, stop)
    os.waitpid(child, 0)
    return stop is not None
