"""Hand-worked runs: every storage, overhead, failure, boot and bill."""

from __future__ import annotations

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, File, Fleet, Vm, Workflow, World, schedule, simulate


def times(execution) -> dict[str, tuple[str, float, float]]:
    return {a.activation: (a.vm, a.start_s, a.finish_s) for a in execution.assignments.values()}


def single(runtime_s: float = 10.0) -> Workflow:
    return Workflow("one", (Activation("a", runtime_s=runtime_s),))


def independent(*runtimes_s: float) -> Workflow:
    return Workflow("many", tuple(Activation(f"t{at}", runtime_s=r) for at, r in enumerate(runtimes_s)))


ONE = Fleet((Vm("v", "m", usd_per_h=3600.0),))


def test_shared_storage_pays_for_every_input(diamond, pair):
    # 15 MB/s: a stages 1 s, b and c 2 s, d 4 s. fcfs takes the slow VM first.
    execution = simulate(diamond, pair, World(bandwidth_mb_s=15), "fcfs")
    assert times(execution) == {
        "a": ("slow", 0, 5),
        "b": ("slow", 5, 15),
        "c": ("fast", 5, 10),
        "d": ("slow", 15, 21),
    }
    assert execution.makespan_s == 21
    assert execution.busy_s == 5 + 10 + 5 + 6
    assert execution.moved_bytes == 135e6
    assert execution.utilisation == pytest.approx(26 / 42)
    assert execution.succeeded


def test_local_storage_pays_only_for_what_is_not_there(diamond, pair):
    # b finds its input on slow; c moves 30 MB to fast; d finds bd on slow and moves cd.
    execution = simulate(diamond, pair, World(storage="local", bandwidth_mb_s=15), "fcfs")
    assert times(execution) == {
        "a": ("slow", 0, 5),
        "b": ("slow", 5, 13),
        "c": ("fast", 5, 10),
        "d": ("slow", 13, 17),
    }
    assert execution.moved_bytes == 75e6


def test_local_storage_keeps_replicas_of_inputs():
    big = File("big", 60e6)
    workflow = Workflow("w", tuple(Activation(f"t{at}", runtime_s=1, inputs=(big,)) for at in range(3)))
    execution = simulate(workflow, ONE, World(storage="local", bandwidth_mb_s=6), "fcfs")
    assert execution.makespan_s == 10 + 3
    assert execution.moved_bytes == 60e6


def test_network_moves_files_while_the_receiver_works(pair):
    workflow = Workflow(
        "w",
        (
            Activation("a", runtime_s=2, outputs=(File("x", 30e6),)),
            Activation("b", runtime_s=10),
            Activation("c", runtime_s=4, inputs=(File("x", 30e6),)),
        ),
    )
    world = World(storage="network", bandwidth_mb_s=10)
    execution = simulate(workflow, pair, world, "fcfs")
    # a on slow until 2; b on fast until 5; c is ready at 2 and stays on slow, where the file already is.
    assert times(execution)["c"] == ("slow", 2, 6)
    assert execution.moved_bytes == 0
    pinned = simulate(workflow, Fleet((Vm("x", "m"), Vm("y", "m"))), world, "round-robin")
    # c goes to x again in turn order x, y, x.
    assert times(pinned)["c"][0] == "x"


def test_what_is_written_by_itself_is_not_staged():
    workflow = Workflow(
        "w", (Activation("a", runtime_s=1, inputs=(File("x", 9e6),), outputs=(File("x", 9e6),)),)
    )
    assert simulate(workflow, ONE, World(bandwidth_mb_s=1), "fcfs").makespan_s == 1


def test_speed_and_known_run_times():
    fleet = Fleet((Vm("v", "quick", 4000),))
    assert simulate(single(8), fleet, World(), "fcfs").makespan_s == 2
    known = single(8).with_runtimes({"a": {"quick": 5.0}})
    assert simulate(known, fleet, World(), "fcfs").makespan_s == 5


def test_slots_run_side_by_side():
    fleet = Fleet((Vm("v", "m", slots=2),))
    execution = simulate(independent(4, 4, 4), fleet, World(), "fcfs")
    assert execution.makespan_s == 8
    assert {a.slot for a in execution.assignments.values()} == {0, 1}


def test_overheads_add_up():
    workflow = Workflow("w", (Activation("a", runtime_s=10), Activation("b", runtime_s=20)), (("a", "b"),))
    world = World(engine_s=1, queue_s=2, post_s=4)
    execution = simulate(workflow, ONE, world, "fcfs")
    # a: ready 1, holds the VM 2 + 10; post 4; b: engine 1, then 2 + 20.
    assert times(execution) == {"a": ("v", 1, 13), "b": ("v", 18, 40)}


def test_clustering_delay_only_for_merged_activations():
    merged = Workflow("w", (Activation("a", runtime_s=10, members=("x", "y")),))
    assert simulate(merged, ONE, World(clustering_s=3), "fcfs").makespan_s == 13
    assert simulate(single(), ONE, World(clustering_s=3), "fcfs").makespan_s == 10


def test_boot_at_start_and_at_first_use():
    late = World(boot_s=30)
    assert simulate(single(), ONE, late, "fcfs").makespan_s == 40
    workflow = Workflow("w", (Activation("a", runtime_s=10), Activation("b", runtime_s=10)), (("a", "b"),))
    fleet = Fleet((Vm("u", "m", usd_per_h=3600.0), Vm("v", "m", usd_per_h=3600.0)))
    first_use = World(boot_s=30, boot="first-use")
    execution = simulate(workflow, fleet, first_use, "round-robin")
    assert times(execution) == {"a": ("u", 30, 40), "b": ("v", 70, 80)}
    # u from 0 to 40, v from its boot at 40 to 80.
    assert execution.cost_usd == pytest.approx(80)


