"""Growing trees, sending candidates down, and adding fantasies, compiled.

A node holds ranges of two permutations, of the rows and of the candidates, so that growing and predicting
are stable partitions in place and allocate nothing. Since every choice is keyed by its place in the tree
(see `tree_splits`), ensembles of one seed whose data differ in a few rows agree in every subtree that those
rows do not reach: `refit_trees` follows the new rows down, checks that each cut on their way would still be
chosen, and grows anew only below the first that would not. Every tree then answers as it would after a full
refit, to the last bit.

Trees are flat arrays, one line a tree, one column a node; a right child stands just after the left one:
- `links` (t, nodes, 4) int32: feature (-1 in a leaf), left child, the node's rows as rows[start:end];
- `levels` (t, nodes, 2) float64: threshold (at most that goes left), mean of the node;
- `keys` (t, nodes) uint64: the node's source of randomness;
- `spans` (t, nodes, 2) int32: the node's candidates as order[start:end].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prudent.tuning.surrogates.tree_splits import (
    LEFT_SIDE,
    RIGHT_SIDE,
    Array,
    Int,
    child_key,
    entry,
    find_split,
    inlined,
    partition,
)

FEATURE, LEFT, START, END = 0, 1, 2, 3
THRESHOLD, MEAN = 0, 1


@inlined
def _split_candidates(
    order: Array, spare: Array, x: Array, spans: Array, node: Int, left: Int, f: Int, at: float
) -> None:
    """Part a node's candidates between its children."""
    s = np.int64(spans[node, 0])
    e = np.int64(spans[node, 1])
    middle = partition(order, spare, x, f, s, e, at)
    spans[left, 0] = s
    spans[left, 1] = middle
    spans[left + 1, 0] = middle
    spans[left + 1, 1] = e


@inlined
def _answer(answer: Array, order: Array, spans: Array, node: Int, value: float) -> None:
    for i in range(spans[node, 0], spans[node, 1]):
        answer[order[i]] = value


@inlined
def _grow_tree(
    x: Array, y: Array, weight: Array,
    rows: Array, links: Array, levels: Array, keys: Array,
    xc: Array, order: Array, spans: Array, answer: Array, features: Array, spare: Array, stack: Array,
) -> None:  # fmt: skip
    """Grow from node 0, whose ranges and key are set; given candidates, what none sees is left out."""
    lazy = xc.shape[1] > 0
    used = 0
    top = 1
    stack[0] = 0
    while top:
        top -= 1
        node = np.int64(stack[top])
        s = np.int64(links[node, START])
        e = np.int64(links[node, END])
        f, at, mean = find_split(x, y, weight, rows, s, e, keys[node], features)
        links[node, FEATURE] = f
        levels[node, THRESHOLD] = at
        levels[node, MEAN] = mean
        if f < 0:
            _answer(answer, order, spans, node, mean)
            continue
        left = used + 1
        used += 2
        middle = partition(rows, spare, x, f, s, e, at)
        links[node, LEFT] = left
        links[left, START] = s
        links[left, END] = middle
        links[left + 1, START] = middle
        links[left + 1, END] = e
        keys[left] = child_key(keys[node], LEFT_SIDE)
        keys[left + 1] = child_key(keys[node], RIGHT_SIDE)
        _split_candidates(order, spare, xc, spans, node, left, f, at)
        for child in range(left, left + 2):
            if not lazy or spans[child, 1] > spans[child, 0]:
                stack[top] = child
                top += 1


@inlined
def _summarise(answer: Array, floor: float, mean: Array, std: Array) -> None:
    """Mean and sample deviation over the trees, the variance no smaller than the floor."""
    t, m = answer.shape
    for c in range(m):
        total = 0.0
        for i in range(t):
            total += answer[i, c]
        centre = total / t
        squares = 0.0
        for i in range(t):
            squares += (answer[i, c] - centre) ** 2
        variance = squares / (t - 1) if t > 1 else 0.0
        mean[c] = centre
        std[c] = np.sqrt(variance if variance > floor else floor)


@entry
def predict_trees(
    xc: Array, links: Array, levels: Array, places: Any, room: Any, floor: float, mean: Array, std: Array
) -> None:
    """Send the candidates, feature-major, down every tree, and summarise what the trees answer.

    places is (order, spans, answer), all written; spans of nodes that no candidate reaches stay as they are.
    """
    order, spans, answer = places
    spare, stack = room
    m = xc.shape[1]
    for t in range(links.shape[0]):
        for c in range(m):
            order[t, c] = c
        spans[t, 0, 0] = 0
        spans[t, 0, 1] = m
        stack[0] = 0
        top = 1
        while top:
            top -= 1
            node = np.int64(stack[top])
            f = np.int64(links[t, node, FEATURE])
            left = np.int64(links[t, node, LEFT])
            if f < 0:
                _answer(answer[t], order[t], spans[t], node, levels[t, node, MEAN])
                continue
            _split_candidates(order[t], spare, xc, spans[t], node, left, f, levels[t, node, THRESHOLD])
            for child in range(left, left + 2):
                if spans[t, child, 1] > spans[t, child, 0]:
                    stack[top] = child
                    top += 1
    _summarise(answer, floor, mean, std)


