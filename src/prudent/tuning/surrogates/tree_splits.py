"""Where a node of a regression tree is cut, compiled.

Columns are ranked once; a cut is found by counting the node's rows into the ranks and walking over those
that occur (a bit set says which), so it costs O(rows + ranks / 64) per feature, and nothing is sorted.

Randomness is keyed, never drawn in sequence: what a node draws is a function of its key, and its key one of
its place in the tree. That is what lets a row be added to a tree without growing the whole tree anew.

The functions take plain arrays and write into room the caller provides: a view or a tuple of arrays made
per node would cost more (reference counting) than the arithmetic does.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numba
import numpy as np
from numba.extending import intrinsic

Array = np.ndarray[Any, Any]
Int = Any  # int64 where it is compiled, whatever numpy calls it elsewhere
_Function = TypeVar("_Function")

MIDDLE, BETWEEN, ANYWHERE = 0, 1, 2
"""Where a cut lies: half-way between neighbours, at random between them, at random in the node's range."""

SplitRules = tuple[int, int, int]
"""(features per split, least weight of a leaf, where a cut lies)."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LEFT_SIDE = np.uint64(0xD1B54A32D192ED03)
RIGHT_SIDE = np.uint64(0x8CB92BA72F3D8DD7)
_TIE = 1.0 + 1e-10


SplitBuffers = tuple[Array, Array, Array, Array]
"""Room for `cut`: features (d,) int32, bins (ranks, 2) float64 and their rows (ranks,) int32, bits uint64."""


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


def _emit_lowest_bit(typing_context: Any, word: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], context.get_constant(numba.types.boolean, True))

    return numba.int64(numba.uint64), emit


_lowest_bit: Any = intrinsic(_emit_lowest_bit)
"""Index of the lowest set bit of a non-zero 64-bit word; numba has no public spelling of it."""


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
def _count(
    code: Array,
    y: Array,
    weight: Array,
    index: Array,
    s: Int,
    e: Int,
    f: Int,
    mean: float,
    bench: SplitBuffers,
) -> None:
    """Weight and centred sum of each rank of feature f among the rows index[s:e]."""
    _, bins, bin_row, seen = bench
    for i in range(s, e):
        r = index[i]
        c = code[f, r]
        w = weight[r]
        bit = np.uint64(1) << np.uint64(c & 63)
        if seen[c >> 6] & bit:
            bins[c, 0] += w
            bins[c, 1] += w * (y[r] - mean)
        else:
            seen[c >> 6] |= bit
            bins[c, 0] = w
            bins[c, 1] = w * (y[r] - mean)
            bin_row[c] = r


@inlined
def _best_of_ranks(x: Array, f: Int, total: float, min_leaf: Int, bench: SplitBuffers) -> Any:
    """The cut of a counted feature with the greatest variance reduction: (gain, value below, value above).

    With centred sums the reduction is L² · N / (N_L · N_R), L the sum on the left.
    """
    _, bins, bin_row, seen = bench
    best = -1.0
    below = -1
    above = -1
    last = -1
    left_weight = 0.0
    left_sum = 0.0
    for word in range(seen.size):
        bits = seen[word]
        seen[word] = np.uint64(0)
        while bits:
            c = (word << 6) + _lowest_bit(bits)
            bits &= bits - np.uint64(1)
            right_weight = total - left_weight
            if last >= 0 and left_weight >= min_leaf and right_weight >= min_leaf:
                gain = left_sum * left_sum / (left_weight * right_weight)
                if gain > best * _TIE or below < 0:
                    best = gain
                    below = last
                    above = bin_row[c]
            last = bin_row[c]
            left_weight += bins[c, 0]
            left_sum += bins[c, 1]
    if below < 0:
        return -1.0, 0.0, 0.0
    return best, x[f, below], x[f, above]


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
    min_leaf: Int,
    u: float,
) -> Any:
    """One cut, uniform over the feature's range in the node (extremely randomised trees)."""
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
    right_weight = total - left_weight
    if low == high or left_weight < min_leaf or right_weight < min_leaf:
        return -1.0, 0.0, 0.0
    return left_sum * left_sum / (left_weight * right_weight), threshold, threshold


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
    x: Array,
    code: Array,
    y: Array,
    weight: Array,
    index: Array,
    s: Int,
    e: Int,
    key: Any,
    rules: SplitRules,
    bench: SplitBuffers,
) -> Any:
    """(feature, threshold, mean) for the node of the rows index[s:e]; feature -1 makes it a leaf.

    Features are drawn without replacement; past the wanted number drawing goes on only until one can cut.
    """
    per_split, min_leaf, kind = rules
    total, mean, same = _level(y, weight, index, s, e)
    if same or total < 2 * min_leaf:
        return -1, 0.0, mean
    order = bench[0]
    for i in range(order.size):
        order[i] = i
    feature, best, below, above = -1, -1.0, 0.0, 0.0
    for done in range(order.size):
        key += GOLDEN
        f = _drawn(order, done, key)
        if kind == ANYWHERE:
            u = _uniform(_mixed(key ^ RIGHT_SIDE))
            found = _random_split(x, y, weight, index, s, e, f, (total, mean), min_leaf, u)
        else:
            _count(code, y, weight, index, s, e, f, mean, bench)
            found = _best_of_ranks(x, f, total, min_leaf, bench)
        if found[0] >= 0.0 and (feature < 0 or found[0] > best * _TIE):
            best, below, above = found
            feature = f
        # Two rows part in one way only: the first feature that tells them apart will do.
        if feature >= 0 and (done + 1 >= per_split or e - s == 2):
            break
    share = _uniform(_mixed(~key)) if kind == BETWEEN else 0.5
    threshold = below + share * (above - below)
    return feature, threshold if threshold < above else below, mean


@inner
def partition(index: Array, spare: Array, x: Array, f: Int, s: Int, e: Int, threshold: float) -> Int:
    """Move what lies at most at the threshold to the front of index[s:e], keeping order; where it ends."""
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
