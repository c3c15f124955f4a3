"""Scripted faults of a simulated market, each matched against time, market and call.

The script decides nothing about money or instances; `SimSpotMarket` consults it at every call and carries out what
happens to machines.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proteus_spot.bidding.market.model import Market


class FaultKind(StrEnum):
    """What goes wrong."""

    # What happens to machines, at `at_s` or at once.
    KILL = "kill"  # a spot instance is evicted without notice
    MARK = "mark"  # a spot instance gets its notice, and is evicted `notice_s` later (or, with `spares`, is not)
    REBALANCE = "rebalance"  # a spot instance gets a rebalance recommendation
    FAIL = "fail"  # an instance ends because its hardware does (on-demand instances too)
    REBOOT = "reboot"  # an instance is rebooted by hand
    STOP = "stop"  # an on-demand instance is stopped by hand
    START = "start"  # a stopped instance is started by hand
    # What happens to calls, in [at_s, until_s].
    CAPACITY = "capacity"  # launches are refused: InsufficientInstanceCapacity; but for `available` machines
    DIE = "die"  # launches are accepted, and their instances end `delay_s` market seconds later for the reason `code`
    DENIED = "denied"  # calls are refused with `code`: expired credentials, missing permissions
    THROTTLE = "throttle"  # calls are refused: RequestLimitExceeded
    UNAVAILABLE = "unavailable"  # calls fail with a server error: Unavailable
    DELAY = "delay"  # answers come `delay_s` real seconds late (endpoint only)
    LOSE_ANSWER = "lose-answer"  # the call is carried out, and its answer lost


#: What happens to machines; everything else happens to calls.
OF_MACHINES = frozenset(
    {
        FaultKind.KILL,
        FaultKind.MARK,
        FaultKind.REBALANCE,
        FaultKind.FAIL,
        FaultKind.REBOOT,
        FaultKind.STOP,
        FaultKind.START,
    }
)
#: Of these only spot instances are the target.
OF_SPOT = frozenset({FaultKind.KILL, FaultKind.MARK, FaultKind.REBALANCE})

#: The calls that a fault may name.
OPERATIONS = ("launch", "describe", "terminate", "price_history", "scores", "stop", "start", "reboot", "account")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject.

    Parameters
    ----------
    kind : what happens.
    at_s, until_s : active in [at_s, until_s] of market time; None leaves that side open. What happens to machines
        happens at `at_s`, or at once if that is None.
    market : restricts the fault to one market (of machines: every target that is in it at that moment).
    instance_id : the instance that it happens to.
    operation : restricts the fault to one call, one of `OPERATIONS`.
    times : number of times it strikes; None: always.
    delay_s : real seconds of a delay; market seconds until an accepted launch dies.
    code : EC2's code of a refusal (`DENIED`) or of the reason for an end (`DIE`, `FAIL`); "" is the usual one.
    notice_s : market seconds from a mark to the eviction; None: as the market gives it.
    spares : whether the market marks the machine and then does not take it.
    available : machines that a launch gets in spite of `CAPACITY`, if it accepts fewer than it wants.
    """

    kind: FaultKind
    at_s: int | None = None
    until_s: int | None = None
    market: Market | None = None
    instance_id: str | None = None
    operation: str | None = None
    times: int | None = None
    delay_s: float = 0.0
    code: str = ""
    notice_s: int | None = None
    spares: bool = False
    available: int = 0

    def __post_init__(self) -> None:
        if self.operation is not None and self.operation not in OPERATIONS:
            raise ValueError(f"operation: {self.operation!r} is none of {', '.join(OPERATIONS)}")
        if self.kind in OF_MACHINES and self.market is None and self.instance_id is None:
            raise ValueError(f"{self.kind}: name an instance_id or a market")

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Fault":
        """Return the fault of a JSON object whose keys are the fields; `ValueError` if it is invalid."""
        values = dict(record)
        try:
            values["kind"] = FaultKind(values["kind"])
            if values.get("market") is not None:
                values["market"] = Market.parse(values["market"])
            return cls(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a fault: {record!r} ({error})") from None


class FaultScript:
    """The faults added so far, with the number of strikes left of each."""

    def __init__(self) -> None:
        self._faults: list[tuple[Fault, list[int]]] = []

    def add(self, fault: Fault) -> None:
        """Add `fault`."""
        self._faults.append((fault, [-1 if fault.times is None else fault.times]))

    def strikes(self, kind: FaultKind, operation: str, now_s: int, market: Market | None = None) -> Fault | None:
        """Return the first fault of `kind` that applies to this call, and count the strike; None if none applies.

        To a call about no single market (`market` None) only faults without a market apply.
        """
        for fault, left in self._faults:
            if (
                fault.kind is kind
                and left[0] != 0
                and fault.operation in (None, operation)
                and fault.market in (None, market)
                and (fault.at_s is None or fault.at_s <= now_s)
                and (fault.until_s is None or now_s <= fault.until_s)
            ):
                left[0] -= left[0] > 0
                return fault
        return None
