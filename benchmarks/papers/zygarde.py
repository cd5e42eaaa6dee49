"""Zygarde, section 6.2: the request of its example, timed phase by phase beside its 268 s.

The example's data are 501 rows of 10 features from Spark's samples; here are as many made-up ones, a weak
line and much noise like theirs (their models' RMSE is about 10). Its machines were rented for it; here is
one that is there. The thesis tells no prices: its cluster was a master and three workers, all t2.micro
(figures 6.12 and 6.19), beside the t2.micro that took up the request. They are priced on demand here, this
computer as a machine with as many cores.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.papers.page import BETTER, NOT, REPRODUCED, Headline, PaperPage, Table
from benchmarks.papers.replays import Effort

import prudent
from prudent.cloud.catalog import Catalog
from prudent.reports.training import write_training_report
from prudent.training.request.request import TrainingRequest

SEEDS = QUICK_SEEDS = 3
PAPER_S = {
    "answer to the request": 0.56,
    "machines": 183.0,
    "submission": 5.0,
    "training and ranking": 76.0,
    "report": 4.0,
}
"""By its log: taken up 17:45:31, cluster 17:48:34, models 17:48:39 to 17:49:55, done 17:49:59."""
WHOLE_S = 268.0
CLUSTER, TAKER, HERE = "t2.micro", "t2.micro", "t3.large"
CLUSTER_MACHINES = 4
ON_CLUSTER = ("machines", "submission", "training and ranking", "report")
"""The phases in which the cluster was paid for, too."""
REQUEST = {
    "domain": "regression",
    "methods": [
        {
            "algorithm": "linear-regression",
            "hyperparameters": [
                {"param": "maxIter", "values": [10, 50, 100]},
                {"param": "regParam", "values": [0.0, 0.3]},
                {"param": "elasticNetParam", "values": [0.0, 0.8]},
            ],
        }
    ],
    "parameterSearch": "random",
    "budget": "5 trials",
}


def run(effort: Effort) -> PaperPage:
    rounds = [phases(seed) for seed in range(effort.seeds)]
    median = {name: float(np.median([each[name] for each in rounds])) for name in rounds[0]}
    whole_s = sum(seconds for name, seconds in median.items() if name != "RMSE")
    return PaperPage(
        "zygarde",
        "Zygarde: a request for models, phase by phase",
        f"{effort.seeds} times, five linear regressions by random search, engine local; medians in seconds.",
        [
            Headline(
                "A request for five models, taken up to reported", f"{WHOLE_S:g} s", f"{whole_s:.1f} s",
                BETTER if whole_s < WHOLE_S else NOT, "no cluster is rented for 501 rows; it took 183 s",
            ),
            Headline(
                "The same without the time of the machines", f"{WHOLE_S - PAPER_S['machines']:g} s",
                f"{whole_s - median['machines']:.1f} s",
                BETTER if whole_s - median["machines"] < WHOLE_S - PAPER_S["machines"] else NOT,
                "models are small: most of theirs is starting five Spark applications",
            ),
            Headline(
                "RMSE of the best model", "9.43 (other rows)", f"{median['RMSE']:.2f}",
                REPRODUCED if 8 < median["RMSE"] < 12 else NOT, "noise of the same size",
            ),
        ],
        [costs(median)],
    )  # fmt: skip


def costs(median: dict[str, float]) -> Table:
    """Time and money of every phase, and of the whole."""
    usd_per_h = {machine.name: machine.price.usd_per_h for machine in Catalog.bundled()}
    rows, whole = [], np.zeros(4)
    for phase, paper_s in PAPER_S.items():
        cluster = CLUSTER_MACHINES * usd_per_h[CLUSTER] if phase in ON_CLUSTER else 0.0
        numbers = (
            paper_s, paper_s * (cluster + usd_per_h[TAKER]) / 3600,
            median[phase], median[phase] * usd_per_h[HERE] / 3600,
        )  # fmt: skip
        whole += numbers
        rows.append([phase, *told(numbers)])
    rows.append(["whole", *told(whole)])
    columns = ("phase", "paper, s", "paper, $", "here, s", "here, $")
    return Table(
        f"Time and money by phase: 5 {CLUSTER} (the paper), this computer as a {HERE}", columns, rows
    )


def told(numbers: Sequence[float]) -> list[str]:
    paper_s, paper_usd, here_s, here_usd = numbers
    return [f"{paper_s:g}", f"{paper_usd:.5f}", f"{here_s:.2f}", f"{here_usd:.5f}"]


def phases(seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "sample.txt"
        data.write_text("\n".join(lines(seed)) + "\n")
        said = {**REQUEST, "dataset": {"path": str(data), "format": "libsvm"}, "seed": seed}
        begun = time.perf_counter()
        request = TrainingRequest.parse(json.loads(json.dumps(said)))
        answered = time.perf_counter()
        board = prudent.train(request, out=Path(folder) / "models")
        trained = time.perf_counter()
        write_training_report(board, Path(folder) / "models")
        return {
            "answer to the request": answered - begun, "machines": 0.0, "submission": 0.0,
            "training and ranking": trained - answered, "report": time.perf_counter() - trained,
            "RMSE": float(board.entries[0].value),
        }  # fmt: skip


def lines(seed: int) -> list[str]:
    """Rows in libsvm's form."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (501, 10))
    target = features @ rng.normal(0, 1, 10) + rng.normal(0, 10, 501)
    return [
        f"{value:.6f} {' '.join(f'{at}:{x:.6f}' for at, x in enumerate(row, start=1))}"
        for value, row in zip(target, features, strict=True)
    ]
