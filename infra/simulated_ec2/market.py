"""A simulated spot market: the rules of EC2 over price traces, free of I/O; the caller supplies the time.

It follows the bid era: a price above the bid evicts the machine. With availability traces it follows today's market
too: when a market has no capacity, its machines are evicted whatever was bid, and nothing is sold until capacity is
back.

It implements `SpotMarket` and holds the state behind the EC2-compatible endpoint. The same traces, calls and times give
the same result, to the second. Invariants: an ended instance never changes; nothing happens twice; changes come in time
order, also when time jumps.

*Source*: Proteus (EuroSys 2017), section 2 (the EC2 spot market of 2015-2017); the EC2 API reference for codes, tokens
and price history.
*Differs*: EC2 gives its notice when the price has passed the bid and takes the machine two minutes later. This market
knows its trace: it takes the machine at the second of the crossing (which the bill uses) and gives the notice before
it. The codes are today's, not those of 2016. An ended instance is described for ever unless `remember_s` is given (EC2:
about an hour).
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from bidding.evictions.fit_capacity import DOWN, UP
from bidding.market.model import EndCause, InstanceFact, InstanceState, InstanceType, LaunchRequest, Market, PricePoint
from bidding.market.money import Micros, to_dollars
from bidding.market.spot_market import BadRequest, LaunchRefused, MarketUnreachable, TokenMismatch
from bidding.market.traces import Trace, TraceSet
from infra.simulated_ec2.faults import Fault, FaultKind, FaultScript
from infra.simulated_ec2.snapshot import MarketState
from infra.simulated_ec2.snapshot import SimulatedInstance as Remembered

_TOKEN_LENGTH = 64
_USER_DATA_BYTES = 16384
#: A bid must be above this, a tenth of a cent, as on EC2.
_LEAST_BID: Micros = 1000
_NO_TRACES: Mapping[Market, Trace] = MappingProxyType({})


class NoticeMode(StrEnum):
    """Whether an eviction is announced."""

    LEAD = "lead"
    NONE = "none"


class ChangeKind(StrEnum):
    """What happened to an instance."""

    LAUNCHED = "launched"
    RUNNING = "running"
    MARKED = "marked"
    EVICTED = "evicted"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class MarketChange:
    """A change of an instance at market time `at_s`."""

    at_s: int
    kind: ChangeKind
    instance_id: str


class _Due(IntEnum):
    """A kind of due change; changes of one second happen in this order."""

    RUN = 0
    MARK = 1
    EVICT = 2
    FAULT = 3


@dataclass(slots=True)
class _Held:
    """An instance as the market knows it, with its future eviction."""

    number: int
    instance_id: str
    request: LaunchRequest
    launched_at_s: int
    runs_at_s: int
    evicts_at_s: int | None
    marks_at_s: int | None
    running: bool = False
    marked: bool = False
    ended_at_s: int | None = None
    end_cause: EndCause | None = None


class SimSpotMarket:
    """A spot market over price traces.

    Parameters
    ----------
    traces : prices; they also say which zones there are.
    availability : whether spot machines can be had (`bidding.evictions.fit_capacity`); always, in a market without such
        a
        trace and outside of its time.
    sold : returns the type of a market as its region sells it; None for a type that there is not.
    now_s : tells market time, as `Clock.now_s` does; it is asked at every call and floored to whole seconds.
    notice_s : an eviction is announced so long before it, or at launch if that is later.
    notice : whether it is announced at all.
    boot_s : an instance is pending so long.
    max_life_s : a spot instance is taken (announced) at this age; None: at no age.
    remember_s : an ended instance is described so long; None: for ever. `log` forgets nothing.
    seed : makes the instance ids of one market differ from another's.
    """

    def __init__(
        self,
        traces: TraceSet,
        sold: Callable[[Market], InstanceType | None],
        now_s: Callable[[], float],
        *,
        notice_s: int = 120,
        notice: NoticeMode = NoticeMode.LEAD,
        boot_s: int = 0,
        max_life_s: int | None = None,
        remember_s: int | None = None,
        seed: str = "",
        availability: Mapping[Market, Trace] = _NO_TRACES,
    ) -> None:
        self.traces = traces
        self.availability = availability
        self.sold = sold
        self.zones: tuple[str, ...] = tuple(sorted({market.zone for market in traces.markets}))
        self._clock = now_s
        self._notice_s = notice_s
        self._notice = notice
        self._boot_s = boot_s
        self._max_life_s = max_life_s
        self._remember_s = remember_s
        self._seed = seed
        self.faults = FaultScript()
        self._now_s = 0
        self._held: dict[str, _Held] = {}
        #: Purchases by (zone, token): as on EC2, the token of a purchase that names a zone is valid in that zone only.
        self._purchases: dict[tuple[str, str], tuple[LaunchRequest, tuple[str, ...]]] = {}
        self._due: list[tuple[int, _Due, int, str | Fault]] = []
        self._due_count = 0
        self._changes: list[MarketChange] = []

    # The SpotMarket Protocol

    def launch(self, request: LaunchRequest) -> list[InstanceFact]:
        """Buy `request.count` instances, all or none; see `SpotMarket.launch`."""
        now_s = self.enter("launch", request.market)
        self._check(request)
        key = (request.market.zone, request.token)
        if key in self._purchases:
            earlier_request, ids = self._purchases[key]
            if earlier_request != request:
                raise TokenMismatch(
                    "IdempotentParameterMismatch",
                    f"the client token {request.token!r} was used before with other parameters",
                )
            return [self._fact(self._held[instance_id]) for instance_id in ids]
        if self.faults.strikes(FaultKind.CAPACITY, "launch", now_s, request.market) is not None:
            raise _no_capacity(request.market)
        if request.bid_micros is not None:
            self._check_bid(request.market, request.bid_micros, now_s)
        held = [self._hold(request, now_s) for _ in range(request.count)]
        self._purchases[key] = (request, tuple(instance.instance_id for instance in held))
        self._carry_out(now_s)
        return [self._fact(instance) for instance in held]

    def describe(self, tags: Iterable[tuple[str, str]] = ()) -> list[InstanceFact]:
        """Return the instances that carry all of `tags`, in order of launch; see `SpotMarket.describe`."""
        now_s = self.enter("describe")
        wanted = tuple(tags)
        return [
            self._fact(instance)
            for instance in self._held.values()
            if (
                instance.ended_at_s is None
                or self._remember_s is None
                or now_s - instance.ended_at_s <= self._remember_s
            )
            and all(instance.request.tags.get(key) == value for key, value in wanted)
        ]

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Terminate instances; see `SpotMarket.terminate`. An eviction due in the same second wins."""
        now_s = self.enter("terminate")
        for instance_id in instance_ids:
            held = self._held.get(instance_id)
            if held is not None and held.ended_at_s is None:
                self._end(held, now_s, EndCause.USER)

    def price_history(self, markets: Sequence[Market], from_s: int, until_s: int) -> list[PricePoint]:
        """Return price changes up to now; see `SpotMarket.price_history`."""
        now_s = self.enter("price_history")
        points = []
        for market in sorted(set(markets)):
            if market in self.traces:
                rows = self.traces[market].between(from_s, min(until_s, now_s))
                pairs = zip(rows.times_s.tolist(), rows.prices_micros.tolist(), strict=True)
                points += [PricePoint(market, *pair) for pair in pairs]
        points.sort(key=lambda point: (point.at_s, point.market))
        return points

    def newest_price_s(self, after_s: int, until_s: int) -> int | None:
        """Return the time of the newest price; see `SpotMarket.newest_price_s`."""
        last_s = min(until_s, self.enter("price_history"))
        past_times_s = [trace.times_s[trace.times_s <= last_s] for trace in self.traces.values()]
        newest_s = max((int(times_s[-1]) for times_s in past_times_s if times_s.size), default=after_s)
        return newest_s if newest_s > after_s else None

    # Used by the endpoint and the tests

    def advance(self, now_s: float | None = None) -> list[MarketChange]:
        """Carry out what is due by `now_s` (None: by the clock); return all changes since the last call, in order."""
        self._carry_out(int(self._clock() if now_s is None else now_s))
        changes, self._changes = self._changes, []
        return changes

    @property
    def now_s(self) -> int:
        """Market time of the last call, in seconds."""
        return self._now_s

    @property
    def next_due_s(self) -> int | None:
        """Time of the next change that needs no call; None if there is none."""
        return self._due[0][0] if self._due else None

    def has_ended(self, instance_id: str) -> bool:
        """Return whether the instance has ended by the market's time."""
        return self._held[instance_id].ended_at_s is not None

    def request_of(self, instance_id: str) -> LaunchRequest:
        """Return the purchase of the instance; `KeyError` if there is no such instance."""
        return self._held[instance_id].request

    def fact(self, instance_id: str) -> InstanceFact:
        """Return one instance as it is by the market's time; `KeyError` if there is no such instance."""
        return self._fact(self._held[instance_id])

    def has_capacity(self, market: Market, at_s: int) -> bool:
        """Return whether spot machines are available in a market at a time."""
        availability = self.availability.get(market)
        return availability is None or availability.price_at(at_s) != DOWN

    def marked_at_s(self, instance_id: str) -> int | None:
        """Return when the instance was marked for eviction; None if it is not."""
        held = self._held[instance_id]
        return held.marks_at_s if held.marked else None

    def log(self) -> list[InstanceFact]:
        """Return every instance ever sold, in order of launch: the market's own record, for bills."""
        self._carry_out(int(self._clock()))
        return [self._fact(held) for held in self._held.values()]

    def state(self, prices: str) -> MarketState:
        """Return what has been sold, for `restore`; `prices` is a digest that identifies the traces."""
        instances = tuple(
            Remembered(
                instance.instance_id, instance.request, instance.launched_at_s, instance.ended_at_s, instance.end_cause
            )
            for instance in self._held.values()
        )
        return MarketState(self._now_s, self._seed, prices, instances)

    def restore(self, state: MarketState) -> None:
        """Continue from `state`, on the same traces; nothing may have been sold yet.

        Instances that were alive boot again with the next `advance`; changes due since then happen at their own second.
        """
        self._seed, self._now_s = state.seed, state.now_s
        purchases: dict[tuple[str, str], list[str]] = {}
        for instance in state.instances:
            held = self._remember(instance.instance_id, instance.request, instance.launched_at_s)
            if instance.ended_at_s is None:
                self._look_ahead(held)
            else:
                held.ended_at_s, held.end_cause = instance.ended_at_s, instance.end_cause
                held.marked = held.marks_at_s is not None and held.marks_at_s <= instance.ended_at_s
            key = (instance.request.market.zone, instance.request.token)
            purchases.setdefault(key, []).append(instance.instance_id)
            self._purchases[key] = (instance.request, tuple(purchases[key]))

    def shut_down(self, instance_id: str) -> None:
        """End an instance that shut itself down. This is no call of the API, so no fault applies."""
        self._carry_out(int(self._clock()))
        held = self._held[instance_id]
        if held.ended_at_s is None:
            self._end(held, self._now_s, EndCause.USER)

    def add_fault(self, fault: Fault) -> None:
        """Add a fault; a kill whose time is past or absent happens now."""
        self._carry_out(int(self._clock()))
        if fault.kind is not FaultKind.KILL:
            self.faults.add(fault)
            return
        if fault.instance_id is not None:
            held = self._held.get(fault.instance_id)
            if held is None or held.request.bid_micros is None:
                raise ValueError(f"kill: {fault.instance_id} is no spot instance of this market")
        self._schedule(max(fault.at_s or 0, self._now_s), _Due.FAULT, fault)
        self._carry_out(self._now_s)

    def enter(self, operation: str, market: Market | None = None) -> int:
        """Advance the market to now and apply scripted faults to the call; return the market's time."""
        self._carry_out(int(self._clock()))
        if self.faults.strikes(FaultKind.THROTTLE, operation, self._now_s, market) is not None:
            raise MarketUnreachable("RequestLimitExceeded", "Request limit exceeded.")
        if self.faults.strikes(FaultKind.UNAVAILABLE, operation, self._now_s, market) is not None:
            raise MarketUnreachable("Unavailable", "The service is unavailable. Please try again shortly.")
        return self._now_s

    # Rules

    def _check(self, request: LaunchRequest) -> None:
        """Refuse a request that is invalid at any price."""
        market = request.market
        if market.zone not in self.zones:
            raise BadRequest(
                "InvalidParameterValue", f"Invalid availability zone: [{market.zone}] (is none of {list(self.zones)})"
            )
        if self.sold(market) is None:
            raise BadRequest(
                "InvalidParameterValue", f"Invalid value '{market.instance_type}' for InstanceType: unknown type"
            )
        if request.bid_micros is not None and market not in self.traces:
            raise BadRequest("Unsupported", f"{market} is not on the spot market: it has no price")
        if request.count < 1:
            raise BadRequest("InvalidParameterValue", f"Invalid count {request.count}: buy at least one instance")
        if request.bid_micros is not None and request.bid_micros <= _LEAST_BID:
            raise BadRequest(
                "InvalidParameterValue",
                f"a maximum price of {to_dollars(request.bid_micros):g} is too low: it must be more than 0.001",
            )
        if not request.token or len(request.token) > _TOKEN_LENGTH or not request.token.isascii():
            raise BadRequest("InvalidParameterValue", "a client token is 1 to 64 ASCII characters")
        if len(request.user_data.encode()) > _USER_DATA_BYTES:
            raise BadRequest("InvalidParameterValue", "User data is limited to 16384 bytes")

    def _check_bid(self, market: Market, bid_micros: Micros, now_s: int) -> None:
        price_micros = self.traces[market].price_at(now_s)
        if price_micros is None or not self.has_capacity(market, now_s):
            raise _no_capacity(market)
        if price_micros > bid_micros:
            raise LaunchRefused(
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {to_dollars(bid_micros):g} is lower than the minimum required "
                f"Spot request fulfillment price of {to_dollars(price_micros):g}.",
            )

    def _hold(self, request: LaunchRequest, now_s: int) -> _Held:
        digest = hashlib.blake2s(f"{self._seed}/{len(self._held)}".encode()).hexdigest()
        held = self._remember(f"i-{digest[:17]}", request, now_s)
        self._changes.append(MarketChange(now_s, ChangeKind.LAUNCHED, held.instance_id))
        self._look_ahead(held)
        return held

    def _remember(self, instance_id: str, request: LaunchRequest, launched_at_s: int) -> _Held:
        evicts_at_s = self._crossing(request, launched_at_s)
        marks_at_s = None
        if evicts_at_s is not None and self._notice is NoticeMode.LEAD:
            marks_at_s = max(evicts_at_s - self._notice_s, launched_at_s)
        runs_at_s = launched_at_s + self._boot_s
        held = _Held(len(self._held), instance_id, request, launched_at_s, runs_at_s, evicts_at_s, marks_at_s)
        self._held[instance_id] = held
        return held

    def _look_ahead(self, held: _Held) -> None:
        """Schedule the future changes of an instance."""
        self._schedule(held.runs_at_s, _Due.RUN, held.instance_id)
        if held.marks_at_s is not None:
            self._schedule(held.marks_at_s, _Due.MARK, held.instance_id)
        if held.evicts_at_s is not None:
            self._schedule(held.evicts_at_s, _Due.EVICT, held.instance_id)

    def _crossing(self, request: LaunchRequest, now_s: int) -> int | None:
        """Return the second at which an instance launched now will be evicted; None if never."""
        if request.bid_micros is None:
            return None
        ends = [self.traces[request.market].first_above(request.bid_micros, now_s)]
        availability = self.availability.get(request.market)
        if availability is not None:
            ends.append(availability.first_above(UP, now_s))
        if self._max_life_s is not None:
            ends.append(now_s + self._max_life_s)
        return min((end for end in ends if end is not None), default=None)

    def _schedule(self, at_s: int, due: _Due, subject: str | Fault) -> None:
        self._due_count += 1
        heapq.heappush(self._due, (at_s, due, self._due_count, subject))

    def _carry_out(self, now_s: int) -> None:
        """Apply every change that is due by `now_s`, in order. Time never goes backwards."""
        self._now_s = max(now_s, self._now_s)
        while self._due and self._due[0][0] <= self._now_s:
            at_s, due, _, subject = heapq.heappop(self._due)
            if isinstance(subject, Fault):
                self._kill(subject, at_s)
                continue
            held = self._held[subject]
            if held.ended_at_s is not None:
                continue
            if due is _Due.RUN:
                held.running = True
                self._changes.append(MarketChange(at_s, ChangeKind.RUNNING, subject))
            elif due is _Due.MARK:
                held.marked = True
                self._changes.append(MarketChange(at_s, ChangeKind.MARKED, subject))
            else:
                self._end(held, at_s, EndCause.EVICTED)

    def _kill(self, fault: Fault, at_s: int) -> None:
        for held in self._held.values():
            is_target = held.instance_id == fault.instance_id or (
                fault.instance_id is None and held.request.market == fault.market
            )
            if is_target and held.request.bid_micros is not None and held.ended_at_s is None:
                self._end(held, at_s, EndCause.EVICTED)

    def _end(self, held: _Held, at_s: int, cause: EndCause) -> None:
        held.ended_at_s, held.end_cause = at_s, cause
        kind = ChangeKind.EVICTED if cause is EndCause.EVICTED else ChangeKind.TERMINATED
        self._changes.append(MarketChange(at_s, kind, held.instance_id))

    def _fact(self, held: _Held) -> InstanceFact:
        if held.ended_at_s is not None:
            state = InstanceState.TERMINATED
        else:
            state = InstanceState.RUNNING if held.running else InstanceState.PENDING
        return InstanceFact(
            instance_id=held.instance_id,
            market=held.request.market,
            state=state,
            launched_at_s=held.launched_at_s,
            bid_micros=held.request.bid_micros,
            token=held.request.token,
            tags=dict(held.request.tags),
            address="127.0.0.1" if held.ended_at_s is None else "",
            notice_at_s=held.evicts_at_s if held.marked else None,
            ended_at_s=held.ended_at_s,
            end_cause=held.end_cause,
        )


def _no_capacity(market: Market) -> LaunchRefused:
    return LaunchRefused(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {market.instance_type} capacity in {market.zone}.",
    )
