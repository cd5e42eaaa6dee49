"""Names that do not exist: what is near, and what there is."""

from __future__ import annotations

import pytest

from prudent.core.errors import did_you_mean, unknown


@pytest.mark.parametrize(("count", "more"), [(1, ""), (11, ""), (12, ""), (13, ", …"), (40, ", …")])
def test_a_dozen_of_the_choices_are_shown(count: int, more: str) -> None:
    names = [f"choice{i}" for i in range(count)]
    said = str(unknown("thing", "zebra", names))
    assert said == f'Unknown thing "zebra". Choose one of: {", ".join(names[:12])}{more}.'


@pytest.mark.parametrize(("word", "near"), [("abcXX", True), ("abXXX", False)])
def test_what_shares_three_fifths_is_near(word: str, near: bool) -> None:
    assert bool(did_you_mean(word, ["abcde"])) is near
