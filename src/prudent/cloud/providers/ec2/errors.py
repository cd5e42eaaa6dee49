"""What EC2 says when it refuses: nobody has it, we may not, we asked wrongly, or ask again."""

from __future__ import annotations

from botocore import exceptions as raised

from prudent.cloud.providers.provider import CAPACITY, CONFIG, PRICE, QUOTA, TRANSIENT, LaunchFailed
from prudent.core.errors import BadInput, PrudentError, RunFailed

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
    CONFIG: "mend the EC2 settings; prudent check says what is wrong with them",
    TRANSIENT: "try again in a minute",
    PRICE: "wait for a lower price, or raise the budget",
}


def code_of(error: Exception) -> str:
    """EC2's own word for an error; for those that never got there, the kind of exception.

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
