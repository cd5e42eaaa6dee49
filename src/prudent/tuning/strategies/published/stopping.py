"""When the thesis's training runs end: once a share of the data has been seen (appendix A)."""

from __future__ import annotations

import math

from prudent.core.errors import BadInput


def iterations_to_see(rows: int, batch: int, share: float = 0.9) -> int:
    """How many batches, drawn with replacement, see this share of the rows on average.

    A row is missed by one draw with probability (S - 1) / S and by I batches of b with its power of I·b, so
    I >= log(1 - share) / (b · log((S - 1) / S)) (equation 5). Runs of one job on more data are longer by it,
    and runs on any share of the data have seen as much of theirs.

    >>> iterations_to_see(60_000, 256), iterations_to_see(1000, 16)
    (540, 144)
    """
    if rows < 1 or batch < 1:
        raise BadInput(f"{rows} rows in batches of {batch} cannot be seen; give at least one of each.")
    if not 0 < share < 1:
        raise BadInput(
            f"The share is {share:g}; give one above 0 and below 1, for no draw sees all rows surely."
        )
    if rows == 1:
        return 1
    return math.ceil(math.log1p(-share) / (batch * math.log1p(-1.0 / rows)))
