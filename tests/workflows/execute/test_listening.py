"""What listens while a plan is executed on this machine, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, Plan, Workflow
from prudent.workflows.execute.runner import execute

from ...running import strangers
from ...running.listening import Watch, words_of


def test_only_loopback_is_listened_at_and_strangers_are_sent_away(
    step: Callable[..., Activation],
    plan_for: Callable[..., Plan],
    ground: Path,
    tmp_path: Path,
    only_loopback: Watch,
) -> None:
    """While a command runs, a scheduler and two workers each have one port; there is none for pages."""
    workflow = Workflow(
        "waits",
        tuple(step(f"x{at}", "env > $PRUDENT_VM; until [ -e go ]; do sleep 0.02; done") for at in (1, 2)),
    )
    victims = tmp_path / "victims"
    victims.mkdir()
    begun: set[str] = set()

    def watch(fact: dict[str, Any]) -> None:
        if fact["fact"] == "started":
            begun.add(fact["vm"])
        if begun == {"v1", "v2"} and not (ground / "go").exists():
            try:
                speak()
            finally:
                (ground / "go").touch()

    def speak() -> None:
        ports = {port.number for port in only_loopback.look()}
        assert len(ports) == 3
        assert "taken" not in strangers.order_dask(sorted(ports), victims)
        for port in ports:
            assert strangers.without_certificate(port) == b""
            assert strangers.answer(port, strangers.NOBODYS) == b""
        words = words_of(psutil.Process().children(recursive=True))
        assert not any("PRIVATE" in word for word in words)

    run = execute(plan_for(workflow), workflow, tmp_path / "run", directory=ground, watch=watch)
    assert run.succeeded
    assert begun == {"v1", "v2"}
    assert list(victims.iterdir()) == []
    assert "PRIVATE" not in (ground / "v1").read_text()


def test_a_scheduler_of_others_is_told_of_when_it_wants_certificates(
    site: Any, letters: Workflow, plan_for: Callable[..., Plan], ground: Path, tmp_path: Path
) -> None:
    none = dict.fromkeys(f"distributed.comm.tls.{name}" for name in ("ca-file", "client.cert", "client.key"))
    with (
        dask.config.set(none),
        pytest.raises(BadInput, match=r"wants a certificate.*distributed\.comm\.tls") as caught,
    ):
        execute(plan_for(letters), letters, tmp_path / "run", directory=ground, address=site.address)
    assert "\n" not in str(caught.value)
