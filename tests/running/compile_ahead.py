"""Compiles ahead of the tests, beside the linters, what every process would compile again in a fresh clone.

Numba's and Python's compiled code is kept on disk. `python tests/running/compile_ahead.py functions` compiles
numba's, with the base install alone; `python tests/running/compile_ahead.py modules` compiles Python's. A
failure here stops nothing: the tests are only slower.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

import prudent


def compile_functions() -> None:
    """Call what numba compiles: the simulator's loop, and the surrogates of the strategies."""
    from prudent.workflows.formats.generate import generate

    workflow = generate("montage", 25, seed=1)
    fleet = prudent.Fleet.parse("2*m3.medium,1*m3.2xlarge", slots="vm")
    for scheduler in prudent.schedulers():
        with contextlib.suppress(prudent.PrudentError):
            prudent.schedule(workflow, fleet, prudent.World(), scheduler=scheduler, seed=1)
    whole = prudent.Space.parse({"n": {"integer": [1, 6]}, "x": {"real": [0.0, 1.0]}})
    part = prudent.Space.parse({"n": {"integer": [1, 6]}, "share": [0.1, 0.5, 1.0]})
    for strategy in prudent.strategies():
        # Obol grows no tree before its twelfth trial, and then looks far ahead.
        options = {"start_trials": 4, "lookahead": 1, "trees": 2} if strategy == "obol" else None
        for space, share in ((whole, None), (part, "share")):
            with contextlib.suppress(prudent.PrudentError):
                _study(strategy, options, space, share)


def _study(strategy: str, options: dict[str, int] | None, space: prudent.Space, share: str | None) -> None:
    goal = "maximise accuracy subject to cost_usd <= 1"
    study = prudent.Study(
        space, goal, lambda c: 1.0 + c["n"], 1.0, strategy, options, measures=["accuracy"], fraction=share
    )
    for _ in range(12):
        ask = study.ask()
        if ask is None:
            return
        size = ask.configuration["n"] + ask.configuration.get("share", 1.0)
        study.tell(ask.number, time_s=10.0 * size, measures={"accuracy": 1 - 1 / size})


def compile_modules() -> int:
    """Collecting imports all modules and packages that the tests use."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit({"functions": compile_functions, "modules": compile_modules}[sys.argv[1]]())
