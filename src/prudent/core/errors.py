"""One family of errors; a message is one sentence that ends with the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PrudentError(Exception):
    """Something went wrong that the user can understand; the message says what to do."""

    exit_code = 1


class BadInput(PrudentError):
    """The request itself is wrong (a file, a name, a value); nothing was run or charged."""

    exit_code = 2


class RunFailed(PrudentError):
    """The request was right, but the work failed; what was computed until then is kept."""

    exit_code = 1


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """A hint to append to a message, or nothing when no option is near.

    >>> did_you_mean("m5.lage", ["m5.large", "c5.large"])
    ' Did you mean "m5.large"?'
    >>> did_you_mean("zebra", ["m5.large"])
    ''
    """
    near = difflib.get_close_matches(str(word), [str(option) for option in options], n=1, cutoff=0.6)
    return f' Did you mean "{near[0]}"?' if near else ""


def unknown(kind: str, word: object, options: Iterable[object]) -> BadInput:
    """The error for a name that does not exist: what was said, what is near it, what there is.

    >>> print(unknown("strategy", "lynceos", ["lynceus", "random"]))
    Unknown strategy "lynceos". Did you mean "lynceus"? Choose one of: lynceus, random.
    """
    known = [str(option) for option in options]
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return BadInput(f'Unknown {kind} "{word}".{did_you_mean(str(word), known)} Choose one of: {shown}.')
