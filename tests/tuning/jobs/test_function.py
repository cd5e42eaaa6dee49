"""Functions as jobs: how they are called, what they may answer, how they fail and how they are cut."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress

Follow = Callable[..., tuple[list[Progress], Outcome]]

SPACE = Space.parse({"depth": [1, 2, 4], "rate": {"log": [1e-3, 1.0]}})
CHOSEN = {"depth": 2, "rate": 0.1}


def job(function: Callable[..., Any], measures: tuple[str, ...] = ("error",), **more: Any) -> FunctionJob:
    return FunctionJob(function, SPACE, measures, **more)


def ending(function: Callable[..., Any], follow: Follow, **more: Any) -> Outcome:
    return follow(job(function, **more).start(dict(CHOSEN), 1))[1]


# How it is called


def by_name(depth: int, rate: float) -> float:
    return depth * rate


def by_configuration(configuration: dict[str, Any]) -> float:
    return by_name(**configuration)


def with_default(depth: int, rate: float, extra: int = 0) -> float:
    return depth * rate + extra


def with_anything(**chosen: Any) -> float:
    return by_configuration(chosen)


class Model:
    def __call__(self, depth: int, rate: float) -> float:
        return depth * rate


@pytest.mark.parametrize(
    "function",
    [
        by_name,
        by_configuration,
        with_default,
        with_anything,
        Model(),
        partial(with_default, extra=0),
        lambda c: c["depth"] * c["rate"],
        lambda rate, depth: depth * rate,
    ],
)
def test_it_is_called_by_its_arguments(function: Callable[..., Any], follow: Follow) -> None:
    assert ending(function, follow).measures == {"error": pytest.approx(0.2)}


def test_a_function_may_change_the_configuration_it_gets(follow: Follow) -> None:
    chosen = dict(CHOSEN)
    _, outcome = follow(job(lambda c: c.pop("rate")).start(chosen, 1))
    assert outcome.status == FINISHED
    assert chosen == CHOSEN


def test_constants_are_handed_in_too(follow: Follow) -> None:
    space = Space.parse({"depth": [1, 2], "epochs": 20})
    run = FunctionJob(lambda depth, epochs: depth * epochs, space, ["cost"]).start({"depth": 2}, 1)
    assert follow(run)[1].measures == {"cost": 40.0}


def lacking(depth: int) -> float:
    return depth


def no_argument() -> float:
    return 0.0


async def asynchronous(configuration: dict[str, Any]) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("function", "remedy"),
    [
        (lacking, 'Unknown argument "rate"'),
        (no_argument, "take one argument"),
        (asynchronous, "asyncio.run"),
        (42, "give a function"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_once(function: Any, remedy: str) -> None:
    with pytest.raises(BadInput, match=remedy):
        job(function)


# What it may answer


@pytest.mark.parametrize(
    "answer", [0.5, np.float32(0.5), np.array(0.5), {"error": np.float64(0.5), "note": "x"}]
)
def test_numbers_of_every_kind(answer: Any, follow: Follow) -> None:
    assert ending(lambda c: answer, follow).measures == {"error": 0.5}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, 'reported no error. To report it, return it, like {"error": 0.5}.'),
        ({"eror": 0.5}, 'reported no error. Is it what was called "eror"?'),
        ({"error": float("nan")}, "reported error as nan; make it a finite number."),
        ({"error": float("inf")}, "reported error as inf"),
        ({"error": "0.5"}, "it gave error as '0.5', which is not a number"),
        (None, "reported no error"),
        ([0.5], 'gave a list instead of its measures; return a mapping like {"error": 0.5}'),
    ],
)
def test_a_result_that_lacks_a_measure_fails(answer: Any, why: str, follow: Follow) -> None:
    outcome = ending(lambda c: answer, follow)
    assert outcome.status == FAILED
    assert why in outcome.why
    assert outcome.started


def test_a_single_number_is_not_enough_for_two_measures(follow: Follow) -> None:
    outcome = ending(lambda c: 0.5, follow, measures=("error", "loss"))
    assert '{"error": 0.5, "loss": 0.5}' in outcome.why


def test_a_function_without_measures_may_answer_nothing(follow: Follow) -> None:
    assert ending(lambda c: None, follow, measures=()).status == FINISHED


def test_the_last_value_of_each_measure_counts(follow: Follow) -> None:
    def steps(configuration: dict[str, Any]) -> Iterator[dict[str, float]]:
        yield {"error": 0.9, "progress": 0.5}
        yield {"loss": 2.0}
        yield {"error": float("nan"), "progress": 40}
        yield {"error": 0.3, "unknown": 1.0}

    shown, outcome = follow(job(steps, measures=("error", "loss")).start(dict(CHOSEN), 1))
    assert [(p.measures, p.done) for p in shown] == [
        ({"error": 0.9}, 0.5),
        ({"loss": 2.0}, None),
        ({"error": 0.3}, None),
    ]
    assert outcome.measures == {"error": 0.3, "loss": 2.0}


def test_a_generator_may_return_the_last_values(follow: Follow) -> None:
    def steps(configuration: dict[str, Any]) -> Iterator[float]:
        yield 0.9
        return 0.1

    shown, outcome = follow(job(steps).start(dict(CHOSEN), 1))
    assert [p.measures for p in shown] == [{"error": 0.9}]
    assert outcome.measures == {"error": 0.1}


# How it fails


def raising(error: BaseException) -> Callable[[dict[str, Any]], Any]:
    def function(configuration: dict[str, Any]) -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ValueError("bad\n  depth"), "ValueError: bad depth"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (MemoryError("no more"), "out of memory"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_exception_is_the_reason(error: BaseException, why: str, follow: Follow) -> None:
    outcome = ending(raising(error), follow)
    assert (outcome.status, outcome.why, outcome.started) == (FAILED, why, True)


def test_a_generator_that_raises_keeps_what_it_showed(follow: Follow) -> None:
    def steps(configuration: dict[str, Any]) -> Iterator[float]:
        yield 0.9
        raise RuntimeError("lost")

    outcome = ending(steps, follow)
    assert (outcome.status, outcome.why) == (FAILED, "RuntimeError: lost")
    assert outcome.measures == {"error": 0.9}


# How it is cut


def test_a_generator_is_closed_at_its_next_yield() -> None:
    closed, going = threading.Event(), threading.Event()

    def steps(configuration: dict[str, Any]) -> Iterator[float]:
        try:
            while True:
                yield 0.9
                going.set()
                time.sleep(0.01)
        finally:
            closed.set()

    run = job(steps).start(dict(CHOSEN), 1)
    assert going.wait(60)
    outcome = run.cut(1.5, "too slow")
    assert outcome == Outcome(CUT, 1.5, {"error": 0.9}, "too slow")
    assert closed.is_set()


def test_a_generator_that_does_not_stop_is_left_after_the_grace_time() -> None:
    release, ended = threading.Event(), threading.Event()

    def steps(configuration: dict[str, Any]) -> Iterator[float]:
        yield 0.9
        release.wait(60)
        ended.set()
        yield 0.1

    run = job(steps, grace_s=0.05).start(dict(CHOSEN), 1)
    assert isinstance(run.next(60), Progress)
    assert run.cut(1.0, "").measures == {"error": 0.9}
    assert not ended.is_set()
    release.set()
    assert ended.wait(60)


def test_a_plain_function_is_left_to_end_and_its_result_is_ignored() -> None:
    release, ended = threading.Event(), threading.Event()

    def stubborn(configuration: dict[str, Any]) -> float:
        release.wait(60)
        ended.set()
        return 0.5

    run = job(stubborn).start(dict(CHOSEN), 1)
    assert run.cut(1.0, "too slow") == Outcome(CUT, 1.0, {}, "too slow")
    assert not ended.is_set()
    release.set()
    assert ended.wait(60)


# Time and money


def test_the_set_up_is_part_of_the_time(follow: Follow) -> None:
    shown, outcome = follow(job(lambda c: iter_once(), setup_s=100.0).start(dict(CHOSEN), 1), until_s=199)
    assert 100 <= shown[0].elapsed_s <= outcome.time_s < 200  # once, not twice


def iter_once() -> Iterator[float]:
    yield 0.5


def test_a_run_in_its_set_up_shows_nothing() -> None:
    run = job(lambda c: 0.5, setup_s=100.0).start(dict(CHOSEN), 1)
    assert run.next(99.0) is None
    assert 100 <= run.elapsed_s() < 200


def test_a_machine_in_the_space_is_what_a_run_costs() -> None:
    space = Space([MachineParameter("cluster", ["m5.large"], [1, 4])])
    priced = FunctionJob(lambda cluster: 0.5, space, ["error"])
    assert priced.price({"cluster": "4*m5.large"}).usd_per_h == pytest.approx(4 * 0.096)
    assert priced.price({"cluster": "4*m5.large"}).minimum_s == 60


@pytest.mark.parametrize(
    ("said", "meant"),
    [(0.5, 0.5), (lambda c: c["depth"], 2.0), (Price(0.7, "2025-01-01", "a contract"), 0.7)],
)
def test_prices_in_every_form(said: Any, meant: float) -> None:
    assert job(by_name, price=said).price(dict(CHOSEN)).usd_per_h == meant


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        ({"setup_s": -1.0}, "set-up time cannot be -1"),
        ({"grace_s": float("nan")}, "grace time cannot be nan"),
        ({"fraction": "shar"}, 'Unknown parameter "shar"'),
        ({"fraction": "depth"}, "not a share of the data"),
        ({"price": -1.0}, "price -1"),
        ({"measures": ("error", "error")}, "named twice"),
        ({"measures": ("progress",)}, "another name"),
        ({"measures": ("",)}, "not a name"),
    ],
)
def test_wrong_options_are_refused_at_once(more: dict[str, Any], remedy: str) -> None:
    with pytest.raises(BadInput, match=remedy):
        job(by_name, **more)


def test_no_share_of_the_data_is_nothing() -> None:
    with pytest.raises(BadInput, match=r"can be 0\.0, which is not a share"):
        FunctionJob(by_name, Space.parse({"share": [0.0, 0.5, 1.0]}), "error", fraction="share")


def test_time_and_cost_need_not_be_named() -> None:
    assert job(by_name, measures=("error", "time_s", "cost_usd")).measures == ("error",)
    assert FunctionJob(by_name, SPACE, "error").measures == ("error",)


def test_the_name_is_the_functions_unless_said() -> None:
    assert job(by_name).name == "by_name"
    assert job(partial(with_default, extra=0)).name == "with_default"
    assert job(Model()).name == "Model"
    assert job(by_name, name="digits").name == "digits"


@pytest.mark.parametrize(
    "other",
    [{"price": 1.0}, {"setup_s": 3.0}, {"measures": ("loss",)}, {"virtual": True}],
)
def test_another_job_has_another_fingerprint(other: dict[str, Any]) -> None:
    assert job(by_name).fingerprint() != job(by_name, **other).fingerprint()
    assert job(by_name).fingerprint() != job(with_default).fingerprint()


def test_the_fingerprint_is_the_same_in_another_process() -> None:
    code = (
        "from prudent.core.space import Space; from prudent.tuning.jobs.function import FunctionJob\n"
        "def f(depth): return depth\n"
        "print(FunctionJob(f, Space.parse({'depth': [1, 2]}), ['error'], 0.5).fingerprint())"
    )
    printed = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(printed) == 1
    assert printed.pop().startswith("function ")


# Virtual time


def simulated(depth: int, rate: float) -> Iterator[dict[str, float]]:
    for step in (1, 2, 3):
        yield {"error": 1 / step, "elapsed_s": 10.0 * step}
    return {"error": 0.25, "time_s": 40.0}


def virtual(function: Callable[..., Any] = simulated, **more: Any) -> Any:
    return job(function, virtual=True, **more).start(dict(CHOSEN), 1)


def test_virtual_time_is_the_one_reported(follow: Follow) -> None:
    shown, outcome = follow(virtual(setup_s=5.0), until_s=1000)
    assert [p.elapsed_s for p in shown] == [15.0, 25.0, 35.0]
    assert outcome == Outcome(FINISHED, 45.0, {"error": 0.25})


def test_virtual_time_may_be_cut_before_what_was_already_told() -> None:
    run = virtual()
    for _ in range(4):
        last = run.next(float("inf"))
    assert isinstance(last, Outcome)
    assert run.cut(22.0, "too slow") == Outcome(CUT, 22.0, {"error": 0.5}, "too slow")


def test_a_virtual_generator_is_closed_by_a_cut() -> None:
    closed = []

    def steps(configuration: dict[str, Any]) -> Iterator[dict[str, float]]:
        try:
            for step in range(100):
                yield {"error": 1.0, "elapsed_s": step}
        finally:
            closed.append(step)

    assert virtual(steps).cut(50.5, "").measures == {"error": 1.0}
    assert closed == [51]


def test_a_virtual_generator_that_yields_its_end_lasts_until_then(follow: Follow) -> None:
    def steps(configuration: dict[str, Any]) -> Iterator[dict[str, float]]:
        yield {"error": 0.5, "elapsed_s": 7.0}

    assert follow(virtual(steps))[1] == Outcome(FINISHED, 7.0, {"error": 0.5})


@pytest.mark.parametrize(
    "answer", [{"error": 0.5}, 0.5, {"error": 0.5, "time_s": -1}, {"error": 1, "time_s": "1 h"}]
)
def test_a_virtual_function_must_tell_its_time(answer: Any, follow: Follow) -> None:
    outcome = follow(virtual(lambda c: answer))[1]
    assert outcome.status == FAILED
    assert "time_s" in outcome.why


def test_a_virtual_function_that_raises_lasted_as_long_as_it_showed(follow: Follow) -> None:
    def steps(configuration: dict[str, Any]) -> Iterator[dict[str, float]]:
        yield {"error": 0.5, "elapsed_s": 7.0}
        raise MemoryError

    assert follow(virtual(steps))[1] == Outcome(FAILED, 7.0, {"error": 0.5}, "out of memory")


def test_ctrl_c_in_a_virtual_function_is_meant_for_the_study() -> None:
    with pytest.raises(KeyboardInterrupt):
        virtual(raising(KeyboardInterrupt())).next(1.0)
