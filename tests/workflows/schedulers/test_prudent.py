"""The prudent scheduler: never worse than the classics, near the optimum, within its limits, adaptive."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput, RunFailed
from prudent.workflows import Activation, Fleet, Plan, Vm, Workflow, World, schedule, simulate
from prudent.workflows.formats.generate import generate, shapes
from prudent.workflows.plan import ParetoPoint, pareto_front
from prudent.workflows.schedulers.bounds import least_cost_usd, lower_bounds
from prudent.workflows.schedulers.list_scheduling import priority_order
from prudent.workflows.schedulers.prudent import PrudentScheduler, cooling_for, objective_for
from prudent.workflows.schedulers.registry import BASELINES
from prudent.workflows.scheduling import alternative, evaluate
from prudent.workflows.search.anneal import SearchMemory, SearchObjective, anneal, energy, makespan_limit_s
from prudent.workflows.search.searcher import EvaluatedPlacement, PlacementSearch
from prudent.workflows.search.walk import candidate_plan, search_arrays
from prudent.workflows.simulation.problem import Placement, build_problem, sample_world
from prudent.workflows.simulation.records import ADAPTIVE, PLAN
from prudent.workflows.simulation.simulator import run_simulation

FLEET = Fleet(
    tuple(
        Vm(f"v{at}", f"m{at % 2}", 1000 + 3000 * (at % 2), usd_per_h=1 + 7 * (at % 2), minimum_s=60)
        for at in range(5)
    )
)
UNKNOWN = World(speed="lognormal(1, 0.3)", failure_rate=0.02)
QUICK = {"evaluations": 20_000}
ROUNDING = 1e-9
WORLDS = [
    World(bandwidth_mb_s=20, engine_s=1, queue_s=2, post_s=0.5, boot_s=30),
    World(boot="first-use", boot_s=20, billing="hour"),
    World(storage="local", bandwidth_mb_s=20),
    World(storage="network", bandwidth_mb_s=20),
]


def optimum_s(workflow: Workflow, fleet: Fleet) -> float:
    """The best makespan over all placements and orders: branch and bound, without transfers."""
    run_s = [[a.runtime_s / vm.speed for vm in fleet.vms] for a in workflow.activations]
    parents = [[workflow.index[p] for p in workflow.parents[a.id]] for a in workflow.activations]
    best = math.inf

    def extend(finish: dict[int, float], free: list[float], after_s: float) -> None:
        nonlocal best
        if len(finish) == len(run_s):
            best = min(best, max(finish.values()))
        for task in set(range(len(run_s))) - set(finish):
            if any(parent not in finish for parent in parents[task]):
                continue
            ready_s = max((finish[parent] for parent in parents[task]), default=0.0)
            for lane, free_s in enumerate(free):
                start_s = max(ready_s, free_s)
                if start_s >= after_s and start_s + run_s[task][lane] < best:
                    end_s = start_s + run_s[task][lane]
                    extend({**finish, task: end_s}, [*free[:lane], end_s, *free[lane + 1 :]], start_s)

    extend({}, [0.0] * len(fleet), 0.0)
    return best


def random_problem(rng: np.random.Generator, most: int) -> tuple[Workflow, Fleet]:
    size = int(rng.integers(2, most + 1))
    edges = tuple((f"t{a}", f"t{b}") for b in range(size) for a in range(b) if rng.random() < 0.3)
    activations = tuple(Activation(f"t{at}", runtime_s=float(rng.integers(1, 30))) for at in range(size))
    speeds = rng.choice([500, 1000, 2000, 4156], size=int(rng.integers(1, 4)))
    vms = tuple(Vm(f"v{at}", f"m{at}", float(speed)) for at, speed in enumerate(speeds))
    return Workflow("random", activations, edges), Fleet(vms)


def test_within_one_per_cent_of_the_optimum():
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(25):
        workflow, fleet = random_problem(rng, most=7)
        plan = schedule(workflow, fleet, World(), "prudent", QUICK)
        ratios.append(plan.makespan_s / optimum_s(workflow, fleet))
    assert min(ratios) >= 1 - ROUNDING
    assert np.mean(ratios) <= 1.01


@pytest.mark.parametrize("shape", shapes())
@pytest.mark.parametrize("storage", ["shared", "local", "network"])
def test_never_worse_than_any_baseline(shape, storage):
    workflow, world = generate(shape, 40, seed=2), World(storage, 20)
    plan = schedule(workflow, FLEET, world, options=QUICK, seed=3)
    assert plan.scheduler == "prudent"
    for name in BASELINES:
        classic = schedule(workflow, FLEET, world, scheduler=name, seed=3).makespan_s
        assert plan.makespan_s <= classic + ROUNDING
        assert plan.details["baselines_s"][name] == pytest.approx(classic)
    assert plan.details["lower_bound_s"] == lower_bounds(workflow, FLEET, world).tight_s
    assert plan.makespan_s >= plan.details["lower_bound_s"] - ROUNDING


def test_the_search_finds_what_heft_misses(traces):
    workflow = Workflow.read(traces / "Montage_50.xml")
    fleet = Fleet.parse("8*m3.medium,1*m3.2xlarge", slots="vm")
    heft = schedule(workflow, fleet, World(), "heft")
    assert schedule(workflow, fleet, World(), options={"evaluations": 200_000}).makespan_s < (
        0.94 * heft.makespan_s
    )


def test_more_evaluations_are_not_worse_and_the_seed_decides():
    workflow = generate("cybershake", 50, seed=1)
    spans = [
        schedule(workflow, FLEET, World(), options={"evaluations": count}, seed=1).makespan_s
        for count in (0, 2_000, 200_000)
    ]
    assert spans[2] < spans[0]
    assert spans[1] <= spans[0]
    again = schedule(workflow, FLEET, World(), options={"evaluations": 2_000}, seed=1)
    other = schedule(workflow, FLEET, World(), options={"evaluations": 2_000}, seed=2)
    assert again.makespan_s == spans[1]
    assert again.assignments != other.assignments


def test_it_stops_when_the_bound_is_reached():
    one = Workflow("one", (Activation("a", runtime_s=3),))
    plan = schedule(one, FLEET, World(), options={"front": 0})
    assert plan.makespan_s == plan.details["lower_bound_s"]
    assert plan.details["evaluations"] == 0


def test_a_limit_in_seconds_only_stops_earlier():
    problem = build_problem(generate("montage", 40, seed=2), FLEET, World())
    ticks = itertools.count()
    start = PrudentScheduler(evaluations=0).propose(problem, 0).placement
    aim, cooling = SearchObjective(), cooling_for(40)
    for seconds, tried in ((3.5, 60_000), (1e9, 100_000)):
        searcher = PlacementSearch(problem, 1, seconds, clock=lambda: float(next(ticks)))
        found = searcher.improve(searcher.evaluate(start), aim, cooling, 100_000)
        assert searcher.tried == tried
    sliced, whole = (
        found,
        PlacementSearch(problem, 1).improve(searcher.evaluate(start), aim, cooling, 100_000),
    )
    assert sliced.makespan_s == pytest.approx(whole.makespan_s, rel=0.02)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("slots", [1, 2])
def test_what_the_search_reports_is_what_the_simulator_says(world, slots):
    fleet = Fleet(tuple(Vm(v.name, v.machine, v.mips, slots, v.usd_per_h, 60) for v in FLEET.vms))
    problem = build_problem(generate("epigenomics", 70, seed=3), fleet, world)
    searcher = PlacementSearch(problem, 4)
    rng = np.random.default_rng(8)
    placement = Placement(
        rng.integers(0, len(problem.lanes), len(problem.tasks)),
        priority_order(problem, rng.random(len(problem.tasks))),
    )
    start = searcher.evaluate(placement)
    for objective in ("makespan", "cost"):
        aim = objective_for(objective, start, math.inf, math.inf)
        found = searcher.improve(start, aim, cooling_for(70, 3.0), 5_000)
        assert found.energy(aim) < start.energy(aim)
        trace = run_simulation(problem, sample_world(problem, world, 0), PLAN, placement=found.placement)
        assert (found.makespan_s, found.cost_usd) == (trace.makespan_s, trace.cost_usd)


@pytest.mark.parametrize("world", WORLDS)
def test_the_walk_agrees_with_the_simulator_after_many_changes(world):
    """A search that kept wrong times would drift from the truth with every accepted change."""
    problem = build_problem(generate("epigenomics", 70, seed=3), FLEET, world)
    arrays = search_arrays(problem)
    start = PrudentScheduler(evaluations=0, front=0).propose(problem, 0).placement
    candidate, calm = candidate_plan(arrays, start), sample_world(problem, world, 0)
    random, path, move = np.array([3], dtype=np.uint64), np.zeros(70, np.int64), np.zeros(4, np.int64)
    best = np.full(3, np.inf)
    for objective in ("makespan", "cost"):
        first = run_simulation(problem, calm, PLAN, placement=start)
        begun = EvaluatedPlacement(start, first.makespan_s, first.cost_usd)
        aim = objective_for(objective, begun, math.inf, math.inf)
        lane, order = start.lane.copy(), start.order.copy()
        memory = SearchMemory(random, path, move, lane, order, best)
        anneal(arrays, candidate, aim, cooling_for(70, 10), 3_000, 0.0, memory)
        kept = run_simulation(problem, calm, PLAN, placement=Placement(lane, order))
        assert (best[1], best[2]) == pytest.approx((kept.makespan_s, kept.cost_usd))
        now = run_simulation(problem, calm, PLAN, placement=Placement(candidate.lane, candidate.order))
        assert now.makespan_s == pytest.approx(candidate.finish_s.max())
        assert candidate.start_s == pytest.approx(now.tasks["start_s"])
        best[0] = np.inf


@given(
    makespan_s=st.floats(0, 100),
    cost_usd=st.floats(0, 100),
    deadline_s=st.sampled_from([20.0, math.inf]),
    limit=st.floats(0.1, 1000),
    time_weight=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_the_search_gives_up_only_what_is_too_bad(makespan_s, cost_usd, deadline_s, limit, time_weight):
    aim = SearchObjective(time_weight, 1.0, deadline_s, 3.0 if deadline_s < math.inf else 0.0)
    if energy(aim, makespan_s, cost_usd) <= limit:
        assert makespan_s <= makespan_limit_s(aim, limit) * (1 + ROUNDING) + ROUNDING


@pytest.mark.parametrize("shape", ["montage", "cybershake", "sipht"])
def test_cheaper_by_a_deadline_and_never_late(shape):
    workflow = generate(shape, 60, seed=5)
    heft = schedule(workflow, FLEET, World(), "heft")
    options = {"objective": "cost", "deadline_s": 1.25 * heft.makespan_s, **QUICK}
    plan = schedule(workflow, FLEET, World(), options=options)
    assert plan.makespan_s <= options["deadline_s"]
    assert plan.cost_usd < 0.95 * heft.cost_usd
    assert plan.cost_usd >= least_cost_usd(build_problem(workflow, FLEET, World())) - ROUNDING
    assert plan.policy == "frugal"


def test_as_fast_as_a_budget_allows():
    workflow = generate("montage", 40, seed=2)
    fast = schedule(workflow, FLEET, World(), options=QUICK)
    cheap = schedule(workflow, FLEET, World(), options={"objective": "cost", **QUICK})
    assert cheap.cost_usd < fast.cost_usd
    budget_usd = (cheap.cost_usd + fast.cost_usd) / 2
    plan = schedule(workflow, FLEET, World(), options={"budget_usd": budget_usd, **QUICK})
    assert plan.cost_usd <= budget_usd
    assert fast.makespan_s <= plan.makespan_s <= cheap.makespan_s


def test_the_front_trades_time_for_money(tmp_path):
    workflow = generate("epigenomics", 40, seed=2)
    plan = schedule(workflow, FLEET, World(), options=QUICK)
    assert 2 <= len(plan.front) <= 8
    for fast, cheap in itertools.pairwise(plan.front):
        assert fast.makespan_s < cheap.makespan_s
        assert fast.cost_usd > cheap.cost_usd
    assert plan.front[0].makespan_s <= plan.makespan_s
    for at, point in enumerate(plan.front):
        other = alternative(plan, at, workflow)
        assert (other.makespan_s, other.cost_usd) == pytest.approx((point.makespan_s, point.cost_usd))
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    with pytest.raises(BadInput, match="no number 99"):
        alternative(plan, 99, workflow)
    assert schedule(workflow, FLEET, World(), options={"front": 0, **QUICK}).front == ()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_nothing_on_the_front_is_dominated(pairs):
    front = pareto_front([ParetoPoint(*pair) for pair in pairs])
    for makespan_s, cost_usd in pairs:
        assert any(each.makespan_s <= makespan_s and each.cost_usd <= cost_usd for each in front)
    for one, other in itertools.permutations(front, 2):
        assert not (one.makespan_s <= other.makespan_s and one.cost_usd <= other.cost_usd)


def test_adapting_beats_a_static_plan_in_unknown_worlds():
    ratios = []
    for shape in shapes():
        workflow = generate(shape, 50, seed=6)
        ours = evaluate(schedule(workflow, FLEET, World(), options=QUICK), workflow, world=UNKNOWN, worlds=60)
        theirs = evaluate(schedule(workflow, FLEET, World(), "heft"), workflow, world=UNKNOWN, worlds=60)
        assert ours.mean_s < theirs.mean_s
        assert ours.p95_s < theirs.p95_s
        assert ours.mean_s <= ours.p95_s
        assert ours.finished == theirs.finished == 1.0
        ratios.append(ours.mean_s / theirs.mean_s)
    assert np.exp(np.mean(np.log(ratios))) < 0.9


def test_judging_is_repeatable_and_says_how_often_all_was_done():
    workflow = generate("montage", 25, seed=6)
    plan = schedule(workflow, FLEET, World(), "heft")
    bad = World(failure_rate=0.3, retries=1)
    first, again = (evaluate(plan, workflow, world=bad, worlds=40, seed=3) for _ in range(2))
    assert first.makespans_s.tolist() == again.makespans_s.tolist()
    assert 0 <= first.finished < 1
    calm = evaluate(plan, workflow, worlds=2)
    assert (calm.mean_s, calm.p95_s, calm.mean_usd) == pytest.approx(
        (plan.makespan_s, plan.makespan_s, plan.cost_usd)
    )
    with pytest.raises(BadInput, match="at least one"):
        evaluate(plan, workflow, worlds=0)


@settings(max_examples=20, deadline=None)
@given(shape=st.sampled_from(shapes()), seed=st.integers(0, 99), storage=st.sampled_from(["shared", "local"]))
def test_an_adaptive_plan_is_followed_while_the_world_is_calm(shape, seed, storage):
    workflow, world = generate(shape, 25, seed=seed), World(storage, 20, boot_s=10)
    plan = schedule(workflow, FLEET, world, options={"evaluations": 500, "front": 0})
    assert plan.policy == "adaptive"
    assert simulate(workflow, FLEET, world, plan).assignments == plan.assignments


def test_a_late_vm_loses_its_work():
    """Two equal VMs, four equal activations; one VM turns out to be ten times slower."""
    workflow = Workflow("four", tuple(Activation(f"t{at}", runtime_s=10) for at in range(8)))
    fleet = Fleet((Vm("a", "m"), Vm("b", "m")))
    problem = build_problem(workflow, fleet, World())
    sample = sample_world(problem, World(), 0)
    vms = sample.vms.copy()
    vms["speed"] = [1.0, 0.1]
    slow = type(sample)(sample.tasks, vms, sample.fails_at, sample.drift, sample.lives_s)
    placement = schedule(workflow, fleet, World(), "heft").placement(workflow)
    static = run_simulation(problem, slow, PLAN, placement=placement)
    adaptive = run_simulation(problem, slow, ADAPTIVE, placement=placement, priority=np.ones(8))
    assert static.makespan_s == 400
    # The slow VM keeps what it has begun; it is tried again only while its speed is not known.
    assert adaptive.makespan_s <= 200
    assert (adaptive.tasks["lane"] == 0).sum() >= 6


def test_a_frugal_plan_rents_nothing_else():
    workflow = generate("cybershake", 40, seed=1)
    options = {"objective": "cost", "deadline_s": 1e9, **QUICK}
    plan = schedule(workflow, FLEET, World(), options=options)
    planned = {each.vm for each in plan.assignments.values()}
    assert len(planned) < len(FLEET)
    for seed in range(5):
        execution = simulate(workflow, FLEET, UNKNOWN, plan, seed=seed)
        assert execution.succeeded
        assert {attempt.vm for attempt in execution.timeline} <= planned


def test_spot_machines_may_go_while_it_adapts():
    fleet = Fleet((*FLEET.vms, Vm("s", "m1", 4000, spot=True, usd_per_h=1)))
    world = World(spot_lifetime_s=20, vm_lifetime_s="weibull(2, 500)")
    execution = simulate(generate("sipht", 40, seed=1), fleet, world, "prudent", seed=2, options=QUICK)
    assert execution.succeeded
    assert any(attempt.outcome == "lost" for attempt in execution.timeline)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "makspan"}, 'Did you mean "makespan"'),
        ({"deadline": 3}, 'Did you mean "deadline_s"'),
        ({"deadline_s": -1}, "above zero"),
        ({"budget_usd": math.nan}, "above zero"),
        ({"evaluations": -1}, "zero or more"),
        ({"front": -1}, "0 for none"),
        ({"deadline_s": 1}, "cannot be kept: no plan on this fleet takes under"),
        ({"budget_usd": 1e-9}, "cannot be kept: no plan on this fleet costs less than"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(options, message):
    with pytest.raises(BadInput, match=message) as caught:
        schedule(generate("montage", 25, seed=6), FLEET, World(), "prudent", options)
    assert caught.value.exit_code == 2


def test_a_limit_that_nobody_keeps_is_a_failed_run():
    """Three jobs of 10 s on two machines: 20 s at best, though the bound proves only 15."""
    workflow = Workflow("three", tuple(Activation(f"t{at}", runtime_s=10) for at in range(3)))
    fleet = Fleet((Vm("a", "m", usd_per_h=1), Vm("b", "m", usd_per_h=1)))
    with pytest.raises(RunFailed, match=r"fastest found takes 20 s"):
        schedule(workflow, fleet, World(), "prudent", {"deadline_s": 18, **QUICK})


def test_a_hard_deadline_is_found_by_searching():
    workflow = generate("montage", 40, seed=2)
    best = schedule(workflow, FLEET, World(), options={"evaluations": 100_000, "front": 0})
    classic_s = min(best.details["baselines_s"].values())
    deadline_s = (best.makespan_s + classic_s) / 2
    assert best.makespan_s < classic_s
    options = {"objective": "cost", "deadline_s": deadline_s, "evaluations": 400_000, "front": 0}
    assert schedule(workflow, FLEET, World(), options=options).makespan_s <= deadline_s


def test_found_knows_its_limits():
    nothing = np.zeros(0, dtype=np.int64)
    found = EvaluatedPlacement(Placement(nothing, nothing), 10.0, 2.0)
    assert found.within(SearchObjective(deadline_s=10.0, budget_usd=2.0))
    assert not found.within(SearchObjective(deadline_s=9.0))
    assert not found.within(SearchObjective(budget_usd=1.0))
    assert found.energy(SearchObjective(1.0, 1.0, 8.0, 5.0, 1.0, 7.0)) == pytest.approx(10 + 2 + 2 * 5 + 7)
