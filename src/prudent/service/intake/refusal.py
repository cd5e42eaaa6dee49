"""Why a request is not admitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.request.errors import RequestError

MALFORMED, FORBIDDEN, CONFLICT, INVALID = 400, 403, 409, 422


class Refused(BadInput):
    """A request that is not taken, with everything that is wrong with it by its place in the document.

    >>> refused = Refused([RequestError("fleet", "It is missing; add it.")])
    >>> refused.status, str(refused)
    (422, 'The request is wrong at fleet: It is missing; add it.')
    """

    def __init__(
        self,
        errors: Iterable[RequestError],
        status: int = INVALID,
        title: str = "The request is wrong",
        retry_s: float | None = None,
    ) -> None:
        self.errors = tuple(errors)
        self.status, self.title = status, title
        self.retry_s = retry_s
        """After how long the same request may be taken, where nothing is wrong with it."""
        self.fields: Mapping[str, list[str]] = {}
        """What a form said, for who shows it again."""
        if len(self.errors) == 1:
            place = f" at {self.errors[0].path}" if self.errors[0].path else ""
            super().__init__(f"{title}{place}: {self.errors[0].message}")
        else:
            super().__init__(f"{title}:" + "".join(f"\n- {error}" for error in self.errors))

    def to_dict(self) -> dict[str, Any]:
        """For problem+json, and for the file beside a rejected document."""
        return {
            "title": self.title,
            "status": self.status,
            "detail": str(self),
            "errors": [{"path": error.path, "message": error.message} for error in self.errors],
        }


def refusal(
    message: str, path: str = "", status: int = INVALID, title: str = "The request is wrong"
) -> Refused:
    """One reason."""
    return Refused([RequestError(path, message)], status, title)
