"""Of ready jobs, those go first on which the most waits, on machines that end them in time for little."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.workflows import Fleet, Vm
from prudent.workflows.ready import MachinePool, ReadyJob, in_order, longest_paths, select


def test_paths_of_a_diamond():
    parents = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
    paths = longest_paths(parents, {"a": 1.0, "b": 10.0, "c": 2.0, "d": 3.0})
    assert paths == {"a": 14.0, "b": 13.0, "c": 5.0, "d": 3.0}


def test_the_author_goes_before_any_path():
    jobs = [ReadyJob("long", 1, 100), ReadyJob("asked", 1, 1, priority=5), ReadyJob("short", 1, 2)]
    assert [job.key for job in in_order(jobs)] == ["asked", "long", "short"]


def test_what_does_not_fit_lets_others_pass():
    wide = ReadyJob("wide", 1, 100, {"_cores": 4, "mem_mb": 10})
    small = ReadyJob("small", 1, 50, {"_cores": 1, "mem_mb": 10})
    big = ReadyJob("big", 1, 10, {"_cores": 1, "mem_mb": 95})
    chosen = select([big, small, wide], {"_cores": 2, "mem_mb": 100})
    assert [job.key for job in chosen] == ["small"]
    assert [job.key for job in select([big], {"_cores": 2})] == ["big"], "nobody limits memory here"


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50), st.floats(0, 100)), max_size=12),
    st.integers(0, 8),
    st.integers(0, 100),
)
def test_never_more_than_is_free(wants, cores, memory_mb):
    jobs = [ReadyJob(at, 1, path, {"_cores": c, "mem_mb": m}) for at, (c, m, path) in enumerate(wants)]
    chosen = select(jobs, {"_cores": cores, "mem_mb": memory_mb})
    assert sum(job.holds["_cores"] for job in chosen) <= cores
    assert sum(job.holds["mem_mb"] for job in chosen) <= memory_mb
    left = [job for job in jobs if job not in chosen]
    held = sum(job.holds["_cores"] for job in chosen), sum(job.holds["mem_mb"] for job in chosen)
    for job in left:
        assert held[0] + job.holds["_cores"] > cores or held[1] + job.holds["mem_mb"] > memory_mb


def fleet() -> Fleet:
    fast = Vm("fast-1", "fast", 8000, usd_per_h=4.0, vcpus=2, memory_gb=8)
    slow = Vm("slow-1", "slow", 2000, usd_per_h=0.5, vcpus=2, memory_gb=8)
    return Fleet((fast, slow))


def test_the_longest_path_takes_the_fast_machine_and_the_rest_the_cheap_one():
    pool = MachinePool(fleet())
    urgent = ReadyJob("urgent", 100, 400, {"_cores": 1, "mem_mb": 1000})
    idle = ReadyJob("idle", 100, 100, {"_cores": 1, "mem_mb": 1000})
    assert pool.place(urgent, slack_s=0).name == "fast-1"
    assert pool.place(idle, slack_s=300).name == "slow-1"
    assert pool.running == {"urgent", "idle"}


def test_a_machine_that_is_full_takes_nothing_until_something_ends():
    pool = MachinePool(Fleet((fleet().vms[0],)))
    both = ReadyJob("both", 1, 1, {"_cores": 2})
    assert pool.place(both, 0).name == "fast-1"
    assert pool.place(ReadyJob("more", 1, 1), 0) is None
    pool.release("both")
    large = ReadyJob("large", 1, 1, {"mem_mb": 7000})
    assert pool.place(large, 0) is not None
    assert pool.place(ReadyJob("other", 1, 1, {"mem_mb": 2000}), 0) is None


def test_what_fits_nowhere_is_told():
    pool = MachinePool(fleet())
    pool.refuse_what_never_fits(ReadyJob("fits", 1, 1, {"_cores": 2, "mem_mb": 8000}))
    with pytest.raises(BadInput, match="needs 3 cores"):
        pool.refuse_what_never_fits(ReadyJob("wide", 1, 1, {"_cores": 3}))
