"""A study that is taken up decides as one that was never interrupted, however many trials it has had.

Hyper-parameters are weighed ever more rarely past 24 trials; what was weighed then must not depend on what
came later.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.core.space import Space
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.strategies.initial_design import ScalingDesign
from prudent.tuning.study.study import Study
from prudent.tuning.tune import tune

GOAL = "minimise cost_usd subject to accuracy >= 0.7 and memory_mb <= 900"
SPACE = {
    "vm": ["a", "b", "c", "d"],
    "n": [1, 2, 4, 8, 16],
    "rate": [1e-3, 1e-2, 1e-1, 1.0],
    "deep": [1, 2, 3],
}


def world(seed: int) -> FunctionJob:
    """240 configurations on machines of very different prices, some of which fail."""
    kinds, noise = "abcd", np.random.default_rng(seed)
    luck = {str(c): float(noise.normal(0, 0.3)) for c in Space.parse(SPACE).configurations()}

    def run(configuration: dict[str, Any]) -> dict[str, float]:
        vm, n, rate, deep = (configuration[name] for name in SPACE)
        chance = luck[str(configuration)]
        if vm == "d" and n == 16:
            raise MemoryError
        return {
            "time_s": 900 * deep / ((kinds.index(vm) + 1) * n**0.6) * float(np.exp(chance)) + n,
            "accuracy": min(0.99, 0.6 + 0.1 * deep - 0.03 * abs(np.log10(rate) + 2) + 0.05 * chance),
            "memory_mb": 300.0 * deep + 50 * n * (1 + chance),
        }

    def price(configuration: dict[str, Any]) -> float:
        return float(0.05 * 3 ** kinds.index(configuration["vm"]) * configuration["n"])

    return FunctionJob(
        run,
        Space.parse(SPACE),
        ["accuracy", "memory_mb"],
        price,
        virtual=True,
    )


def study(job: FunctionJob, path: Path, seed: int, trials: int) -> list[dict[str, Any]]:
    tune(job, GOAL, 500.0, "lynceus", early_stop=False, seed=seed, journal=path, resume=path.exists(),
         max_trials=trials)  # fmt: skip
    return [json.loads(line) for line in path.read_text().splitlines()]


def decisions(facts: list[dict[str, Any]]) -> list[Any]:
    return [(f["number"], f["configuration"], f["expected_usd"]) for f in facts if f["fact"] == "asked"]


def after(facts: list[dict[str, Any]], told: int) -> list[dict[str, Any]]:
    """The journal as it was when so many trials had ended."""
    place = [place for place, fact in enumerate(facts) if fact["fact"] == "told"][told - 1]
    return facts[: place + 1]


def write(path: Path, facts: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    return path


def test_taken_up_past_24_trials_it_decides_the_same(tmp_path: Path) -> None:
    job = world(1)
    facts = study(job, tmp_path / "whole", 1, 33)
    for told in (26, 29, 31):
        path = write(tmp_path / "part", after(facts, told))
        resumed = Study(
            job.space, GOAL, job.price, 500.0, "lynceus", measures=job.measures, early_stop=False, seed=1,
            fingerprint=job.fingerprint(), journal=path, resume=True,
        )  # fmt: skip
        asked = resumed.ask()
        resumed.close()
        assert asked is not None
        said = (asked.number, asked.configuration, asked.proposal.expected_usd)
        assert said == decisions(facts)[told], f"taken up after {told} trials"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_twenty_studies_of_sixty_trials_killed_at_random(tmp_path: Path, seed: int) -> None:
    whole = study(world(seed), tmp_path / "whole", seed, 60)
    assert len(decisions(whole)) == 60
    told = sorted(random.Random(seed).sample(range(1, 60), 3))
    for count in told:
        path = write(tmp_path / f"part {count}", after(whole, count))
        assert decisions(study(world(seed), path, seed, 60)) == decisions(whole), f"killed after {count}"


def test_first_looks_do_not_depend_on_what_was_asked_before() -> None:
    space = Space.parse({"n": list(range(1, 40)), "s": [0.1, 0.5, 1.0]})
    problem = Study(space, "minimise cost_usd", lambda c: 1.0, 1.0, "grid", fraction="s").problem

    def looks() -> ScalingDesign:
        return ScalingDesign(problem, (0.1, 0.5), "latin", 3, False, 1)

    one, other = looks(), looks()
    for count in (3, 5, 9, 17):
        one._configurations(count)
    assert one._configurations(3) == other._configurations(3)
    assert one._configurations(17) == other._configurations(17)
