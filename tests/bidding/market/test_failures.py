"""Classes of error codes, and what follows from each for an order."""

import pytest

from proteus_spot.bidding.market.failures import (
    SETTLES_S,
    TOKEN_USED,
    Failure,
    Step,
    failure_of,
    is_failed_launch,
    step_after,
)
from proteus_spot.bidding.market.spot_market import (
    AccessRefused,
    BadRequest,
    LaunchRefused,
    MarketUnreachable,
    TokenMismatch,
    market_error,
)


@pytest.mark.parametrize(
    ("code", "status", "failure", "error"),
    [
        ("InsufficientInstanceCapacity", 500, Failure.CAPACITY, LaunchRefused),
        ("UnfulfillableCapacity", 400, Failure.CAPACITY, LaunchRefused),
        ("SpotMaxPriceTooLow", 400, Failure.CAPACITY, LaunchRefused),
        ("Unsupported", 400, Failure.CAPACITY, LaunchRefused),
        ("VcpuLimitExceeded", 400, Failure.QUOTA, LaunchRefused),
        ("MaxSpotInstanceCountExceeded", 400, Failure.QUOTA, LaunchRefused),
        ("VolumeLimitExceeded", 400, Failure.QUOTA, LaunchRefused),
        ("ResourceCountExceeded", 400, Failure.QUOTA, LaunchRefused),
        ("RequestExpired", 400, Failure.AUTH, AccessRefused),
        ("ExpiredToken", 400, Failure.AUTH, AccessRefused),
        ("AuthFailure", 401, Failure.AUTH, AccessRefused),
        ("UnauthorizedOperation", 403, Failure.AUTH, AccessRefused),
        ("PendingVerification", 400, Failure.AUTH, AccessRefused),
        ("OperationNotPermitted", 400, Failure.AUTH, AccessRefused),
        ("NewAndForbidden", 403, Failure.AUTH, AccessRefused),
        ("InvalidAMIID.NotFound", 400, Failure.CONFIGURATION, BadRequest),
        ("InvalidParameterValue", 400, Failure.CONFIGURATION, BadRequest),
        ("NewAndWrong", 400, Failure.CONFIGURATION, BadRequest),
        ("IdempotentParameterMismatch", 400, Failure.UNKNOWN, TokenMismatch),
        ("IdempotentInstanceTerminated", 400, Failure.UNKNOWN, TokenMismatch),
        ("InvalidSpotInstanceRequestID.NotFound", 400, Failure.UNKNOWN, MarketUnreachable),
        ("Client.RequestLimitExceeded", 503, Failure.UNKNOWN, MarketUnreachable),
        ("ConcurrentTagAccess", 400, Failure.UNKNOWN, MarketUnreachable),
        ("NewAndTooMuch", 429, Failure.UNKNOWN, MarketUnreachable),
        ("NewAndBroken", 502, Failure.UNKNOWN, MarketUnreachable),
    ],
)
def test_a_code_is_of_one_class_and_becomes_an_error_of_that_class(
    code: str, status: int, failure: Failure, error: type
) -> None:
    assert failure_of(code, status) is failure
    made = market_error(code, "told", status, launching=True)
    assert (type(made), made.failure, made.code, made.message) == (error, failure, code, "told")


def test_nothing_but_a_launch_is_refused_for_capacity() -> None:
    assert type(market_error("InsufficientInstanceCapacity", "told", 500)) is BadRequest
    assert type(market_error("IdempotentParameterMismatch", "told")) is MarketUnreachable


NOW_S = 10_000.0
JUST, LONG = NOW_S - SETTLES_S + 1, NOW_S - SETTLES_S


@pytest.mark.parametrize(
    ("failure", "code", "doubtful_since_s", "step"),
    [
        (Failure.CAPACITY, "InsufficientInstanceCapacity", None, Step.REFUSE),
        (Failure.CAPACITY, "InsufficientInstanceCapacity", JUST, Step.REPEAT),
        (Failure.CAPACITY, "InsufficientInstanceCapacity", LONG, Step.REFUSE),
        (Failure.QUOTA, "VcpuLimitExceeded", None, Step.REFUSE),
        (Failure.QUOTA, "VcpuLimitExceeded", JUST, Step.REPEAT),
        (Failure.AUTH, "ExpiredToken", None, Step.REPEAT),
        (Failure.AUTH, "ExpiredToken", LONG, Step.REPEAT),
        (Failure.CONFIGURATION, "InvalidAMIID.NotFound", None, Step.REMAKE),
        (Failure.CONFIGURATION, "InvalidAMIID.NotFound", JUST, Step.REPEAT),
        (Failure.CONFIGURATION, "InvalidAMIID.NotFound", LONG, Step.ABANDON),
        (Failure.UNKNOWN, "RequestLimitExceeded", None, Step.REPEAT),
        (Failure.UNKNOWN, "InternalError", LONG, Step.REPEAT),
        *[(Failure.UNKNOWN, code, None, Step.REPEAT) for code in TOKEN_USED],
        *[(Failure.UNKNOWN, code, JUST, Step.REPEAT) for code in TOKEN_USED],
        *[(Failure.UNKNOWN, code, LONG, Step.ABANDON) for code in TOKEN_USED],
    ],
)
def test_what_becomes_of_an_order(failure: Failure, code: str, doubtful_since_s: float | None, step: Step) -> None:
    assert step_after(failure, code, doubtful_since_s, NOW_S) is step


@pytest.mark.parametrize(
    ("reason", "failed"),
    [
        ("Client.InternalError", True),
        ("Client.VolumeLimitExceeded", True),
        ("Client.InvalidSnapshot.NotFound", True),
        ("Server.InsufficientInstanceCapacity", True),
        ("Client.UserInitiatedShutdown", False),
        ("Client.InstanceInitiatedShutdown", False),
        ("Server.SpotInstanceTermination", False),
        ("Server.InternalError", True),
        ("", False),
    ],
)
def test_a_launch_that_fails_is_told_from_an_end(reason: str, failed: bool) -> None:
    assert is_failed_launch(reason) is failed


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("InsufficientVolumeCapacity", Failure.CAPACITY),
        ("VolumeTypeNotAvailableInZone", Failure.CAPACITY),
        ("InsufficientReservedInstanceCapacity", Failure.CAPACITY),
        ("MaxIOPSLimitExceeded", Failure.QUOTA),
        ("PrivateIpAddressLimitExceeded", Failure.QUOTA),
        ("ConcurrentSnapshotLimitExceeded", Failure.QUOTA),
    ],
)
def test_disks_and_addresses_that_are_used_up_are_capacity_or_a_quota(code: str, failure: Failure) -> None:
    assert failure_of(code) is failure
