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
it. The codes are today's, not those of 2016. A client token whose instances have all been terminated is refused
(`IdempotentInstanceTerminated`), as EC2 does since January 2025. Unless the market is given another `Ec2Behaviour`
(`rules.behaviour`), reads show everything at once, and nothing is forgotten.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from types import MappingProxyType

from bidding.evictions.fit_capacity import DOWN, UP
from bidding.market.model import EndCause, InstanceFact, InstanceState, InstanceType, LaunchRequest, Market, PricePoint
from bidding.market.money import Micros
from bidding.market.spot_market import BadRequest, LaunchRefused, MarketUnreachable
from bidding.market.traces import Trace, TraceSet
from infra.simulated_ec2.faults import OF_MACHINES, OF_SPOT, Fault, FaultKind, FaultScript
from infra.simulated_ec2.held_instances import ACCOUNT, Boot, HeldInstance, LaunchOptions
from infra.simulated_ec2.rules.behaviour import IMMEDIATE, Ec2Behaviour, lag_s
from infra.simulated_ec2.rules.bill import Usage
from infra.simulated_ec2.rules.client_tokens import ClientTokens
from infra.simulated_ec2.rules.quotas import quota_of
from infra.simulated_ec2.rules.refusals import check_parameters, denied, no_capacity, over_quota, price_above_bid
from infra.simulated_ec2.snapshot import MarketState, SimulatedInstance

_NO_TRACES: Mapping[Market, Trace] = MappingProxyType({})
_DEFAULT_OPTIONS = LaunchOptions()


class NoticeMode(StrEnum):
    """Whether an eviction is announced."""

    LEAD = "lead"
    NONE = "none"


class ChangeKind(StrEnum):
    """What happened to an instance."""

    LAUNCHED = "launched"
    RUNNING = "running"  # its first boot: user-data runs
    MARKED = "marked"
    REBOOTED = "rebooted"  # on again, or started after a stop: user-data does not run again
    STOPPED = "stopped"
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
    SPARE = 3  # a mark is withdrawn
    DIE = 4
    FAULT = 5


