"""How fast a machine type is, roughly: a rule to simulate with where nobody has measured.

The rule has two parts, both simple on purpose:

- *speed* of one slot (a vCPU) relative to the third generation (m3, c3, r3): 15 % more with each
  generation. AWS states up to that much for M6i over M5, at the same price.
- *MIPS* of a whole machine: `1000 x speed x vcpus^0.685`. An m3.medium (1 vCPU) then has the 1000 and
  an m3.2xlarge (8 vCPU) the 4156 MIPS that a published study of workflow scheduling measured and
  simulated with; the exponent below 1 is theirs: eight vCPUs do four times the work of one.

A measured job replaces both; a price list of your own may give `speed` and `mips` per type.
"""

from __future__ import annotations

import math
import re

MIPS_PER_SLOT = 1000.0
"""One vCPU of the third generation: the study's m3.medium."""

_SCALING = math.log(4156.0 / MIPS_PER_SLOT, 8)
_GAIN_PER_GENERATION = 1.15
_REFERENCE_GENERATION = 3

# Names of general, compute and memory families carry the processor generation; these count otherwise.
_PROCESSOR_GENERATION = {
    "t2": 4, "t3": 5, "t3a": 5, "t4g": 6,
    "x1": 4, "x1e": 4, "z1d": 5,
    "i2": 3, "i3": 4, "i3en": 5, "d2": 4, "h1": 4,
    "g3": 4, "g4dn": 5, "g5": 5, "p2": 4, "p3": 4, "p3dn": 5, "p4d": 5,
}  # fmt: skip


def speed_of(family: str) -> float:
    """Speed of one vCPU relative to the third generation, 1.0 for a family nobody knows.

    >>> speed_of("m3"), round(speed_of("m5"), 4), speed_of("my-server")
    (1.0, 1.3225, 1.0)
    """
    generation = _PROCESSOR_GENERATION.get(family)
    if generation is None:
        named = re.fullmatch(r"[mcr](\d)[a-z]*", family)
        generation = int(named.group(1)) if named else _REFERENCE_GENERATION
    return float(_GAIN_PER_GENERATION ** max(0, generation - _REFERENCE_GENERATION))


def mips_of(vcpus: int, speed: float) -> float:
    """Million instructions a second of a whole machine, to the nearest whole number.

    >>> mips_of(1, 1.0), mips_of(8, 1.0)
    (1000.0, 4156.0)
    """
    return float(round(MIPS_PER_SLOT * speed * vcpus**_SCALING))
