"""Generated workflows, clustering and bounds."""

from __future__ import annotations

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, Fleet, Vm, Workflow, World, simulate
from prudent.workflows.clustering import cluster
from prudent.workflows.formats.generate import generate, shapes
from prudent.workflows.schedulers.bounds import lower_bounds


@pytest.mark.parametrize("shape", shapes())
@pytest.mark.parametrize("size", [13, 14, 15, 16, 50, 101, 250])
def test_exact_size(shape, size):
    assert len(generate(shape, size, seed=size)) == size


@pytest.mark.parametrize("shape", shapes())
def test_same_seed_same_workflow(shape):
    assert generate(shape, 30, seed=1) == generate(shape, 30, seed=1)
    assert generate(shape, 30, seed=1) != generate(shape, 30, seed=2)


def test_shapes_look_like_their_models():
    montage = generate("montage", 100)
    assert max(montage.levels.values()) == 8
    epigenomics = generate("epigenomics", 100)
    assert [a.program for a in epigenomics.activations][-1] == "pileup"
    assert len(generate("cybershake", 100).parents["ZipPSA-00099"]) == 48
    with pytest.raises(BadInput, match='Did you mean "montage"'):
        generate("montag", 30)
    with pytest.raises(BadInput, match="at least 13"):
        generate("sipht", 5)


def test_vertical_merges_chains():
    names = ["a", "b", "c", "d"]
    chain = Workflow("w", tuple(Activation(n, n, 1.0) for n in names), (("a", "b"), ("b", "c"), ("a", "d")))
    merged = cluster(chain, "vertical")
    assert {a.id: a.members for a in merged.activations} == {"a": (), "b+1": ("b", "c"), "d": ()}
    assert set(merged.edges) == {("a", "b+1"), ("a", "d")}


def test_horizontal_and_balanced():
    workflow = Workflow(
        "w", tuple(Activation(f"t{at}", "p", float(r)) for at, r in enumerate([8, 1, 1, 1, 1, 4]))
    )
    by_number = cluster(workflow, "horizontal", per_level=2)
    assert [a.runtime_s for a in by_number.activations] == [10, 6]
    by_time = cluster(workflow, "balanced", per_level=2)
    assert [a.runtime_s for a in by_time.activations] == [8, 8]


def test_clustering_pays_where_overheads_are_large():
    workflow = generate("montage", 200, seed=1)
    fleet = Fleet.parse("4*m3.medium")
    world = World(queue_s=30)
    alone = simulate(workflow, fleet, world, "fcfs").makespan_s
    assert simulate(cluster(workflow, "balanced", per_level=4), fleet, world, "fcfs").makespan_s < 0.6 * alone


def test_bad_clustering(diamond):
    with pytest.raises(BadInput, match='"diagonal"'):
        cluster(diamond, "diagonal")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="at least one"):
        cluster(diamond, "horizontal", per_level=0)


def test_bounds_by_hand(pair, still):
    # Work of 18 s on speeds 1 + 2; the path a-b is 12 s, 6 s on the fast VM.
    workflow = Workflow(
        "w",
        (Activation("a", runtime_s=6), Activation("b", runtime_s=6), Activation("c", runtime_s=6)),
        (("a", "b"),),
    )
    bounds = lower_bounds(workflow, pair, still)
    assert bounds.path_s == 6
    assert bounds.work_s == pytest.approx(6)
    assert bounds.tight_s == pytest.approx(6)


def test_the_tight_bound_counts_work_between_head_and_tail(still):
    # 10 s, then eight of 10 s on two VMs, then 10 s.
    middle = tuple(Activation(f"m{at}", runtime_s=10) for at in range(8))
    workflow = Workflow(
        "w",
        (Activation("a", runtime_s=10), *middle, Activation("z", runtime_s=10)),
        tuple(("a", m.id) for m in middle) + tuple((m.id, "z") for m in middle),
    )
    fleet = Fleet((Vm("u", "m"), Vm("v", "m")))
    bounds = lower_bounds(workflow, fleet, still)
    assert bounds.simple_s == 50
    assert bounds.tight_s == 60
    assert simulate(workflow, fleet, still, "fcfs").makespan_s == 60
