"""What runs did to their machines: records of it, joined, and from the counters of machines."""

from __future__ import annotations

import math
from typing import Any

import pytest

from prudent.cloud.machine_sampler import MachineSampler, begin_all, end_all, readings_between
from prudent.cloud.readings import NAMES, Readings
from prudent.core.errors import BadInput, RunFailed


def told(readings: Readings | None) -> dict[str, float]:
    """What was read, without the last digits."""
    assert readings is not None
    return {name: round(value, 9) for name, value in readings.to_dict().items()}


def test_readings_are_given_back_as_they_were() -> None:
    readings = Readings(cpu_share=0.5, memory_peak_mb=800.0, others={"gpu_share": 0.9})
    assert Readings.of(readings.to_dict()) == readings
    assert set(readings.to_dict()) == {"cpu_share", "memory_peak_mb", "gpu_share"}
    assert all(name.endswith(("_share", "_mb", "_mb_s")) for name in NAMES)


@pytest.mark.parametrize("value", [math.nan, math.inf, "much", True, None])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match=r"The reading gpu_share is .* leave it out"):
        Readings(others={"gpu_share": value})


def test_the_mean_of_runs_is_over_those_that_have_the_reading() -> None:
    one, other = Readings(cpu_share=0.2, memory_peak_mb=100.0), Readings(cpu_share=0.4)
    assert told(Readings.mean([one, None, other])) == {"cpu_share": 0.3, "memory_peak_mb": 100.0}
    assert Readings.mean([None, None]) is None


def test_of_several_machines_the_fullest_one_counts() -> None:
    one = Readings(cpu_share=0.2, memory_peak_mb=100.0, memory_share=0.9)
    other = Readings(cpu_share=0.4, memory_peak_mb=300.0, memory_share=0.3)
    together = told(Readings.of_machines([one, other]))
    assert together == {"cpu_share": 0.3, "memory_peak_mb": 300.0, "memory_share": 0.9}


def counters(up_s: float, busy: int, idle: int, faults: int, used_kb: int, moved: int) -> str:
    """What a machine with one disk and two networks says of itself."""
    return f"""up {up_s} 99.00
cpu  {busy} 0 0 {idle} 0 0 0 0 0 0
pgmajfault {faults}
MemTotal:       4000000 kB
MemAvailable:   {4000000 - used_kb} kB
net Inter-|   Receive                                                |  Transmit
net  face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls
net     lo: {9 * moved} 7 0 0 0 0 0 0 {9 * moved} 7 0 0 0 0 0 0
net docker0: {9 * moved} 7 0 0 0 0 0 0 {9 * moved} 7 0 0 0 0 0 0
net   eth0:{moved} 7 0 0 0 0 0 0 {3 * moved} 7 0 0 0 0 0 0
disk 5 0 {2 * moved // 512} 9 5 0 {moved // 512} 9 0 9 9
page 4096
"""


def test_what_a_machine_did_is_the_difference_of_its_counters() -> None:
    before = counters(1000.0, 500, 9000, 10, 1_000_000, 0)
    after = counters(1010.0, 2000, 9500, 5010, 1_500_000, 10_240_000)
    assert told(readings_between(before, after + "peak 3000000\n")) == {
        "cpu_share": 0.75,
        "memory_peak_mb": 3072.0,
        "memory_share": 0.75,
        "paging_mb_s": 2.048,
        "disk_read_mb_s": 2.048,
        "disk_write_mb_s": 1.024,
        "network_mb_s": 4.096,
    }
    # Nobody has looked meanwhile: the end counts.
    assert told(readings_between(before, after))["memory_share"] == 0.375


@pytest.mark.parametrize("after", ["", "up 1010", "cpu  x", "sh: cannot open /proc/uptime"])
def test_a_machine_that_does_not_tell_has_no_readings(after: str) -> None:
    assert readings_between(counters(1000.0, 500, 9000, 10, 1_000_000, 0), after) is None
    assert readings_between(after, counters(1000.0, 500, 9000, 10, 1_000_000, 0)) is None


class DeafChannel:
    """A machine that does nothing that it is told."""

    def run(self, command: str, environment: None = None, timeout_s: float = 60.0) -> tuple[int, str, str]:
        raise RunFailed("The machine is busy; wait.")


def test_a_machine_that_does_not_answer_has_no_readings() -> None:
    channel: Any = DeafChannel()
    assert MachineSampler(channel, "readings").end() is None
    assert end_all(begin_all([channel, channel], [], "readings")) is None
