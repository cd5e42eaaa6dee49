"""One page with Plotly inside, and the same page with Plotly beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prudent.reports import page
from prudent.reports.tuning import write_tuning_report

ADDRESS = "/static/plotly.js"


@pytest.fixture
def whole(study: Any, tmp_path: Path) -> str:
    return write_tuning_report(*study, tmp_path / "report.html").read_text(encoding="utf-8")


def test_plotly_is_nearly_all_of_a_report_and_can_lie_beside_it(whole: str) -> None:
    light = page.without_plotly(whole, ADDRESS)
    assert len(whole) > 4_000_000
    assert len(light) < 500_000
    assert f'<script id="plotly" src="{ADDRESS}"></script>' in light
    assert "script-src 'self' 'sha256-" in light
    assert page.without_plotly(light, ADDRESS) == light
    assert page.with_plotly(light) == whole
    assert page.with_plotly(whole) == whole


def test_a_newer_plotly_may_run_in_an_older_page(whole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    light = page.without_plotly(whole, ADDRESS)
    monkeypatch.setattr(page, "plotly", lambda: "newer()")
    again = page.with_plotly(light)
    assert '<script id="plotly">newer()</script>' in again
    assert f"script-src 'sha256-{page._digest('newer()')}'" in again


def test_a_page_without_figures_has_no_plotly_to_leave_out() -> None:
    assert page.without_plotly("<h1>None</h1>", ADDRESS) == "<h1>None</h1>"


def test_the_file_for_a_server_is_the_bundle() -> None:
    assert page.plotly_file().read_text(encoding="utf-8").replace("</script", "<\\/script") == page.plotly()
