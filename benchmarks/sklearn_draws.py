"""Pipelines of scikit-learn drawn at random: what a random search of its models looks at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd


def draws(numbers: bool, rows: pd.DataFrame, texts: list[str], seed: int) -> Iterator[Any]:
    """Pipelines of a random algorithm with random settings, for ever."""
    from sklearn import ensemble, linear_model, naive_bayes, neighbors, svm
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng, kind = np.random.default_rng(seed), "Regressor" if numbers else "Classifier"
    rest = [name for name in rows.columns if name not in texts]
    one_hot = OneHotEncoder(handle_unknown="ignore", max_categories=32, sparse_output=False)

    def log(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def trees(name: str) -> Any:
        return getattr(ensemble, f"{name}{kind}")(
            n_estimators=round(log(20, 500)), max_features=rng.choice([0.1, 0.3, 0.6, 1.0]),
            min_samples_leaf=round(log(1, 32)), random_state=seed,
        )  # fmt: skip

    makers = [
        lambda: trees("RandomForest"),
        lambda: trees("ExtraTrees"),
        lambda: getattr(ensemble, f"HistGradientBoosting{kind}")(
            max_iter=round(log(20, 500)), learning_rate=log(0.01, 0.5), max_leaf_nodes=round(log(4, 128)),
            min_samples_leaf=round(log(2, 64)), l2_regularization=log(1e-6, 10), random_state=seed,
        ),
        lambda: getattr(neighbors, f"KNeighbors{kind}")(
            round(log(1, 50)), weights=str(rng.choice(["uniform", "distance"])),
        ),
        lambda: linear_model.ElasticNet(alpha=log(1e-5, 10), l1_ratio=rng.random()) if numbers
        else linear_model.LogisticRegression(C=log(1e-3, 1e3), max_iter=500),
        lambda: (svm.SVR if numbers else svm.SVC)(C=log(0.1, 1e3), gamma=log(1e-4, 1)),
    ]  # fmt: skip
    if not numbers:
        makers.append(lambda: naive_bayes.GaussianNB(var_smoothing=log(1e-12, 1e-2)))
    while True:
        model = makers[rng.integers(len(makers))]()
        gaps = make_pipeline(SimpleImputer(), StandardScaler())
        yield make_pipeline(ColumnTransformer([("texts", one_hot, texts), ("rest", gaps, rest)]), model)