@inlined
def _gather(rows: Array, weight: Array, first: Int) -> Int:
    """Write the rows from `first` on that the bootstrap drew, in order; how many."""
    count = 0
    for r in range(first, weight.size):
        rows[count] = r
        count += weight[r] > 0.0
    return count


@inlined
def _descend(path: Array, top: Int, links: Array, child: Int, s: Int, e: Int) -> Int:
    """Put a child on the path if it has more rows than in the base tree."""
    path[top, 0] = child
    path[top, 1] = s
    path[top, 2] = e
    return top + (e - s > links[child, END] - links[child, START])


@inlined
def _add(
    x: Array, y: Array, weight: Array, n: Int, bare: bool,
    links: Array, levels: Array, keys: Array, base_order: Array, base_spans: Array,
    rows: Array, new_links: Array, new_levels: Array, new_keys: Array, xc: Array,
    order: Array, spans: Array, answer: Array, features: Array, spare: Array, stack: Array, path: Array,
) -> None:  # fmt: skip
    """Send all rows down, as far as new ones among them change something, and correct the tree's answers."""
    count = _gather(rows, weight, n if bare else 0)
    top = _descend(path, 0, links, 0, 0, count)
    if bare:  # then the base tree's rows are stand-ins, and do not count
        top = 1 if count > 0 else 0
    while top:
        top -= 1
        node = np.int64(path[top, 0])
        s = np.int64(path[top, 1])
        e = np.int64(path[top, 2])
        seen = base_spans[node, 1] - base_spans[node, 0]
        if seen == 0 and xc.shape[1] > 0:
            continue
        f = np.int64(links[node, FEATURE])
        at = levels[node, THRESHOLD]
        same = f >= 0 and not bare
        if same:
            now, now_at, _ = find_split(x, y, weight, rows, s, e, keys[node], features)
            same = now == f and now_at == at
        if same:
            left = np.int64(links[node, LEFT])
            middle = partition(rows, spare, x, f, s, e, at)
            top = _descend(path, top, links, left, s, middle)
            top = _descend(path, top, links, left + 1, middle, e)
            continue
        for i in range(seen):
            order[i] = base_order[base_spans[node, 0] + i]
        spans[0, 0] = 0
        spans[0, 1] = seen
        new_links[0, START] = s
        new_links[0, END] = e
        new_keys[0] = keys[node]
        _grow_tree(
            x, y, weight, rows, new_links, new_levels, new_keys,
            xc, order, spans, answer, features, spare, stack,
        )  # fmt: skip


@inlined
def _write(x: Array, y: Array, new_x: Array, new_y: Array, i: Int, n: Int) -> None:
    """Put the rows of fantasy i at the end of the samples."""
    for j in range(new_y.shape[1]):
        y[n + j] = new_y[i, j]
        for f in range(x.shape[0]):
            x[f, n + j] = new_x[i, f, j]


@entry
def refit_trees(
    samples: Any, base: Any, bare: Array, xc: Array, places: Any, news: Any,
    path: Array, fresh: Any, heap: Any, answer: Array, room: Any, floor: float, mean: Array, std: Array,
) -> None:  # fmt: skip
    """Mean and std at the candidates, (k, m), for each of k fantasies of q rows added to the base trees.

    samples: x (d, n + q), y (n + q,), weight (t, n + q), with room for the new rows at the end;
    base, fresh: (rows, links, levels, keys) of the trees as they are, and room for those that change;
    bare: trees to be grown on the new rows alone; xc, places: the candidates and what `predict_trees` wrote;
    news: x (k, d, q) and y (k, q) of the new rows; path: room for (q + 2, 3) int32;
    heap: room for (order (m,), spans (nodes, 2)); answer: room for (t, m);
    room: for the features (d,), and for parting and stacking nodes.
    """
    x, y, weight = samples
    base_rows, links, levels, keys = base
    rows, new_links, new_levels, new_keys = fresh
    base_order, base_spans, base_answer = places
    order, spans = heap
    new_x, new_y = news
    features, spare, stack = room
    n = base_rows.shape[1]
    for fantasy in range(mean.shape[0]):
        _write(x, y, new_x, new_y, fantasy, n)
        for t in range(answer.shape[0]):
            for c in range(answer.shape[1]):
                answer[t, c] = base_answer[t, c]
            _add(
                x, y, weight[t], n, bare[t], links[t], levels[t], keys[t], base_order[t], base_spans[t],
                rows[t], new_links[t], new_levels[t], new_keys[t],
                xc, order, spans, answer[t], features, spare, stack, path,
            )  # fmt: skip
        _summarise(answer, floor, mean[fantasy], std[fantasy])
