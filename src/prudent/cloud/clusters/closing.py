"""What is closed at the end of a `with`, and does not hide the error that ended it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from prudent.core.errors import PrudentError


class Closing(ABC):
    """Closed when its block ends. Trouble while closing is told, but what went wrong first comes first."""

    @abstractmethod
    def close(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except PrudentError as trouble:
            if error is None:
                raise
            error.add_note(str(trouble))
