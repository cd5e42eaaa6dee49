"""Where a node of a regression tree is cut, compiled.

Trees are extremely randomised: in each feature that a node looks at, one cut is drawn between the least and
the greatest value of its rows, and the best of these cuts is taken. From few samples such trees predict
better than those that look for the best of all cuts, and their deviations are nearer to the true errors.

Randomness is keyed, never drawn in sequence: what a node draws is a function of its key, and its key one of
its place in the tree. That is what lets a row be added to a tree without growing the whole tree anew.

The functions take plain arrays and write into room the caller provides: a view or a tuple of arrays made
per node would cost more (reference counting) than the arithmetic does.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numba
import numpy as np

Array = np.ndarray[Any, Any]
Int = Any  # int64 where it is compiled, whatever numpy calls it elsewhere
_Function = TypeVar("_Function")

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LEFT_SIDE = np.uint64(0xD1B54A32D192ED03)
RIGHT_SIDE = np.uint64(0x8CB92BA72F3D8DD7)
_TIE = 1.0 + 1e-10


def entry(function: _Function) -> _Function:
    """Compile on first use, keep the machine code on disk, let other threads run meanwhile."""
    compiled: _Function = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def inner(function: _Function) -> _Function:
    """Compile for use by compiled code only, which halves the time of compilation."""
    compiled: _Function = numba.njit(
        cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(function)
    return compiled


def inlined(function: _Function) -> _Function:
    """As `inner`, but made part of its caller before that is compiled, which is the quickest to compile.

    numba keeps compiled code by the file of the caller: after a change here, touch `tree_growth` too.
    """
    compiled: _Function = numba.njit(inline="always")(function)
    return compiled


def mixed(z: Any) -> Any:
    """The finaliser of splitmix64, on words and arrays of them: neighbouring inputs, unrelated outputs."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


_mixed = inlined(mixed)


@inlined
def _uniform(key: Any) -> Any:
    return np.float64(key >> np.uint64(11)) * 2.0**-53


@inlined
def child_key(key: Any, side: Any) -> Any:
    """The key of a node's child: a function of the way from the root, not of the order of growth."""
    return _mixed(key ^ side)


@inlined
def _random_split(
    x: Array,
    y: Array,
    weight: Array,
    index: Array,
    s: Int,
    e: Int,
    f: Int,
    level: Any,
    u: float,
) -> Any:
    """(gain, threshold) of one cut, uniform over the feature's range in the node; no range: a gain below 0.

    With answers centred at the mean the variance falls by L² · N / (N_L · N_R), L the sum on the left; N is
    the same for all cuts of a node and left out.
    """
    total, mean = level
    low = x[f, index[s]]
    high = low
    for i in range(s + 1, e):
        value = x[f, index[i]]
        low = min(low, value)
        high = max(high, value)
    threshold = low + u * (high - low)
    if threshold >= high:
        threshold = low
    left_weight = 0.0
    left_sum = 0.0
    for i in range(s, e):
        r = index[i]
        if x[f, r] <= threshold:
            left_weight += weight[r]
            left_sum += weight[r] * (y[r] - mean)
    if low == high:
        return -1.0, 0.0
    return left_sum * left_sum / (left_weight * (total - left_weight)), threshold


@inlined
def _level(y: Array, weight: Array, index: Array, s: Int, e: Int) -> Any:
    """(total weight, mean, whether all answers agree) of the rows index[s:e]."""
    total: Any = 0.0
    summed: Any = 0.0
    low = y[index[s]]
    high = low
    for i in range(s, e):
        value = y[index[i]]
        w = weight[index[i]]
        total += w
        summed += w * value
        low = min(low, value)
        high = max(high, value)
    mean = summed / total
    if mean < low or mean > high:  # by rounding
        mean = low
    return total, mean, low == high


@inlined
def _drawn(order: Array, done: Int, key: Any) -> Int:
    """Draw one more of the features order[done:], and close the gap."""
    left = np.uint64(order.size - done)
    pick = done + np.int64(((_mixed(key) >> np.uint64(32)) * left) >> np.uint64(32))
    feature = np.int64(order[pick])
    order[pick] = order[done]
    return feature


@inner
def find_split(
    x: Array, y: Array, weight: Array, index: Array, s: Int, e: Int, key: Any, features: Array
) -> Any:
    """(feature, threshold, mean) for the node of the rows index[s:e]; feature -1 makes it a leaf.

    Two thirds of the features are drawn without replacement; past them drawing goes on only until one can
    cut. `features` (d,) int32 is room for the draws.
    """
    total, mean, same = _level(y, weight, index, s, e)
    if same:
        return -1, 0.0, mean
    for i in range(features.size):
        features[i] = i
    feature, best, threshold = -1, -1.0, 0.0
    for done in range(features.size):
        key += GOLDEN
        f = _drawn(features, done, key)
        u = _uniform(_mixed(key ^ RIGHT_SIDE))
        gain, at = _random_split(x, y, weight, index, s, e, f, (total, mean), u)
        if gain >= 0.0 and (feature < 0 or gain > best * _TIE):
            feature, best, threshold = f, gain, at
        # Two rows part in one way only: the first feature that tells them apart will do.
        if feature >= 0 and (3 * (done + 1) >= 2 * features.size or e - s == 2):
            break
    return feature, threshold, mean


@inner
def partition(index: Array, spare: Array, x: Array, f: Int, s: Int, e: Int, threshold: float) -> Int:
    """Move what is at most the threshold to the front of index[s:e], keeping order; where it ends."""
    left = s
    right = 0
    for i in range(s, e):
        j = index[i]
        goes_left = x[f, j] <= threshold
        index[left] = j
        spare[right] = j
        left += goes_left
        right += not goes_left
    for i in range(right):
        index[left + i] = spare[i]
    return left
