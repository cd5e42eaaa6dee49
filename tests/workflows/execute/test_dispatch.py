"""Following a plan is a pure matter: every order of events keeps the plan's promises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.workflows import Activation, Fleet, Vm, Workflow, World, schedule
from prudent.workflows.execute.dispatch import MAX_LOSSES, ActivationStart, Dispatcher
from prudent.workflows.execute.replanner import replan
from prudent.workflows.execute.run import planned_queues
from prudent.workflows.formats.generate import generate

A, B = ("v1", 0), ("v2", 0)


def chain() -> Workflow:
    names = ("a", "b", "c", "d")
    return Workflow(
        "diamond",
        tuple(Activation(name, runtime_s=1) for name in names),
        (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")),
    )


def test_a_lane_waits_for_its_first_and_parents_come_before_children() -> None:
    dispatcher = Dispatcher(chain(), {A: ["a", "b", "d"], B: ["c"]})
    assert dispatcher.starts() == [ActivationStart("a", A, 1)]
    assert dispatcher.starts() == []
    dispatcher.finish("a")
    assert {start.activation for start in dispatcher.starts()} == {"b", "c"}
    dispatcher.finish("b")
    assert dispatcher.starts() == []
    dispatcher.finish("c")
    assert [start.activation for start in dispatcher.starts()] == ["d"]
    dispatcher.finish("d")
    assert dispatcher.over


def test_a_failure_is_tried_again_on_its_lane_and_then_blocks_only_what_is_behind_it() -> None:
    dispatcher = Dispatcher(chain(), {A: ["a", "b", "d"], B: ["c"]}, retries=1)
    dispatcher.starts()
    dispatcher.finish("a")
    dispatcher.starts()
    assert dispatcher.fail("b")
    assert dispatcher.starts() == [ActivationStart("b", A, 2)]
    assert not dispatcher.fail("b")
    assert dispatcher.given_up == {"b"}
    assert dispatcher.blocked == {"d": "b"}
    assert list(dispatcher.running) == ["c"], "what does not depend on it goes on"
    dispatcher.finish("c")
    assert dispatcher.over


def test_a_lost_vm_leaves_orphans_until_they_are_placed() -> None:
    dispatcher = Dispatcher(chain(), {A: ["a", "b", "d"], B: ["c"]})
    dispatcher.starts()
    assert dispatcher.lose_vm("v1") == ["a"]
    assert dispatcher.orphaned == ["a", "b", "d"]
    dispatcher.replace_queues({B: ["a", "b", "c", "d"]})
    assert dispatcher.orphaned == []
    assert dispatcher.starts() == [ActivationStart("a", B, 2)]


def test_a_new_plan_that_forgets_somebody_is_refused() -> None:
    dispatcher = Dispatcher(chain(), {A: ["a", "b", "d"], B: ["c"]})
    with pytest.raises(AssertionError, match="hold"):
        dispatcher.replace_queues({B: ["a", "b", "c"]})


def test_an_activation_that_takes_its_vms_down_is_given_up() -> None:
    vms = [f"v{at}" for at in range(MAX_LOSSES)]
    dispatcher = Dispatcher(chain(), {(vms[0], 0): ["a", "b", "c", "d"]})
    for at, vm in enumerate(vms):
        assert dispatcher.starts()[0].activation == "a"
        dispatcher.lose_vm(vm)
        if at + 1 < len(vms):
            dispatcher.replace_queues({(vms[at + 1], 0): dispatcher.waiting})
    assert dispatcher.given_up == {"a"}
    assert set(dispatcher.blocked) == {"b", "c", "d"}
    assert dispatcher.over


def test_what_is_done_already_is_not_waited_for() -> None:
    dispatcher = Dispatcher(chain(), {A: ["d"]}, done=["a", "b", "c"], attempts={"d": 2})
    assert dispatcher.starts() == [ActivationStart("d", A, 3)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(13, 40), shape=st.sampled_from(["montage", "sipht", "inspiral"]))
def test_any_order_of_ends_failures_and_losses_leads_to_an_end(
    data: st.DataObject, size: int, shape: str
) -> None:
    """No activation runs before its parents, two never share a slot, and everything is accounted for."""
    workflow = generate(shape, size, seed=1)
    fleet = Fleet(tuple(Vm(f"v{at}", "m", 1000 * (1 + at), slots=1 + at % 2) for at in range(4)))
    plan = schedule(workflow, fleet, World(), scheduler="heft")
    dispatcher = Dispatcher(workflow, planned_queues(plan, workflow, workflow.index), retries=1)
    alive = list(fleet.vms)
    begun: set[str] = set()
    while True:
        for start in dispatcher.starts():
            assert all(parent in dispatcher.done for parent in workflow.parents[start.activation])
            assert start.lane[0] in {vm.name for vm in alive}
            begun.add(start.activation)
        lanes = list(dispatcher.running.values())
        assert len(lanes) == len(set(lanes))
        if dispatcher.over:
            break
        what = data.draw(st.sampled_from(["end"] * 6 + ["fail", "lose"]))
        if what == "lose" and len(alive) > 1:
            gone = alive.pop(data.draw(st.integers(0, len(alive) - 1)))
            dispatcher.lose_vm(gone.name)
            if dispatcher.orphaned:
                running = {name: (lane, 0.5) for name, lane in dispatcher.running.items()}
                dispatcher.replace_queues(
                    replan(workflow, Fleet(tuple(alive)), World(), set(dispatcher.waiting), running)
                )
            continue
        name = data.draw(st.sampled_from(sorted(dispatcher.running)))
        dispatcher.fail(name) if what == "fail" else dispatcher.finish(name)
    assert dispatcher.done | dispatcher.given_up | set(dispatcher.blocked) == set(workflow.index)
    assert not dispatcher.done & set(dispatcher.blocked)
    assert begun >= dispatcher.done


class TestReplan:
    """Better than heaping everything onto the next machine."""

    def test_slots_that_are_busy_count_as_busy(self) -> None:
        workflow = Workflow("two", (Activation("long", runtime_s=100), Activation("x", runtime_s=10)))
        fleet = Fleet((Vm("v1", "m"), Vm("v2", "m")))
        queues = replan(workflow, fleet, World(), {"x"}, {"long": (("v1", 0), 5.0)})
        assert queues == {("v1", 0): [], ("v2", 0): ["x"]}

    def test_an_activation_that_is_nearly_done_frees_its_slot_soon(self) -> None:
        workflow = Workflow("two", (Activation("long", runtime_s=100), Activation("x", runtime_s=10)))
        fleet = Fleet((Vm("v1", "fast", 8000), Vm("v2", "slow", 100)))
        queues = replan(workflow, fleet, World(), {"x"}, {"long": (("v1", 0), 12.0)})
        assert queues["v1", 0] == ["x"]

    def test_the_work_is_shared_by_speed(self) -> None:
        workflow = Workflow("many", tuple(Activation(f"x{at}", runtime_s=10) for at in range(10)))
        fleet = Fleet((Vm("v1", "fast", 4000), Vm("v2", "slow", 1000)))
        queues = replan(workflow, fleet, World(), set(workflow.index), {})
        assert (len(queues["v1", 0]), len(queues["v2", 0])) == (8, 2)
