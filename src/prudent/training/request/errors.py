"""Everything that is wrong with a request, each error at its place in the document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prudent.core.errors import BadInput


@dataclass(frozen=True)
class RequestError:
    """One error: the JSON path of what is wrong, and a sentence that ends with the remedy."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class BadRequest(BadInput):
    """A document that is no request; `errors` has every reason, the text lists them.

    >>> print(BadRequest([RequestError("domain", "Say what to do."), RequestError("seed", "Give a number.")]))
    The request has 2 errors:
    - domain: Say what to do.
    - seed: Give a number.
    """

    def __init__(self, errors: Iterable[RequestError]) -> None:
        self.errors: tuple[RequestError, ...] = tuple(errors)
        if len(self.errors) == 1:
            super().__init__(f"The request is wrong at {self.errors[0]}")
        else:
            lines = "".join(f"\n- {error}" for error in self.errors)
            super().__init__(f"The request has {len(self.errors)} errors:{lines}")


def json_path(parts: Sequence[str | int]) -> str:
    """A place in a document as people write it.

    >>> json_path(["methods", 1, "hyperparameters", 0, "param"])
    'methods[1].hyperparameters[0].param'
    """
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
