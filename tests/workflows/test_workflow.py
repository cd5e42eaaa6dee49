"""A workflow is checked when it is built."""

from __future__ import annotations

import pytest

from prudent.core.errors import BadInput
from prudent.workflows import Activation, File, Workflow


def chain(*names: str) -> tuple[Activation, ...]:
    return tuple(Activation(name, runtime_s=1) for name in names)


def test_files_imply_edges(diamond):
    assert set(diamond.edges) == {("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")}
    assert diamond.levels == {"a": 0, "b": 1, "c": 1, "d": 2}
    assert diamond.parents["d"] == ["b", "c"]
    assert diamond.children["a"] == ["b", "c"]


def test_order_puts_parents_first_whatever_the_list():
    workflow = Workflow("w", chain("z", "y", "x"), (("x", "y"), ("y", "z")))
    assert workflow.order == ("x", "y", "z")


def test_cycle_is_named():
    with pytest.raises(BadInput, match=r"cycle: .*a -> b -> c|cycle: b -> c -> a|cycle: c -> a -> b"):
        Workflow("w", chain("a", "b", "c"), (("a", "b"), ("b", "c"), ("c", "a")))


def test_own_parent_is_a_cycle():
    with pytest.raises(BadInput, match="cycle: a -> a"):
        Workflow("w", chain("a"), (("a", "a"),))


def test_cycle_through_files():
    with pytest.raises(BadInput, match="cycle"):
        Workflow(
            "w",
            (
                Activation("a", inputs=(File("x"),), outputs=(File("y"),)),
                Activation("b", inputs=(File("y"),), outputs=(File("x"),)),
            ),
        )


def test_unknown_parent_suggests():
    with pytest.raises(BadInput, match=r'names activation "ab1".*Did you mean "ab"'):
        Workflow("w", chain("ab", "cd"), (("ab1", "cd"),))


def test_two_writers():
    both = (Activation("a", outputs=(File("x"),)), Activation("b", outputs=(File("x"),)))
    with pytest.raises(BadInput, match='"x" is written by both "a" and "b"'):
        Workflow("w", both)
    assert Workflow("w", both, gathered=frozenset({"x"})).edges == ()


def test_duplicate_ids_and_nothing_at_all():
    with pytest.raises(BadInput, match='id "a"'):
        Workflow("w", chain("a", "b", "a"))
    with pytest.raises(BadInput, match="no activations"):
        Workflow("w", ())


@pytest.mark.parametrize("size", [-1, float("nan")])
def test_size_below_zero(size):
    with pytest.raises(BadInput, match="zero or more"):
        File("x", size)


@pytest.mark.parametrize("runtime_s", [-0.5, float("inf"), float("nan")])
def test_run_time_out_of_range(runtime_s):
    with pytest.raises(BadInput, match="run time"):
        Activation("a", runtime_s=runtime_s)
    with pytest.raises(BadInput, match="run time"):
        Activation("a", runtimes_s={"m": runtime_s})


def test_staged_counts_distinct_inputs_not_written_by_itself():
    activation = Activation("a", inputs=(File("x", 5), File("y", 7), File("x", 5)), outputs=(File("y", 7),))
    assert activation.staged() == {"x": 5}


def test_unknown_activation(diamond):
    with pytest.raises(BadInput, match='no activation "e"'):
        diamond["e"]


def test_fingerprint_ignores_estimates_but_not_structure(diamond):
    faster = diamond.with_runtimes({"b": {"s": 1.0}})
    assert faster.fingerprint == diamond.fingerprint
    assert faster["b"].runtimes_s == {"s": 1.0}
    longer = Workflow("w", (*diamond.activations, Activation("e")), diamond.edges)
    assert longer.fingerprint != diamond.fingerprint


def test_unreadable_files(tmp_path):
    with pytest.raises(BadInput, match="Cannot read"):
        Workflow.read(tmp_path / "missing.xml")
    odd = tmp_path / "odd.txt"
    odd.write_text("hello")
    with pytest.raises(BadInput, match="in no format that is known here"):
        Workflow.read(odd)
    odd.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(BadInput, match="not text"):
        Workflow.read(odd)
