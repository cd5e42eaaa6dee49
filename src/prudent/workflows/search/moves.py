"""Small changes to a draft, each with its way back.

A move is four numbers in `move`: its kind and what it was done to; `first` is the first position it touches.
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
def position_range(ground: SearchArrays, draft: CandidatePlan, task: int) -> tuple[int, int]:
    """The positions at which an activation is after its parents and before its children."""
    low, high = 0, len(draft.order) - 1
    for at in range(ground.beneath[task], ground.beneath[task + 1]):
        low = max(low, draft.place[ground.parents[at]] + 1)
    for at in range(ground.above[task], ground.above[task + 1]):
        high = min(high, draft.place[ground.children[at]] - 1)
    return low, high


@allocation_free
def shift(draft: CandidatePlan, here: int, there: int) -> None:
    """Take what is at one position to another; those in between close up."""
    order, place = draft.order, draft.place
    task = order[here]
    step = 1 if there > here else -1
    for at in range(here, there, step):
        order[at] = order[at + step]
        place[order[at]] = at
    order[there] = task
    place[task] = there


@inlined
def exchange(draft: CandidatePlan, here: int, there: int) -> None:
    """Two activations change position and lane with each other."""
    one, other = draft.order[here], draft.order[there]
    draft.order[here], draft.order[there] = other, one
    draft.place[one], draft.place[other] = there, here
    draft.lane[one], draft.lane[other] = draft.lane[other], draft.lane[one]


@allocation_free
def cross(draft: CandidatePlan, first: int, one: int, other: int) -> None:
    """From a position on, two lanes change their activations with each other."""
    for at in range(first, len(draft.order)):
        task = draft.order[at]
        if draft.lane[task] == one:
            draft.lane[task] = other
        elif draft.lane[task] == other:
            draft.lane[task] = one


@allocation_free
def try_move(ground: SearchArrays, draft: CandidatePlan, random: Any, task: int, move: Ints) -> int:
    """Change the draft around an activation and say how in `move`; the first changed position, or -1."""
    luck = uniform(random)
    low, high = position_range(ground, draft, task)
    here = draft.place[task]
    lanes = len(ground.kind)
    if luck < 0.05 and lanes > 1:
        one, other = draft.lane[task], draw_below(random, lanes)
        if one == other:
            return -1
        move[0], move[1], move[2], move[3] = CROSS, here, one, other
        cross(draft, here, one, other)
        return int(here)
    there = low + draw_below(random, high - low + 1)
    if luck < 0.35:
        return _swap(ground, draft, here, there, move)
    lane = draft.lane[draft.order[there]]
    if luck < 0.55:
        lane = draw_below(random, lanes)
        if luck < 0.45:
            there = here
    if there == here and lane == draft.lane[task]:
        return -1
    move[0], move[1], move[2], move[3] = SHIFT, here, there, draft.lane[task]
    draft.lane[task] = lane
    shift(draft, here, there)
    return int(min(here, there))


@inlined
def _swap(ground: SearchArrays, draft: CandidatePlan, here: int, there: int, move: Ints) -> int:
    low, high = position_range(ground, draft, draft.order[there])
    if here == there or here < low or here > high:
        return -1
    move[0], move[1], move[2] = SWAP, here, there
    exchange(draft, here, there)
    return int(min(here, there))


@allocation_free
def undo(draft: CandidatePlan, move: Ints) -> None:
    """Go back on the last move."""
    if move[0] == SHIFT:
        draft.lane[draft.order[move[2]]] = move[3]
        shift(draft, move[2], move[1])
    elif move[0] == SWAP:
        exchange(draft, move[1], move[2])
    else:
        cross(draft, move[1], move[2], move[3])
