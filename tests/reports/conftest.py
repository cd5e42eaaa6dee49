"""Studies of a simulated job, and reports read back as a browser would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.problem import Problem
from prudent.tuning.result import Result
from prudent.tuning.tune import tune

GOAL = "minimise cost_usd subject to time_s <= 200 s and accuracy >= 0.8"
_FACTORS = {"small": 4.0, "large": 1.0}
_VOID = {"meta", "link", "img", "br", "input", "hr", "base"}


def price(configuration: Mapping[str, Any]) -> Price:
    rate = {"small": 0.5, "large": 3.0}[configuration["machine"]]
    return Price(rate * configuration["workers"], "2025-01-31", "list of tests")


def simulated(machine: str, workers: int, rate: float) -> dict[str, float]:
    """Fast with many large machines; accurate near the middle rate."""
    distance = abs(len(f"{1 / rate:.0f}") - 3)
    accuracy = 0.95 - 0.13 * distance - 0.004 * workers
    return {"time_s": 75.0 * _FACTORS[machine] * (1 + distance / 2) / workers**0.8, "accuracy": accuracy}


def space() -> Space:
    return Space.parse(
        {"machine": ["small", "large"], "workers": [1, 2, 4, 8], "rate": {"values": [1e-4, 1e-3, 1e-2, 1e-1]}}
    )


def job(function: Any = simulated, name: str = "simulated") -> FunctionJob:
    return FunctionJob(function, space(), ["accuracy"], price, name=name, virtual=True)


def problem_of(job: FunctionJob, goal: str = GOAL) -> Problem:
    return Problem(job.space, Goal.parse(goal), job.price, job.measures)


@pytest.fixture(scope="session")
def study() -> tuple[Result, Problem]:
    """Runs that finished, were cut and failed; by random search, lest a model decide what is tested."""

    def sometimes(machine: str, workers: int, rate: float) -> dict[str, float]:
        if machine == "large" and rate == 0.1:
            raise MemoryError("no room for <tensors> & such")
        return simulated(machine, workers, rate)

    one = job(sometimes)
    return tune(one, GOAL, budget_usd=1.0, strategy="random", seed=5), problem_of(one)


@dataclass
class Element:
    """What a browser makes of the page: a tag with its attributes, children and text."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[Element]:
        found = [self] if self.tag == tag else []
        return found + [element for child in self.children for element in child.all(tag)]

    def named(self, name: str) -> Element:
        return next(element for element in self.everything() if element.attributes.get("id") == name)

    def everything(self) -> list[Element]:
        return [self, *(element for child in self.children for element in child.everything())]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("document", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        while len(self._open) > 1:
            if self._open.pop().tag == tag:
                return

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.texts.append(data)


def read(page: str) -> Element:
    reader = _Reader()
    reader.feed(page)
    return reader.root


def figures(document: Element) -> dict[str, Any]:
    """Every figure by its name, as Plotly will get it."""
    return {
        element.attributes["id"]: json.loads("".join(element.all("script")[0].texts))
        for element in document.everything()
        if element.attributes.get("class") == "figure"
    }


def values(row: Element) -> list[float | None]:
    """The exact numbers of a row."""
    cells = [cell.attributes["data-value"] for cell in row.all("td") if "data-value" in cell.attributes]
    return [float(cell) if cell else None for cell in cells]


@pytest.fixture(scope="session")
def kit() -> Any:
    """The functions above, for tests: modules of tests cannot import each other."""
    return SimpleNamespace(
        read=read, figures=figures, values=values, job=job, problem_of=problem_of, space=space, GOAL=GOAL
    )
