"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from prudent.core.files import write_whole


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced(tmp_path: Path, durable: bool) -> None:
    for text in ("one", "zwei ö\n"):
        write_whole(tmp_path / "f", text, durable)
        assert (tmp_path / "f").read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_was_there_stays_where_it_fails(tmp_path: Path, monkeypatch: Any, step: str) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_whole(tmp_path / "f", "before")
    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "f", "after", durable=True)
    assert (tmp_path / "f").read_text() == "before"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize(("durable", "expected"), [(False, []), (True, ["part", "folder"])])
def test_only_what_must_last_is_waited_for(
    tmp_path: Path, monkeypatch: Any, durable: bool, expected: list[str]
) -> None:
    synced: list[str] = []

    def fsync(handle: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "part")

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "f", "text", durable)
    assert synced == expected
