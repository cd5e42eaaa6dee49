"""The calls of AWS, with patience where a call may be repeated."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from prudent.cloud.providers.ec2.errors import ERRORS, translated
from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.core.errors import BadInput

_CONNECT_S, _READ_S = 10.0, 60.0
_ATTEMPTS = 6


def new_session(profile: str = "") -> Any:
    """Credentials as they are now. What describes AWS's calls, 5 MB for EC2 alone, is read only once."""
    from botocore.session import Session

    session = Session(profile=profile or None)
    session.register_component("data_loader", _descriptions())
    return session


@cache
def _descriptions() -> Any:
    from botocore.loaders import create_loader

    return create_loader()


class Ec2Clients:
    """Clients of AWS's services, made when first used. Safe to share between threads."""

    def __init__(self, settings: Ec2Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._made: dict[tuple[str, bool], Any] = {}
        self._session: Any = None

    @property
    def ec2(self) -> Any:
        """For what may be asked as often as one likes: botocore asks again by itself."""
        return self._client("ec2", patient=True)

    @property
    def launching(self) -> Any:
        """For RunInstances, which we repeat ourselves.

        EC2 answers "no capacity" with status 500, which botocore would ask again and again where the next
        zone should be tried.
        """
        return self._client("ec2", patient=False)

    @property
    def ssm(self) -> Any:
        return self._client("ssm", patient=True)

    @property
    def sts(self) -> Any:
        return self._client("sts", patient=True)

    @property
    def servicequotas(self) -> Any:
        return self._client("service-quotas", patient=True)

    @property
    def iam(self) -> Any:
        return self._client("iam", patient=True)

    def _client(self, service: str, patient: bool) -> Any:
        with self._lock:  # sessions are not for several threads, clients are
            if (service, patient) not in self._made:
                self._made[service, patient] = self._new(service, patient)
            return self._made[service, patient]

    def _new(self, service: str, patient: bool) -> Any:
        from botocore.config import Config

        retries = {"mode": "standard", "total_max_attempts": _ATTEMPTS if patient else 1}
        config = Config(
            retries=retries, connect_timeout=_CONNECT_S, read_timeout=_READ_S, max_pool_connections=32
        )
        try:
            if self._session is None:
                self._session = new_session(self._settings.profile)
            return self._session.create_client(
                service,
                region_name=self._settings.region,
                endpoint_url=self._settings.endpoint or None,
                config=config,
            )
        except ERRORS as error:
            raise translated(error, "be reached") from error
        except ValueError as error:  # an endpoint or a region that is no word of an address
            raise BadInput(
                f"{str(error).rstrip('.')}; mend region or endpoint in the EC2 settings."
            ) from error
