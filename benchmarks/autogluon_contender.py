"""AutoGluon as a contender of training_quality.py, in an environment of its own.

python autogluon_contender.py FOLDER: reads train.parquet, test.parquet and task.json there, and writes
answer.json.
"""

import json
import sys
import time
import warnings
from pathlib import Path


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    import pandas as pd
    from autogluon.tabular import TabularPredictor

    task = json.loads((folder / "task.json").read_text())
    train, test = (pd.read_parquet(folder / f"{part}.parquet") for part in ("train", "test"))
    kind = "regression" if task["numbers"] else ("binary" if train["target"].nunique() == 2 else "multiclass")
    began_s = time.monotonic()
    predictor = TabularPredictor(
        "target",
        problem_type=kind,
        eval_metric="r2" if task["numbers"] else "mcc",
        path=str(folder / "models"),
        verbosity=0,
    )
    predictor.fit(train, presets=task["presets"], time_limit=task["seconds"], num_cpus=2, num_gpus=0)
    took_s = time.monotonic() - began_s
    answer = {
        "took_s": took_s,
        "said": predictor.predict(test).tolist(),
        "best": predictor.model_best,
        "models": len(predictor.model_names()),
    }
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__" and len(sys.argv) > 1:
    main(Path(sys.argv[1]))