@pytest.mark.parametrize(
    ("world", "vm", "dollars"),
    [
        (World(), Vm("v", "m", usd_per_h=3600.0), 10),
        (World(), Vm("v", "m", usd_per_h=3600.0, minimum_s=60), 60),
        (World(billing="hour"), Vm("v", "m", usd_per_h=3600.0), 3600),
        (World(boot_s=5), Vm("v", "m", usd_per_h=3600.0), 15),
    ],
)
def test_bills(world, vm, dollars):
    assert simulate(single(), Fleet((vm,)), world, "fcfs").cost_usd == pytest.approx(dollars)


def test_an_hour_is_one_hour_and_unused_vms_are_free():
    fleet = Fleet((Vm("u", "m", usd_per_h=1.0), Vm("v", "m", usd_per_h=1.0)))
    execution = simulate(single(3600), fleet, World(billing="hour"), "fcfs")
    assert execution.cost_usd == pytest.approx(1.0)


def test_failing_activations_are_tried_again():
    world = World(failure_rate=0.3, retries=20)
    workflow = independent(*[5.0] * 40)
    execution = simulate(workflow, ONE, world, "fcfs", seed=3)
    assert execution.succeeded
    assert execution.retries > 5
    assert len(execution.timeline) == 40 + execution.retries
    failed = [attempt for attempt in execution.timeline if attempt.outcome == "failed"]
    assert all(attempt.finish_s - attempt.start_s < 5 for attempt in failed)
    assert execution.busy_s == pytest.approx(200 + sum(a.finish_s - a.start_s for a in failed))


def test_too_many_failures_end_the_run_but_keep_the_rest():
    world = World(failure_rate=0.9, retries=0)
    chain = Workflow("w", (Activation("a", runtime_s=1), Activation("b", runtime_s=1)), (("a", "b"),))
    seen = [simulate(chain, ONE, world, "fcfs", seed=seed) for seed in range(20)]
    lost = [execution for execution in seen if "a" in execution.unfinished]
    assert lost
    assert all(not execution.succeeded and execution.unfinished == ("a", "b") for execution in lost)


def test_a_broken_vm_boots_again_and_loses_its_work():
    fleet = Fleet((Vm("v", "m"),))
    world = World(vm_lifetime_s="weibull(8, 25)", boot_s=5)
    execution = simulate(independent(*[8.0] * 12), fleet, world, "fcfs", seed=1)
    assert execution.succeeded
    lost = [attempt for attempt in execution.timeline if attempt.outcome == "lost"]
    assert lost
    for attempt in lost:
        later = [other.start_s for other in execution.timeline if other.start_s > attempt.start_s]
        assert min(later) >= attempt.finish_s + 5


def test_a_spot_vm_is_gone_and_its_plan_goes_to_others():
    fleet = Fleet((Vm("s", "m", 4000, spot=True), Vm("v", "m")))
    workflow = independent(*[10.0] * 12)
    plan = schedule(workflow, fleet, World(), scheduler="heft")
    assert sum(a.vm == "s" for a in plan.assignments.values()) > 6
    execution = simulate(workflow, fleet, World(spot_lifetime_s=6), plan, seed=1)
    assert execution.succeeded
    on_spot = [a for a in execution.assignments.values() if a.vm == "s"]
    assert len(on_spot) == 2
    assert max(a.finish_s for a in on_spot) <= 6


def test_no_machine_left():
    fleet = Fleet((Vm("s", "m", spot=True),))
    execution = simulate(independent(10, 10), fleet, World(spot_lifetime_s=15), "fcfs")
    assert execution.unfinished == ("t1",)


def test_speed_of_each_vm_and_drift():
    fast = simulate(single(), ONE, World(speed="2"), "fcfs")
    assert fast.makespan_s == 5
    drifting = [
        simulate(
            single(100), ONE, World(drift="lognormal(1, 0.5)", drift_period_s=10), "fcfs", seed=seed
        ).makespan_s
        for seed in range(30)
    ]
    assert len(set(drifting)) == 30
    assert 60 < sum(drifting) / 30 < 130


def test_luck_belongs_to_the_seed_not_to_the_scheduler():
    world = World(speed="lognormal(1, 0.3)", failure_rate=0.1, queue_s="gamma(2, 1)")
    workflow = independent(*[5.0] * 30)
    fleet = Fleet.parse("3*m3.medium")
    first = simulate(workflow, fleet, world, "fcfs", seed=5)
    again = simulate(workflow, fleet, world, "fcfs", seed=5)
    other = simulate(workflow, fleet, world, "fcfs", seed=6)
    assert first.timeline == again.timeline
    assert first.makespan_s != other.makespan_s
    by_rule = simulate(workflow, fleet, world, "max-min", seed=5)
    assert by_rule.retries == first.retries


def test_bad_requests(diamond, pair):
    with pytest.raises(BadInput, match=r'scheduler "hfet". Did you mean "heft"'):
        simulate(diamond, pair, World(), "hfet")
    with pytest.raises(BadInput, match='"heft" has no option "depth"'):
        schedule(diamond, pair, World(), scheduler="heft", options={"depth": 3})
    with pytest.raises(BadInput, match='option of q-learning "episods"'):
        schedule(diamond, pair, World(), scheduler="q-learning", options={"episods": 3})
