"""What an error code of the market means for a purchase, and what becomes of the order then.

Pure: codes and times in, a class and a step out. The codes are those of EC2 and STS.

| class | means | then |
|---|---|---|
| capacity | the market does not sell this now | the order is refused, its market cools down, others are tried |
| quota | a quota of the account is exceeded | the order is refused, fewer machines are tried |
| auth | the credentials are missing, expired or not allowed this | an alarm; the order stays as it is |
| configuration | the request is wrong: no such image, subnet or profile | an alarm; the request is made again |
| unknown | no answer, a server error, throttling, a token that is in use | the same request is repeated |

*Source*: EC2 API reference, "Error codes for the Amazon EC2 API" and "Ensuring idempotency in Amazon EC2 API requests"
(IdempotentInstanceTerminated since January 2025).
"""

from enum import StrEnum

#: Seconds that an order whose outcome is unknown is looked for by its tag: several times as long as EC2's reads lag
#: behind its writes.
SETTLES_S = 300
#: Codes of a replayed request that say that its token was used: what it bought has ended, or is another's.
TOKEN_USED = ("IdempotentParameterMismatch", "IdempotentInstanceTerminated")
#: The one of them that says that the token bought machines, which have all ended.
TOKEN_ENDED = "IdempotentInstanceTerminated"

#: State reason of an instance that an error of the market ended at its launch (or, rarely, later).
AT_LAUNCH = "Server.InternalError"
#: A machine that ends by itself so soon after its launch is a failed launch.
LAUNCH_S = 600

_CAPACITY = (
    "InsufficientCapacity",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "InsufficientVolumeCapacity",
    "SpotMaxPriceTooLow",
    "UnfulfillableCapacity",
    "Unsupported",  # this type in this zone
    "VolumeTypeNotAvailableInZone",
)
_QUOTA = (
    "AddressLimitExceeded",
    "ConcurrentSnapshotLimitExceeded",
    "InstanceLimitExceeded",
    "MaxIOPSLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "NetworkInterfaceLimitExceeded",
    "PrivateIpAddressLimitExceeded",
    "RequestResourceCountExceeded",
    "ResourceCountExceeded",
    "SnapshotLimitExceeded",
    "SpotInstanceCountLimitExceeded",
    "VcpuLimitExceeded",
    "VolumeLimitExceeded",
)
#: Errors of a request that may concern its zone alone: the zone was withdrawn, or its subnet deleted.
OF_ZONE = ("InvalidParameterValue", "InvalidSubnet", "InvalidSubnetID.NotFound", "InvalidZone.NotFound")
_AUTH = (
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "Blocked",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "OperationNotPermitted",
    "OptInRequired",
    "PendingVerification",
    "RequestExpired",  # the clock of this machine is wrong
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
)
#: Nothing was done, or it is not known whether; a repetition helps.
_UNKNOWN = (
    *TOKEN_USED,
    "ConcurrentTagAccess",
    "EC2ThrottledException",
    "InternalError",
    "InternalFailure",
    "InvalidSpotInstanceRequestID.NotFound",  # usual for some seconds after a launch
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "Unavailable",
)


#: Codes of a market that wants to be asked less often.
THROTTLED = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "Throttling",
        "ThrottlingException",
    }
)


class Failure(StrEnum):
    """The class of an error code."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    AUTH = "auth"
    CONFIGURATION = "configuration"
    UNKNOWN = "unknown"


class Step(StrEnum):
    """What becomes of an order whose request failed."""

    REFUSE = "refuse"  # nothing was bought: the order is answered
    REPEAT = "repeat"  # the same request again, later
    REMAKE = "remake"  # nothing was bought: the request is made again from the settings, later
    ABANDON = "abandon"  # nothing of it lives: another order follows


def failure_of(code: str, status: int = 400) -> Failure:
    """Return the class of an error code; an unknown one is classed by the HTTP status that it came with."""
    code = code.removeprefix("Client.").removeprefix("Server.")
    for failure, codes in (
        (Failure.CAPACITY, _CAPACITY),
        (Failure.QUOTA, _QUOTA),
        (Failure.AUTH, _AUTH),
        (Failure.UNKNOWN, _UNKNOWN),
    ):
        if code in codes:
            return failure
    if status >= 500 or status == 429:
        return Failure.UNKNOWN
    return Failure.AUTH if status in (401, 403) else Failure.CONFIGURATION


def step_after(failure: Failure, code: str, doubtful_since_s: float | None, now_s: float) -> Step:
    """Return what becomes of an order, of which the market lists no machine.

    Parameters
    ----------
    failure, code : the answer to its request.
    doubtful_since_s : when it first became unknown whether the order had bought machines; None: this never was, apart
        from the present answer.
    now_s : time of the answer.

    Notes
    -----
    After a lost answer a refusal proves nothing at once: the request that was lost may still be carried out, and reads
    lag. It counts when nothing was listed for `SETTLES_S`.
    """
    is_settled = doubtful_since_s is None or now_s - doubtful_since_s >= SETTLES_S
    match failure:
        case Failure.CAPACITY | Failure.QUOTA:
            return Step.REFUSE if is_settled else Step.REPEAT
        case Failure.CONFIGURATION if doubtful_since_s is None:
            return Step.REMAKE
        case Failure.CONFIGURATION:
            return Step.ABANDON if is_settled else Step.REPEAT
        case Failure.UNKNOWN if code in TOKEN_USED and doubtful_since_s is not None:
            return Step.ABANDON if is_settled else Step.REPEAT
    return Step.REPEAT


def is_failed_launch(reason: str) -> bool:
    """Return whether an instance with this state reason never ran: the launch failed after it was accepted.

    The next one like it would fail, too: there is no capacity, a key may not be used, a snapshot is not there.
    `AT_LAUNCH` is also the reason of hardware that fails later: how long the machine lived tells the two apart.
    """
    by_hand = ("Client.UserInitiated", "Client.InstanceInitiated")
    return reason in ("Server.InsufficientInstanceCapacity", AT_LAUNCH) or (
        reason.startswith("Client.") and not reason.startswith(by_hand)
    )


def ended_by_itself(reason: str) -> bool:
    """Return whether an instance with this state reason was ended neither by a call nor by the spot market."""
    return bool(reason) and not reason.startswith(("Client.UserInitiated", "Server.Spot"))
