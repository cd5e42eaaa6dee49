"""What every drawing shares: the colours of light and dark pages, round ticks, and the best value so far.

Reports draw with Plotly, the pages of the service with a few shapes of SVG (docs/explanation/design.md
says why). Both take their colours and scales from here, so that a value looks the same wherever it is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

PALETTE = {
    "paper": ("#ffffff", "#13161a"),
    "card": ("#f6f7f9", "#1c2026"),
    "ink": ("#16191d", "#e8eaed"),
    "soft": ("#566070", "#aab2bd"),
    "muted": ("#6b7480", "#929ba7"),
    "line": ("#dde1e6", "#323841"),
    "grid": ("#e8ebef", "#262b32"),
    "accent": ("#0068a8", "#5bb4ea"),
    "band": ("rgba(0, 104, 168, .17)", "rgba(91, 180, 234, .2)"),
    "bar": ("rgba(0, 104, 168, .45)", "rgba(91, 180, 234, .5)"),
    # How a trial ended, and the answer.
    "finished": ("#0072b2", "#56b4e9"),
    "cut": ("#b06c00", "#f0a83a"),
    "failed": ("#a8326f", "#ec8fbf"),
    "best": ("#007a5a", "#3ccf9f"),
    "left": ("#e4e8ec", "#2a3038"),
    "chosen": ("#e6f4ee", "#14352b"),
    # Programs of a workflow, those with the most work first.
    "p0": ("#0072b2", "#56b4e9"),
    "p1": ("#c45500", "#ff9d5c"),
    "p2": ("#00875f", "#3ccf9f"),
    "p3": ("#b0568c", "#ec8fbf"),
    "p4": ("#8a6d00", "#e3c04b"),
    "p5": ("#3a8fc4", "#9bd3f5"),
    "p6": ("#7355a8", "#b79be0"),
    "p7": ("#8c564b", "#cf9f92"),
    "p8": ("#5c7a29", "#a9cf6a"),
    "p9": ("#5f6b76", "#aab2bd"),
}
"""The colours of a light page and of a dark one; a style sheet has them as `var(--paper)`."""
PROGRAM_COLOURS = 10
"""So many programs have a colour of their own (`--p0` and on); the others share the last."""
_FONTS = """
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, "DejaVu Sans Mono", monospace;"""
_TICKS, _CLOCK_TICKS = 4, 6
_CLOCK_STEPS_S = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172_800)


def palette_css(switched: bool = False) -> str:
    """The palette as a style sheet; with `switched` the reader's choice (`data-theme`) beats the system's."""
    light, dark = (
        " ".join(f"--{name}: {colours[at]};" for name, colours in PALETTE.items()) for at in (0, 1)
    )
    unless = ':not([data-theme="light"])' if switched else ""
    chosen = f':root[data-theme="dark"] {{ {dark} }}\n' if switched else ""
    return (
        f":root {{ {light}{_FONTS}\n}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root{unless} {{ {dark} }} }}\n{chosen}"
    )


def program_colours(work: dict[str, float]) -> dict[str, int]:
    """The number of each program's colour, those with the most work first.

    >>> program_colours({"mAdd": 3.0, "mProject": 40.0})
    {'mProject': 0, 'mAdd': 1}
    """
    ranked = sorted(work, key=lambda program: -work[program])
    return {program: min(at, PROGRAM_COLOURS - 1) for at, program in enumerate(ranked)}


def best_so_far(points: Iterable[tuple[float, float]], larger_is_better: bool) -> list[tuple[float, float]]:
    """The steps of the best value until each point, and on to the last one.

    >>> best_so_far([(1, 5.0), (2, 7.0), (3, 4.0), (4, 6.0)], larger_is_better=False)
    [(1, 5.0), (3, 4.0), (4, 4.0)]
    """
    path: list[tuple[float, float]] = []
    x = 0.0
    for x, y in points:
        if not path or (y > path[-1][1] if larger_is_better else y < path[-1][1]):
            path.append((x, y))
    return [*path, (x, path[-1][1])] if path and path[-1][0] != x else path


def round_scale(values: Sequence[float]) -> list[float]:
    """Even, round ticks from at most the lowest value to at least the highest.

    >>> round_scale([0.83, 0.91, 0.97]), round_scale([0.0]), round_scale([3.0, 3.0])
    ([0.8, 0.85, 0.9, 0.95, 1.0], [-1.0, -0.5, 0.0, 0.5, 1.0], [2.7, 2.8, 2.9, 3.0, 3.1, 3.2, 3.3])
    """
    low, high = min(values), max(values)
    size = max(abs(low), abs(high))
    if high - low <= 1e-9 * size or size < 1e-300:
        room = 0.1 * size if size >= 1e-300 else 1.0
        low, high = low - room, high + room
    step = _step(low, high)
    return _multiples(step, math.floor(low / step), math.ceil(high / step))


def even_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends.

    >>> even_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> even_ticks(0.011, 0.012)
    [0.011, 0.0112, 0.0114, 0.0116, 0.0118, 0.012]
    """
    step = _step(low, high)
    return _multiples(step, math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9))


def _step(low: float, high: float) -> float:
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return min((digit * power for digit in (1, 2, 5, 10)), key=lambda step: abs(step - rough))


def _multiples(step: float, first: int, last: int) -> list[float]:
    return [round(rank * step, 12 - math.floor(math.log10(step))) for rank in range(first, last + 1)]


def clock_ticks(low_s: float, high_s: float) -> list[float]:
    """Round times: halves and quarters of minutes and hours, not tenths.

    >>> clock_ticks(0.0, 200.0), clock_ticks(0.0, 3.0)
    ([0.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0], [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    """
    rough = (high_s - low_s) / _CLOCK_TICKS
    if rough <= 0:
        return [low_s]
    power = 10.0 ** math.floor(math.log10(rough))
    sizes: Sequence[float] = (
        [digit * power for digit in (1, 2, 5, 10)] if rough < 10 or rough > 172_800 else _CLOCK_STEPS_S
    )
    step = min(sizes, key=lambda each: abs(math.log(each / rough)))
    first, last = math.ceil(low_s / step - 1e-9), math.floor(high_s / step + 1e-9)
    return [round(float(rank * step), 9) for rank in range(first, last + 1)]
