"""Colours, scales and the best so far, which reports share with the pages of the service."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from prudent.reports.drawing import PALETTE, best_so_far, palette_css, round_scale
from prudent.reports.page import render

NUMBERS = st.floats(-1e12, 1e12)


@given(st.lists(NUMBERS, min_size=1, max_size=40))
def test_a_round_scale_holds_all_values_on_few_even_ticks(values: list[float]) -> None:
    ticks = round_scale(values)
    assert ticks[0] <= min(values)
    assert ticks[-1] >= max(values)
    assert 3 <= len(ticks) <= 10
    gaps = [after - before for before, after in pairwise(ticks)]
    assert max(gaps) - min(gaps) <= 1e-6 * max(gaps)


@given(st.lists(NUMBERS, max_size=40), st.booleans())
def test_the_best_so_far_only_gets_better_and_goes_on_to_the_end(values: list[float], larger: bool) -> None:
    path = best_so_far(list(enumerate(values)), larger)
    heights = [y for _, y in path]
    assert heights == sorted(heights, reverse=not larger)
    if values:
        assert path[-1] == (len(values) - 1, max(values) if larger else min(values))


def test_every_colour_of_a_report_is_defined_for_light_and_dark() -> None:
    style = re.findall(r"<style>(.*?)</style>", render("page.html.j2", [], title=""), re.DOTALL)[0]
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    used = set(re.findall(r"var\((--[\w-]+)\)", style)) - {"--sans", "--mono"}
    assert "--paper" in used
    assert all(used <= set(re.findall(r"(--[\w-]+):", part)) for part in (light, dark))


def test_a_reader_may_choose_dark_against_the_system() -> None:
    chosen = palette_css(switched=True).partition(':root[data-theme="dark"]')[2]
    assert all(f"--{name}: {dark};" in chosen for name, (_, dark) in PALETTE.items())
    assert 'data-theme="light"' not in palette_css()
