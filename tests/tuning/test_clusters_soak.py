"""A few of the random studies of `clusters_soak.py`: money, orphans and answers in all kinds of trouble."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).with_name("clusters_soak.py")


def test_random_studies_in_trouble_keep_every_promise() -> None:
    # In a process of its own without threads, for it forks.
    done = subprocess.run(
        [sys.executable, str(SOAK), "0", "10", "5"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout, done.stderr
    seen = json.loads(done.stdout)
    assert seen["broken"] == {}
    assert done.returncode == 0
    # Or nothing was shown: each kind of trouble came, and sessions were killed and resumed.
    assert seen["studies"] == 10
    assert seen["killed"] >= 3
    assert seen["looks_at_the_money"] > 100
    assert {"quota", "transient", "preemption", "price"} <= set(seen["befell"])
