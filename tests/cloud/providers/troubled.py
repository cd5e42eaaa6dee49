"""A real provider in trouble: chosen calls fail, before or after they have done their work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prudent.cloud.providers.provider import Instance, Provider


class Troubled:
    """Delegates to a provider; `before` and `after` may raise, given the name of the call and its number."""

    def __init__(
        self,
        provider: Provider,
        before: Callable[[str, int], None] = lambda call, number: None,
        after: Callable[[str, int], None] = lambda call, number: None,
    ) -> None:
        self.provider = provider
        self.before = before
        self.after = after
        self.calls: list[str] = []

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def settings(self) -> dict[str, str]:
        return self.provider.settings

    def check(self, types: Sequence[str] = (), spot: bool = False) -> list[str]:
        return self._do("check", types, spot)  # type: ignore[no-any-return]

    def offer(self, type_name: str, spot: bool = False) -> Any:
        return self._do("offer", type_name, spot)

    def launch(self, order: Any) -> Any:
        return self._do("launch", order)

    def ready(self, instances: Sequence[Instance], timeout_s: float) -> Any:
        return self._do("ready", instances, timeout_s)

    def list(self) -> Any:
        return self._do("list")

    def renew(self, instances: Sequence[Instance], lease_end_s: float) -> None:
        self._do("renew", instances, lease_end_s)

    def terminate(self, instances: Sequence[Instance]) -> None:
        self._do("terminate", instances)

    def channel(self, instance: Instance) -> Any:
        return self._do("channel", instance)

    def preempted(self, instance: Instance) -> Any:
        return self._do("preempted", instance)

    def _do(self, call: str, *words: Any) -> Any:
        self.calls.append(call)
        number = self.calls.count(call)
        self.before(call, number)
        answer = getattr(self.provider, call)(*words)
        self.after(call, number)
        return answer


def failing(error: BaseException, *calls: str, times: int = 10**9) -> Callable[[str, int], None]:
    """Raises at the first `times` of these calls."""

    def fail(call: str, number: int) -> None:
        if call in calls and number <= times:
            raise error

    return fail