@dataclass(frozen=True, slots=True)
class Listing:
    """What one read shows.

    Parameters
    ----------
    instances : the instances that it lists, in order of launch.
    requests : the instances whose spot requests it finds, by id, as old as the read shows requests.
    """

    instances: list[InstanceFact]
    requests: dict[str, InstanceFact] = field(default_factory=dict)


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
    behaviour : what reads show and what is forgotten (`log` forgets nothing), and quotas.
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
        behaviour: Ec2Behaviour = IMMEDIATE,
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
        self.behaviour = behaviour
        self._seed = seed
        self.faults = FaultScript()
        self._now_s = 0
        self._held: dict[str, HeldInstance] = {}
        self._tokens = ClientTokens(behaviour.token_memory_s)
        self._due: list[tuple[int, _Due, int, str | Fault]] = []
        self._due_count = 0
        self._reads = 0
        self._changes: list[MarketChange] = []

    # The SpotMarket Protocol, for the account `ACCOUNT` or another (`account_market`)

    def account_id(self) -> str:
        """Return the account `ACCOUNT`; see `SpotMarket.account_id`."""
        self.enter("account")
        return ACCOUNT

    def freeze(self, request: LaunchRequest) -> LaunchRequest:
        """Return `request`: it is all that a launch uses; see `SpotMarket.freeze`."""
        return request

    def dry_run(self, request: LaunchRequest) -> None:
        """Check a purchase; see `SpotMarket.dry_run`."""
        self.enter("launch", request.market)
        self._check(request)

    def launch(self, request: LaunchRequest, options: LaunchOptions = _DEFAULT_OPTIONS) -> list[InstanceFact]:
        """Buy `request.count` instances, all or none (but see `options`); see `SpotMarket.launch`."""
        facts = self.purchase(request, options)
        self._lose_answer("launch", request.market)
        return facts

    def describe(self, tags: Iterable[tuple[str, str]] = (), account: str = ACCOUNT) -> list[InstanceFact]:
        """Return the instances that carry all of `tags`, in order of launch; see `SpotMarket.describe`."""
        self.enter("describe")
        wanted = tuple(tags)
        listing = self.listing(account)
        found = [fact for fact in listing.instances if all(fact.tags.get(key) == value for key, value in wanted)]
        self._lose_answer("describe")
        return [
            fact
            if fact.bid_micros is None or fact.instance_id in listing.requests
            else replace(fact, bid_micros=None, notice_at_s=None, complete=False)
            for fact in found
        ]

    def terminate(self, instance_ids: Sequence[str], account: str = ACCOUNT) -> None:
        """Terminate instances; see `SpotMarket.terminate`. An eviction due in the same second wins."""
        self.enter("terminate")
        visible = {fact.instance_id for fact in self.listing(account).instances}
        self.end([instance_id for instance_id in instance_ids if instance_id in visible])
        self._lose_answer("terminate")

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
        self._lose_answer("price_history")
        return points

    def newest_price_s(self, after_s: int, until_s: int) -> int | None:
        """Return the time of the newest price; see `SpotMarket.newest_price_s`."""
        last_s = min(until_s, self.enter("price_history"))
        past_times_s = [trace.times_s[trace.times_s <= last_s] for trace in self.traces.values()]
        newest_s = max((int(times_s[-1]) for times_s in past_times_s if times_s.size), default=after_s)
        return newest_s if newest_s > after_s else None

    # The calls of the endpoint: their answers are lost by the endpoint itself

    def purchase(self, request: LaunchRequest, options: LaunchOptions = _DEFAULT_OPTIONS) -> list[InstanceFact]:
        """Buy instances: `request.count`, or where there are fewer than that, at least `options.at_least`.

        Raises
        ------
        LaunchRefused, TokenMismatch, BadRequest, MarketUnreachable
        """
        now_s = self.enter("launch", request.market)
        self._check(request)
        repeated = self._tokens.find(request, options, now_s)
        if repeated:
            return [held.fact(now_s) for held in repeated]
        count = self._available(request, options, now_s)
        if request.bid_micros is not None:
            self._check_bid(request.market, request.bid_micros, now_s)
        died = self.faults.strikes(FaultKind.DIE, "launch", now_s, request.market)
        held = [self._hold(request, options, now_s, died) for _ in range(count)]
        self._carry_out(now_s)
        return [instance.fact(now_s) for instance in held]

    def listing(self, account: str = ACCOUNT) -> Listing:
        """Return what the next read of an account shows at the market's time: things as they were a while ago."""
        self._reads += 1
        seen_s = self._now_s - lag_s(self.behaviour.instance_lag_s, f"{self._seed}/instances", self._reads)
        requests_s = self._now_s - lag_s(self.behaviour.request_lag_s, f"{self._seed}/requests", self._reads)
        own = [held for held in self._held.values() if held.options.account == account and not self._forgotten(held)]
        return Listing(
            [held.fact(seen_s) for held in own if held.launched_at_s <= seen_s],
            {
                held.instance_id: held.fact(requests_s)
                for held in own
                if held.is_spot and held.launched_at_s <= requests_s
            },
        )

    def end(self, instance_ids: Iterable[str]) -> None:
        """Terminate instances at the market's time; those that have ended, or are unknown, are no error."""
        for instance_id in instance_ids:
            held = self._held.get(instance_id)
            if held is not None and held.ended_at_s is None:
                self._end(held, self._now_s, EndCause.USER, "Client.UserInitiatedShutdown")

    def reboot(self, instance_id: str) -> None:
        """Reboot a running instance: everything on it is killed, and it boots without running its user-data again."""
        self._reboot(self._held[instance_id], self._now_s)

    def stop(self, instance_id: str) -> None:
        """Stop an on-demand instance. It is not charged until it is started again, and it is not terminated.

        Raises
        ------
        BadRequest
            ``UnsupportedOperation`` for a spot instance: a one-time request's instance cannot be stopped.
        """
        held = self._held[instance_id]
        if held.is_spot:
            raise BadRequest(
                "UnsupportedOperation", f"You can't stop the Spot Instance '{instance_id}' of a one-time request"
            )
        self._stop(held, self._now_s)

    def start(self, instance_id: str) -> None:
        """Start a stopped instance; it boots without running its user-data again.

        Raises
        ------
        BadRequest
            ``IncorrectInstanceState`` for one that has ended.
        """
        held = self._held[instance_id]
        if held.ended_at_s is not None:
            raise BadRequest(
                "IncorrectInstanceState",
                f"The instance '{instance_id}' is not in a state from which it can be started.",
            )
        self._start(held, self._now_s)
        self._carry_out(self._now_s)

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
        return self._held[instance_id].fact(self._now_s)

    def has_capacity(self, market: Market, at_s: int) -> bool:
        """Return whether spot machines are available in a market at a time."""
        availability = self.availability.get(market)
        return availability is None or availability.price_at(at_s) != DOWN

    def marked_at_s(self, instance_id: str) -> int | None:
        """Return when the instance was marked for eviction; None if it is not."""
        return self._held[instance_id].marked_at_s(self._now_s)

    def rebalance_at_s(self, instance_id: str) -> int | None:
        """Return when a rebalance was recommended to the instance; None if it was not."""
        return self._held[instance_id].rebalance_at_s

    def log(self) -> list[InstanceFact]:
        """Return every instance ever sold, to whatever account, in order of launch: the market's own record."""
        self._carry_out(int(self._clock()))
        return [held.fact(self._now_s) for held in self._held.values()]

    def bill(self, spot: Callable[[Usage], Micros], on_demand: Callable[[Usage], Micros]) -> dict[str, Micros]:
        """Return what each instance has cost by now, by its id, under two rules of `rules.bill`.

        The on-demand price is the present one of its type.
        """
        self._carry_out(int(self._clock()))
        return {
            held.instance_id: (spot if held.is_spot else on_demand)(
                Usage(
                    held.used(self._now_s),
                    self._price(held),
                    held.is_spot,
                    held.end_cause is EndCause.EVICTED,
                )
            )
            for held in self._held.values()
        }

    def state(self, prices: str) -> MarketState:
        """Return what has been sold, for `restore`; `prices` is a digest that identifies the traces."""
        instances = tuple(
            SimulatedInstance(
                held.instance_id,
                held.request,
                held.launched_at_s,
                held.ended_at_s,
                held.end_cause,
                held.end_reason,
                held.options,
                tuple((boot.start_s, boot.runs_s, boot.stopped_s) for boot in held.boots),
                (held.evicts_at_s, held.marks_at_s, held.announced_s),
            )
            for held in self._held.values()
        )
        return MarketState(self._now_s, self._seed, prices, instances)

    def restore(self, state: MarketState) -> None:
        """Continue from `state`, on the same traces; nothing may have been sold yet.

        Instances that were alive boot again with the next `advance`; changes due since then happen at their own second.
        """
        self._seed, self._now_s = state.seed, state.now_s
        for instance in state.instances:
            held = self._remember(instance.instance_id, instance.request, instance.options, instance.launched_at_s)
            if instance.boots:
                held.boots = [Boot(*span) for span in instance.boots]
            held.end_reason = instance.end_reason
            if instance.fate is not None:
                held.evicts_at_s, held.marks_at_s, held.announced_s = instance.fate
            if instance.ended_at_s is None:
                self._look_ahead(held)
            else:
                held.ended_at_s, held.end_cause = instance.ended_at_s, instance.end_cause
            self._tokens.remember(held)

    def shut_down(self, instance_id: str) -> None:
        """End an instance that shut itself down. This is no call of the API, so no fault applies."""
        self._carry_out(int(self._clock()))
        held = self._held[instance_id]
        if held.ended_at_s is None:
            self._end(held, self._now_s, EndCause.USER, "Client.InstanceInitiatedShutdown")

    def add_fault(self, fault: Fault) -> None:
        """Add a fault; what happens to machines, and whose time is past or absent, happens now."""
        self._carry_out(int(self._clock()))
        if fault.kind not in OF_MACHINES:
            self.faults.add(fault)
            return
        if fault.instance_id is not None:
            held = self._held.get(fault.instance_id)
            if held is None or (fault.kind in OF_SPOT and not held.is_spot):
                raise ValueError(f"{fault.kind}: {fault.instance_id} is no spot instance of this market")
        self._schedule(max(fault.at_s or 0, self._now_s), _Due.FAULT, fault)
        self._carry_out(self._now_s)

    def enter(self, operation: str, market: Market | None = None) -> int:
        """Advance the market to now and apply scripted faults to the call; return the market's time."""
        self._carry_out(int(self._clock()))
        if self.faults.strikes(FaultKind.THROTTLE, operation, self._now_s, market) is not None:
            raise MarketUnreachable("RequestLimitExceeded", "Request limit exceeded.")
        if self.faults.strikes(FaultKind.UNAVAILABLE, operation, self._now_s, market) is not None:
            raise MarketUnreachable("Unavailable", "The service is unavailable. Please try again shortly.")
        refusal = self.faults.strikes(FaultKind.DENIED, operation, self._now_s, market)
        if refusal is not None:
            raise denied(refusal.code)
        return self._now_s

    def _lose_answer(self, operation: str, market: Market | None = None) -> None:
        if self.faults.strikes(FaultKind.LOSE_ANSWER, operation, self._now_s, market) is not None:
            raise MarketUnreachable("ConnectionClosedError", "the connection was closed before the answer came")

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
            raise LaunchRefused("Unsupported", f"{market} is not on the spot market: it has no price")
        check_parameters(request)

    def _check_bid(self, market: Market, bid_micros: Micros, now_s: int) -> None:
        price_micros = self.traces[market].price_at(now_s)
        if price_micros is None or not self.has_capacity(market, now_s):
            raise no_capacity(market)
        if price_micros > bid_micros:
            raise price_above_bid(bid_micros, price_micros)

    def _available(self, request: LaunchRequest, options: LaunchOptions, now_s: int) -> int:
        """Return how many machines the purchase gets, by capacity and quota; raise if that is too few."""
        least = request.count if options.at_least is None else options.at_least
        scarce = self.faults.strikes(FaultKind.CAPACITY, "launch", now_s, request.market)
        count = request.count if scarce is None else min(request.count, scarce.available)
        if count < max(least, 1):
            raise no_capacity(request.market)
        room = self._room(request, options.account)
        if room is not None and room < least:
            raise over_quota(request.bid_micros is not None)
        return count if room is None else min(count, room)

    def _room(self, request: LaunchRequest, account: str) -> int | None:
        """Return how many more machines the account's quota allows; None without a quota."""
        quota = quota_of(request.market.instance_type, request.bid_micros is not None)
        limit = None if quota is None else self.behaviour.quotas.get(quota.code)
        if limit is None:
            return None
        used = sum(
            self._vcpus(held.request.market)
            for held in self._held.values()
            if held.options.account == account
            and held.state(self._now_s) in (InstanceState.PENDING, InstanceState.RUNNING)
            and quota_of(held.request.market.instance_type, held.is_spot) is quota
        )
        return max(limit - used, 0) // self._vcpus(request.market)

    def _vcpus(self, market: Market) -> int:
        kind = self.sold(market)
        assert kind is not None, f"{market} was sold"
        return kind.vcpu

    def _forgotten(self, held: HeldInstance) -> bool:
        remember_s = self.behaviour.remember_s
        return remember_s is not None and held.ended_at_s is not None and self._now_s - held.ended_at_s > remember_s

    def _price(self, held: HeldInstance) -> Callable[[int], Micros]:
        market = held.request.market

        def price_at(at_s: int) -> Micros:
            kind = self.sold(market)
            assert kind is not None, f"{market} was sold"
            price_micros = self.traces[market].price_at(at_s) if held.is_spot else kind.on_demand_micros
            assert price_micros is not None, f"{market} was sold without a price"
            return price_micros

        return price_at

    def _hold(self, request: LaunchRequest, options: LaunchOptions, now_s: int, died: Fault | None) -> HeldInstance:
        digest = hashlib.blake2s(f"{self._seed}/{len(self._held)}".encode()).hexdigest()
        held = self._remember(f"i-{digest[:17]}", request, options, now_s)
        self._tokens.remember(held)
        self._changes.append(MarketChange(now_s, ChangeKind.LAUNCHED, held.instance_id))
        if died is None:
            self._look_ahead(held)
        else:
            held.boot.runs_s = None
            held.end_reason = died.code or "Server.InsufficientInstanceCapacity"
            self._schedule(now_s + int(died.delay_s), _Due.DIE, held.instance_id)
        return held

    def _remember(
        self, instance_id: str, request: LaunchRequest, options: LaunchOptions, launched_at_s: int
    ) -> HeldInstance:
        evicts_at_s = self._crossing(request, launched_at_s)
        marks_at_s = None
        if evicts_at_s is not None and self._notice is NoticeMode.LEAD:
            marks_at_s = max(evicts_at_s - self._notice_s, launched_at_s)
        boots = [Boot(launched_at_s, launched_at_s + self._boot_s)]
        held = HeldInstance(instance_id, request, options, launched_at_s, evicts_at_s, marks_at_s, evicts_at_s, boots)
        self._held[instance_id] = held
        return held

    def _look_ahead(self, held: HeldInstance) -> None:
        """Schedule the future changes of an instance."""
        if held.boot.runs_s is None:
            self._schedule(self._now_s, _Due.DIE, held.instance_id)
            return
        if held.boot.stopped_s is None:
            self._schedule(held.boot.runs_s, _Due.RUN, held.instance_id)
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
                self._strike(subject, at_s)
                continue
            held = self._held[subject]
            if held.ended_at_s is None:
                self._change(held, due, at_s)

    def _change(self, held: HeldInstance, due: _Due, at_s: int) -> None:
        """Carry out a due change of a living instance, if it is still due."""
        if due is _Due.RUN and held.boot.runs_s == at_s and held.boot.stopped_s is None:
            kind = ChangeKind.RUNNING if len(held.boots) == 1 else ChangeKind.REBOOTED
            self._changes.append(MarketChange(at_s, kind, held.instance_id))
        elif due is _Due.MARK and held.marks_at_s == at_s:
            self._changes.append(MarketChange(at_s, ChangeKind.MARKED, held.instance_id))
        elif due is _Due.EVICT and held.evicts_at_s == at_s:
            self._end(held, at_s, EndCause.EVICTED, "Server.SpotInstanceTermination")
        elif due is _Due.SPARE and held.announced_s == at_s != held.evicts_at_s:
            held.marks_at_s = held.announced_s = None
            if held.evicts_at_s is not None and self._notice is NoticeMode.LEAD:
                held.announced_s, held.marks_at_s = held.evicts_at_s, max(held.evicts_at_s - self._notice_s, at_s)
        elif due is _Due.DIE:
            self._end(held, at_s, EndCause.FAILED, held.end_reason)

    def _strike(self, fault: Fault, at_s: int) -> None:
        """Have what a fault says happen to its machines."""
        for held in self._held.values():
            named = held.instance_id == fault.instance_id or (
                fault.instance_id is None and held.request.market == fault.market
            )
            if not named or held.ended_at_s is not None or (fault.kind in OF_SPOT and not held.is_spot):
                continue
            match fault.kind:
                case FaultKind.KILL:
                    self._end(held, at_s, EndCause.EVICTED, "Server.SpotInstanceTermination")
                case FaultKind.FAIL:
                    self._end(held, at_s, EndCause.USER, fault.code or "Server.InternalError")
                case FaultKind.MARK:
                    self._mark(held, fault, at_s)
                case FaultKind.REBALANCE:
                    held.rebalance_at_s = at_s
                case FaultKind.REBOOT:
                    self._reboot(held, at_s)
                case FaultKind.STOP if not held.is_spot:
                    self._stop(held, at_s)
                case FaultKind.START:
                    self._start(held, at_s)

    def _reboot(self, held: HeldInstance, at_s: int) -> None:
        if held.state(at_s) is InstanceState.RUNNING:
            self._changes.append(MarketChange(at_s, ChangeKind.REBOOTED, held.instance_id))

    def _stop(self, held: HeldInstance, at_s: int) -> None:
        if held.state(at_s) in (InstanceState.PENDING, InstanceState.RUNNING):
            held.boot.stopped_s = at_s
            self._changes.append(MarketChange(at_s, ChangeKind.STOPPED, held.instance_id))

    def _start(self, held: HeldInstance, at_s: int) -> None:
        if held.state(at_s) is InstanceState.STOPPED:
            held.boots.append(Boot(at_s, at_s + self._boot_s))
            self._schedule(at_s + self._boot_s, _Due.RUN, held.instance_id)

    def _mark(self, held: HeldInstance, fault: Fault, at_s: int) -> None:
        """Give an instance its notice now; it is taken when that has run out, or earlier if that is due anyway."""
        takes_s = at_s + (self._notice_s if fault.notice_s is None else fault.notice_s)
        is_first = held.marked_at_s(at_s) is None
        if is_first:
            held.marks_at_s = at_s
            self._changes.append(MarketChange(at_s, ChangeKind.MARKED, held.instance_id))
        held.announced_s = takes_s
        if held.evicts_at_s is not None and held.evicts_at_s <= takes_s:
            held.announced_s = held.evicts_at_s
        elif fault.spares:
            self._schedule(takes_s, _Due.SPARE, held.instance_id)
        else:
            held.evicts_at_s = takes_s
            self._schedule(takes_s, _Due.EVICT, held.instance_id)

    def _end(self, held: HeldInstance, at_s: int, cause: EndCause, reason: str) -> None:
        held.ended_at_s, held.end_cause, held.end_reason = at_s, cause, reason
        kind = ChangeKind.EVICTED if cause is EndCause.EVICTED else ChangeKind.TERMINATED
        self._changes.append(MarketChange(at_s, kind, held.instance_id))
