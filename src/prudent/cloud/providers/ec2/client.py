"""The clients of AWS's services, and what the errors of their calls mean."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from botocore import exceptions as raised

from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.cloud.providers.provider import CAPACITY, CONFIG, PRICE, QUOTA, TRANSIENT, LaunchFailed
from prudent.core.errors import BadInput, PrudentError, RunFailed

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
        """For calls that may safely be repeated: botocore repeats them by itself."""
        return self._client("ec2", patient=True)

    @property
    def launching(self) -> Any:
        """For RunInstances, which we repeat ourselves.

        EC2 answers "no capacity" with status 500: botocore would repeat the call again and again, where the
        next zone should be tried.
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
                f"{str(error).rstrip('.')}; correct region or endpoint in the EC2 settings."
            ) from error


_CAPACITY = {
    "InsufficientInstanceCapacity": "has no such machine free",
    "InsufficientHostCapacity": "has no such host free",
    "InsufficientCapacity": "has no such machine free",
    "InsufficientReservedInstanceCapacity": "has no reserved machine free",
    "InsufficientFreeAddressesInSubnet": "has no address left in the subnet",
    "SpotMaxPriceTooLow": "asks more for spot machines than the most that may be paid",
    # Not in this zone, though perhaps in the next.
    "Unsupported": "does not have this type",
}
_QUOTA = {
    "VcpuLimitExceeded",
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded",
    "NetworkInterfaceLimitExceeded",
    "AddressLimitExceeded",
    "ResourceLimitExceeded",
}
_TRANSIENT = {
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "EC2ThrottledException",
    "RequestThrottled",
    "TooManyRequestsException",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
    "Unavailable",
    "RequestTimeout",
    "RequestTimeoutException",
}
_CREDENTIALS = {
    "AuthFailure",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "OptInRequired",
}
_DENIED = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}
ERRORS = (raised.BotoCoreError, raised.ClientError)
"""Everything that a call of EC2 raises."""

_REMEDIES = {
    CAPACITY: 'try again later, or give more subnets, zones or "alternatives" in the EC2 settings',
    QUOTA: 'ask AWS for a higher quota (Service Quotas, "Amazon EC2"), or for fewer or smaller machines',
    CONFIG: "fix the EC2 settings; prudent check says what is wrong with them",
    TRANSIENT: "try again in a minute",
    PRICE: "wait for a lower price, or raise the budget",
}


def code_of(error: Exception) -> str:
    """EC2's own word for an error; for a call that never reached EC2, the name of the exception.

    >>> code_of(raised.ClientError({"Error": {"Code": "VcpuLimitExceeded"}}, "RunInstances"))
    'VcpuLimitExceeded'
    """
    if isinstance(error, raised.ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def kind_of(error: Exception) -> str:
    """Capacity, quota, config, transient or price.

    >>> kind_of(raised.ClientError({"Error": {"Code": "VcpuLimitExceeded"}}, "RunInstances"))
    'quota'
    >>> kind_of(raised.ReadTimeoutError(endpoint_url="https://ec2"))
    'transient'
    """
    if isinstance(error, LaunchFailed):
        return error.kind
    if not isinstance(error, raised.ClientError):
        lost = (raised.HTTPClientError, raised.ConnectionError)
        garbled = type(error).__name__ == "ResponseParserError"
        return TRANSIENT if isinstance(error, lost) or garbled else CONFIG
    code = code_of(error)
    for codes, kind in ((_CAPACITY, CAPACITY), (_QUOTA, QUOTA), (_TRANSIENT, TRANSIENT)):
        if code in codes:
            return kind
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return TRANSIENT if status >= 500 else CONFIG


def reason_of(error: Exception) -> str:
    """Why, in a few words that begin with EC2's own.

    >>> reason_of(raised.ClientError({"Error": {"Code": "SpotMaxPriceTooLow"}}, "RunInstances"))
    'SpotMaxPriceTooLow: asks more for spot machines than the most that may be paid'
    """
    code = code_of(error)
    if code in _CAPACITY:
        return f"{code}: {_CAPACITY[code]}"
    if isinstance(error, LaunchFailed):
        return str(error).partition(";")[0]
    said = (
        error.response.get("Error", {}).get("Message", "") if isinstance(error, raised.ClientError) else error
    )
    return f"{code}: {' '.join(str(said).split()).rstrip('.')}"


def remedy_of(kind: str) -> str:
    """What to do about a launch that failed."""
    return _REMEDIES[kind]


def translated(error: Exception, doing: str) -> PrudentError:
    """The error of a call as one sentence with its remedy; `doing` goes on "EC2 could not …"."""
    code = code_of(error)
    missing = isinstance(error, (raised.NoCredentialsError, raised.PartialCredentialsError))
    if missing or isinstance(error, (raised.TokenRetrievalError, raised.SSOTokenLoadError)):
        return BadInput(
            f"There are no AWS credentials ({error}); run `aws configure`, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        )
    if isinstance(error, raised.ProfileNotFound):
        return BadInput(f"{error}; add it with `aws configure --profile`, or change it in the settings.")
    if code in _CREDENTIALS:
        return BadInput(
            f"AWS does not accept these credentials ({code}); run `aws configure` again, or log in again."
        )
    if code in _DENIED:
        return BadInput(
            f"These AWS credentials may not {doing} ({code}); attach the policy of prudent infra aws."
        )
    if isinstance(error, raised.EndpointConnectionError):
        return RunFailed(f"{error} Check the region and the network.")
    kind = kind_of(error)
    sentence = f"EC2 could not {doing} ({reason_of(error)}); {remedy_of(kind)}."
    return BadInput(sentence) if kind == CONFIG else RunFailed(sentence)


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """Raise the errors of calls inside the block as `translated` ones."""
    try:
        yield
    except ERRORS as error:
        raise translated(error, doing) from error
