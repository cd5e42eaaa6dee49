"""Columns that tie rows together are read in the order of the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.training.data.links import read_links, rows_at


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text("who,day,hour,y\nann,2026-03-01,1,1\nbob,2026-01-31,3,2\nann,2026-02-15,2,3\n")
    return path


def test_groups_and_times(visits: Path, tmp_path: Path) -> None:
    groups = read_links(visits, None, tmp_path, groups="who").groups
    assert groups.tolist() == ["ann", "bob", "ann"]
    assert np.argsort(read_links(visits, None, tmp_path, time="day").times).tolist() == [1, 2, 0]
    assert read_links(visits, None, tmp_path, time="hour").times.tolist() == [1, 3, 2]
    assert rows_at(visits, None, tmp_path) == 3


def test_what_cannot_tie_rows_is_refused(visits: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match='Did you mean "who"'):
        read_links(visits, None, tmp_path, groups="whom")
    with pytest.raises(BadInput, match="neither a date nor a number"):
        read_links(visits, None, tmp_path, time="who")
    visits.write_text("who,y\nann,1\n,2\n")
    with pytest.raises(BadInput, match="fill it in"):
        read_links(visits, None, tmp_path, groups="who")
    sparse = tmp_path / "rows.libsvm"
    sparse.write_text("1 1:2\n0 2:3\n")
    assert rows_at(sparse, "libsvm", tmp_path) == 2
    with pytest.raises(BadInput, match="libsvm file has no column"):
        read_links(sparse, "libsvm", tmp_path, groups="who")
