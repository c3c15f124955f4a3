"""The record of one machine of the simulated market: its purchase, its boots, its eviction and its end.

A record holds the second of every change, so it can say how the machine was at any earlier moment: that is what a read
shows which lags behind.
"""

from dataclasses import dataclass, field

from proteus_spot.bidding.market.model import EndCause, InstanceFact, InstanceState, LaunchRequest

#: The account that a market serves unless another is named.
ACCOUNT = "000000000000"


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What a purchase says beyond its `LaunchRequest`.

    Parameters
    ----------
    account : the account that buys.
    at_least : smaller number of machines that is also accepted (EC2's MinCount); None: all or none.
    zonal : whether the request names its zone; the client token of one that does is valid in that zone only.
    other : digest of all further parameters; the same token with another digest is a mismatch.
    """

    account: str = ACCOUNT
    at_least: int | None = None
    zonal: bool = True
    other: str = ""


@dataclass(slots=True)
class Boot:
    """A span in which a machine is on: it starts, runs from `runs_s` on (None: never), and is stopped; in seconds."""

    start_s: int
    runs_s: int | None
    stopped_s: int | None = None


@dataclass(slots=True)
class HeldInstance:
    """A machine as the market knows it, with its future eviction; times are seconds of market time."""

    instance_id: str
    request: LaunchRequest
    options: LaunchOptions
    launched_at_s: int
    #: When it will be taken; None: never, as far as the market knows.
    evicts_at_s: int | None
    #: When it is marked, and the time of the eviction that the mark names.
    marks_at_s: int | None
    announced_s: int | None
    boots: list[Boot] = field(default_factory=list)
    rebalance_at_s: int | None = None
    ended_at_s: int | None = None
    end_cause: EndCause | None = None
    end_reason: str = ""

    @property
    def is_spot(self) -> bool:
        """Whether it was bid for."""
        return self.request.bid_micros is not None

    @property
    def boot(self) -> Boot:
        """The last boot."""
        return self.boots[-1]

    def has_ended(self, at_s: int) -> bool:
        """Return whether it had ended by `at_s`."""
        return self.ended_at_s is not None and self.ended_at_s <= at_s

    def marked_at_s(self, at_s: int) -> int | None:
        """Return when it was marked, if that was by `at_s` and before its end; else None."""
        last_s = at_s if self.ended_at_s is None else min(at_s, self.ended_at_s)
        return self.marks_at_s if self.marks_at_s is not None and self.marks_at_s <= last_s else None

    def state(self, at_s: int) -> InstanceState:
        """Return its state at `at_s`, which is not before its launch."""
        if self.has_ended(at_s):
            return InstanceState.TERMINATED
        boot = next(boot for boot in reversed(self.boots) if boot.start_s <= at_s or boot is self.boots[0])
        if boot.stopped_s is not None and boot.stopped_s <= at_s:
            return InstanceState.STOPPED
        return InstanceState.RUNNING if boot.runs_s is not None and boot.runs_s <= at_s else InstanceState.PENDING

    def fact(self, at_s: int) -> InstanceFact:
        """Return the market's report of it as of `at_s`."""
        ended = self.has_ended(at_s)
        return InstanceFact(
            instance_id=self.instance_id,
            market=self.request.market,
            state=self.state(at_s),
            launched_at_s=self.launched_at_s,
            bid_micros=self.request.bid_micros,
            token=self.request.token,
            tags=dict(self.request.tags),
            address="" if ended else "127.0.0.1",
            notice_at_s=self.announced_s if self.marked_at_s(at_s) is not None else None,
            ended_at_s=self.ended_at_s if ended else None,
            end_cause=self.end_cause if ended else None,
            end_reason=self.end_reason if ended else "",
        )

    def used(self, until_s: int) -> tuple[tuple[int, int], ...]:
        """Return the spans [from, until) in which it was on, up to `until_s`; none for a launch that failed."""
        if self.end_cause is EndCause.FAILED:
            return ()
        last_s = until_s if self.ended_at_s is None else min(until_s, self.ended_at_s)
        spans = (
            (boot.start_s, last_s if boot.stopped_s is None else min(boot.stopped_s, last_s)) for boot in self.boots
        )
        return tuple((from_s, to_s) for from_s, to_s in spans if from_s < to_s)
