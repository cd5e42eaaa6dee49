"""Small changes (moves) of a candidate plan, each of which can be undone.

A move is four numbers in `move`: its kind and what it changed; `first` is the first position it touches.
"""

from __future__ import annotations

from typing import Any

from prudent.workflows.search.walk import CandidatePlan, SearchArrays
from prudent.workflows.simulation.compiled import Ints, allocation_free, inlined, uniform

SHIFT, SWAP, CROSS = 0, 1, 2


@inlined
def draw_below(random: Any, count: int) -> int:
    """A whole number from 0 to below `count`."""
    return int(uniform(random) * count)


@allocation_free
def position_range(arrays: SearchArrays, candidate: CandidatePlan, task: int) -> tuple[int, int]:
    """The positions at which an activation is after its parents and before its children."""
    low, high = 0, len(candidate.order) - 1
    for at in range(arrays.parent_ptr[task], arrays.parent_ptr[task + 1]):
        low = max(low, candidate.position[arrays.parents[at]] + 1)
    for at in range(arrays.child_ptr[task], arrays.child_ptr[task + 1]):
        high = min(high, candidate.position[arrays.children[at]] - 1)
    return low, high


@allocation_free
def shift(candidate: CandidatePlan, here: int, there: int) -> None:
    """Move an activation to another position; those in between move by one."""
    order, position = candidate.order, candidate.position
    task = order[here]
    step = 1 if there > here else -1
    for at in range(here, there, step):
        order[at] = order[at + step]
        position[order[at]] = at
    order[there] = task
    position[task] = there


@inlined
def exchange(candidate: CandidatePlan, here: int, there: int) -> None:
    """Two activations exchange position and lane."""
    one, other = candidate.order[here], candidate.order[there]
    candidate.order[here], candidate.order[there] = other, one
    candidate.position[one], candidate.position[other] = there, here
    candidate.lane[one], candidate.lane[other] = candidate.lane[other], candidate.lane[one]


@allocation_free
def cross(candidate: CandidatePlan, first: int, one: int, other: int) -> None:
    """From a position on, two lanes exchange their activations."""
    for at in range(first, len(candidate.order)):
        task = candidate.order[at]
        if candidate.lane[task] == one:
            candidate.lane[task] = other
        elif candidate.lane[task] == other:
            candidate.lane[task] = one


@allocation_free
def try_move(arrays: SearchArrays, candidate: CandidatePlan, random: Any, task: int, move: Ints) -> int:
    """Change the candidate around an activation, as `move` says; the first changed position, or -1."""
    chance = uniform(random)
    low, high = position_range(arrays, candidate, task)
    here = candidate.position[task]
    lanes = len(arrays.kind)
    if chance < 0.05 and lanes > 1:
        one, other = candidate.lane[task], draw_below(random, lanes)
        if one == other:
            return -1
        move[0], move[1], move[2], move[3] = CROSS, here, one, other
        cross(candidate, here, one, other)
        return int(here)
    there = low + draw_below(random, high - low + 1)
    if chance < 0.35:
        return _swap(arrays, candidate, here, there, move)
    lane = candidate.lane[candidate.order[there]]
    if chance < 0.55:
        lane = draw_below(random, lanes)
        if chance < 0.45:
            there = here
    if there == here and lane == candidate.lane[task]:
        return -1
    move[0], move[1], move[2], move[3] = SHIFT, here, there, candidate.lane[task]
    candidate.lane[task] = lane
    shift(candidate, here, there)
    return int(min(here, there))


@inlined
def _swap(arrays: SearchArrays, candidate: CandidatePlan, here: int, there: int, move: Ints) -> int:
    low, high = position_range(arrays, candidate, candidate.order[there])
    if here == there or here < low or here > high:
        return -1
    move[0], move[1], move[2] = SWAP, here, there
    exchange(candidate, here, there)
    return int(min(here, there))


@allocation_free
def undo(candidate: CandidatePlan, move: Ints) -> None:
    """Undo the last move."""
    if move[0] == SHIFT:
        candidate.lane[candidate.order[move[2]]] = move[3]
        shift(candidate, move[2], move[1])
    elif move[0] == SWAP:
        exchange(candidate, move[1], move[2])
    else:
        cross(candidate, move[1], move[2], move[3])
