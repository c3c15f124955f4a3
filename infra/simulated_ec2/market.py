"""A simulated spot market: the rules of EC2 over price traces, free of I/O; the caller supplies the time.

It follows the bid era: a price above the bid evicts the machine. With capacity traces it follows today's market, too:
a market sells as many spot machines as it has, and when it has fewer than it sold, it takes the rest at once, whatever
was bid.

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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from proteus_spot.bidding.market.model import EndCause, InstanceFact, InstanceType, LaunchRequest, Market, PricePoint
from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.simulated_ec2.faults import OF_MACHINES, OF_SPOT, Fault, FaultKind, FaultScript
from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT, HeldInstance, LaunchOptions
from proteus_spot.infra.simulated_ec2.rules.accepted_purchases import (
    available_count,
    check_bid,
    check_purchase,
    quota_room,
)
from proteus_spot.infra.simulated_ec2.rules.behaviour import IMMEDIATE, Ec2Behaviour
from proteus_spot.infra.simulated_ec2.rules.capacity import MarketCapacity, score
from proteus_spot.infra.simulated_ec2.rules.client_tokens import ClientTokens
from proteus_spot.infra.simulated_ec2.rules.lagging_reads import LaggingReads, Listing
from proteus_spot.infra.simulated_ec2.rules.machine_changes import MachineChanges, MarketChange, NoticeMode
from proteus_spot.infra.simulated_ec2.rules.refusals import cannot_start, cannot_stop, denied
from proteus_spot.infra.simulated_ec2.rules.trace_rules import eviction_s, newest_price_s, published_prices
from proteus_spot.infra.simulated_ec2.stored_market import MarketState, restore_instance, stored_instance

_NO_TRACES: Mapping[Market, Trace] = MappingProxyType({})
_DEFAULT_OPTIONS = LaunchOptions()


class SimSpotMarket:
    """A spot market over price traces.

    Parameters
    ----------
    traces : prices; they also say which zones there are.
    capacity : how many spot machines each market has; any number where no trace says it (`rules.capacity`).
    sold : returns the type of a market as its region sells it; None for a type that there is not.
    now_s : tells market time, as `Clock.now_s` does; it is asked at every call and floored to whole seconds.
    notice_s : an eviction is announced so long before it, or at launch if that is later.
    notice : whether it is announced at all.
    boot_s : an instance is pending so long.
    max_life_s : a spot instance is taken (announced) at this age; None: at no age.
    behaviour : what reads show and for how long (`log` keeps everything), and quotas.
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
        capacity: Mapping[Market, Trace] = _NO_TRACES,
    ) -> None:
        self.traces = traces
        self.capacity = MarketCapacity(capacity)
        self.sold = sold
        self.zones: tuple[str, ...] = tuple(sorted({market.zone for market in traces.markets}))
        self._clock = now_s
        self._max_life_s = max_life_s
        self.behaviour = behaviour
        self._seed = seed
        self.faults = FaultScript()
        self._machines = MachineChanges(notice, notice_s, boot_s, self.capacity)
        self._tokens = ClientTokens(behaviour.token_memory_s)
        self._reads = LaggingReads()

    # The SpotMarket Protocol, for the account `ACCOUNT` or another

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
        check_purchase(request, self.zones, self.sold(request.market), request.market in self.traces)

    def launch(self, request: LaunchRequest, options: LaunchOptions = _DEFAULT_OPTIONS) -> list[InstanceFact]:
        """Buy `request.count` instances, all or none (but see `options`); see `SpotMarket.launch`."""
        facts = self.purchase(request, replace(options, at_least=request.at_least))
        self._lose_answer("launch", request.market)
        return facts

    def describe(
        self,
        tags: Iterable[tuple[str, str]] = (),
        instance_ids: Collection[str] = (),
        tokens: Collection[str] = (),
        account: str = ACCOUNT,
    ) -> list[InstanceFact]:
        """Return the instances that carry all of `tags` or are named, in order of launch; see `SpotMarket.describe`."""
        self.enter("describe")
        wanted = tuple(tags)
        listing = self.listing(account)
        found = [
            fact
            for fact in listing.instances
            if fact.instance_id in instance_ids
            or fact.token in tokens
            or all(fact.tags.get(key) == value for key, value in wanted)
        ]
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
        points = published_prices(self.traces, markets, from_s, min(until_s, now_s))
        self._lose_answer("price_history")
        return points

    def newest_price_s(self, after_s: int, until_s: int) -> int | None:
        """Return the time of the newest price; see `SpotMarket.newest_price_s`."""
        return newest_price_s(self.traces, after_s, min(until_s, self.enter("price_history")))

    def placement_scores(self, types: Sequence[str], count: int) -> Mapping[str, int]:
        """Return the placement scores of the zones that sell one of the types; see `SpotMarket.placement_scores`."""
        self.enter("scores")
        scores: dict[str, int] = {}
        for zone in self.zones:
            markets = [market for market in (Market(name, zone) for name in types) if market in self.traces]
            there = [self._there(market, self.now_s) for market in markets]
            if markets:
                scores[zone] = score(None if None in there else sum(filter(None, there)), count)
        self._lose_answer("scores")
        return scores

    def quotas(self) -> Mapping[str, int]:
        """Return the account's quotas; see `SpotMarket.quotas`."""
        self.enter("account")
        return dict(self.behaviour.quotas)

    # The calls of the endpoint: their answers are lost by the endpoint itself

    def purchase(self, request: LaunchRequest, options: LaunchOptions = _DEFAULT_OPTIONS) -> list[InstanceFact]:
        """Buy instances: `request.count`, or where there are fewer than that, at least `options.at_least`.

        Raises
        ------
        LaunchRefused, TokenMismatch, BadRequest, MarketUnreachable
        """
        now_s = self.enter("launch", request.market)
        check_purchase(request, self.zones, self.sold(request.market), request.market in self.traces)
        repeated = self._tokens.find(request, options, now_s)
        if repeated:
            return [held.fact(now_s) for held in repeated]
        scarce = self.faults.strikes(FaultKind.CAPACITY, "launch", now_s, request.market)
        room = quota_room(request, options.account, self._machines, self.behaviour.quotas, self.sold)
        there = None if request.bid_micros is None else self._there(request.market, now_s)
        count = available_count(request, options, scarce, there, room)
        if request.bid_micros is not None:
            check_bid(request, self.traces[request.market].price_at(now_s))
        died = self.faults.strikes(FaultKind.DIE, "launch", now_s, request.market)
        held = [self._hold(request, options, now_s, died) for _ in range(count)]
        self._machines.advance(now_s)
        return [instance.fact(now_s) for instance in held]

    def listing(self, account: str = ACCOUNT) -> Listing:
        """Return what the next read of an account shows at the market's time: things as they were a while ago."""
        return self._reads.listing(self._machines, account, self.behaviour, self._seed)

    def end(self, instance_ids: Iterable[str]) -> None:
        """Terminate instances at the market's time; those that have ended, or are unknown, are no error."""
        for instance_id in instance_ids:
            held = self._machines.by_id.get(instance_id)
            if held is not None and held.ended_at_s is None:
                self._machines.end(held, self.now_s, EndCause.USER, "Client.UserInitiatedShutdown")

    def reboot(self, instance_id: str) -> None:
        """Reboot a running instance: everything on it is killed, and it boots without running its user-data again."""
        self._machines.reboot(self._machines.by_id[instance_id], self.now_s)

    def stop(self, instance_id: str) -> None:
        """Stop an on-demand instance. It is not charged until it is started again, and it is not terminated.

        Raises
        ------
        BadRequest
            ``UnsupportedOperation`` for a spot instance: a one-time request's instance cannot be stopped.
        """
        held = self._machines.by_id[instance_id]
        if held.is_spot:
            raise cannot_stop(instance_id)
        self._machines.stop(held, self.now_s)

    def start(self, instance_id: str) -> None:
        """Start a stopped instance; it boots without running its user-data again.

        Raises
        ------
        BadRequest
            ``IncorrectInstanceState`` for one that has ended.
        """
        held = self._machines.by_id[instance_id]
        if held.ended_at_s is not None:
            raise cannot_start(instance_id)
        self._machines.start(held, self.now_s)
        self._machines.advance(self.now_s)

    # Used by the endpoint and the tests

    def advance(self, now_s: float | None = None) -> list[MarketChange]:
        """Carry out what is due by `now_s` (None: by the clock); return all changes since the last call, in order."""
        self._machines.advance(int(self._clock() if now_s is None else now_s))
        return self._machines.take()

    @property
    def now_s(self) -> int:
        """Market time of the last call, in seconds."""
        return self._machines.now_s

    @property
    def next_due_s(self) -> int | None:
        """Time of the next change that needs no call; None if there is none."""
        return self._machines.next_due_s

    def has_ended(self, instance_id: str) -> bool:
        """Return whether the instance has ended by the market's time."""
        return self._machines.by_id[instance_id].ended_at_s is not None

    def request_of(self, instance_id: str) -> LaunchRequest:
        """Return the purchase of the instance; `KeyError` if there is no such instance."""
        return self._machines.by_id[instance_id].request

    def fact(self, instance_id: str) -> InstanceFact:
        """Return one instance as it is by the market's time; `KeyError` if there is no such instance."""
        return self._machines.by_id[instance_id].fact(self.now_s)

    def _there(self, market: Market, now_s: int) -> int | None:
        """Return how many more spot machines a market has; None: any number."""
        there = self.capacity.at(market, now_s)
        return None if there is None else max(there - len(self._machines.sold(market)), 0)

    def is_out_bid(self, fact: InstanceFact, at_s: int) -> bool:
        """Return whether the price of a spot machine's market was above its bid at a time."""
        price_micros = self.traces[fact.market].price_at(at_s)
        return price_micros is not None and fact.bid_micros is not None and price_micros > fact.bid_micros

    def marked_at_s(self, instance_id: str) -> int | None:
        """Return when the instance was marked for eviction; None if it is not."""
        return self._machines.by_id[instance_id].marked_at_s(self.now_s)

    def rebalance_at_s(self, instance_id: str) -> int | None:
        """Return when a rebalance was recommended to the instance; None if it was not."""
        return self._machines.by_id[instance_id].rebalance_at_s

    def log(self) -> list[InstanceFact]:
        """Return every instance ever sold, to whatever account, in order of launch: the market's own record."""
        self._machines.advance(int(self._clock()))
        return [held.fact(self.now_s) for held in self._machines]

    def state(self, prices: str) -> MarketState:
        """Return what has been sold, for `restore`; `prices` is a digest that identifies the traces."""
        instances = tuple(map(stored_instance, self._machines))
        return MarketState(self.now_s, self._seed, prices, instances)

    def restore(self, state: MarketState) -> None:
        """Continue from `state`, on the same traces; nothing may have been sold yet.

        Instances that were alive boot again with the next `advance`; changes due since then happen at their own second.
        """
        self._seed, self._machines.now_s = state.seed, state.now_s
        for instance in state.instances:
            held = self._remember(instance.instance_id, instance.request, instance.options, instance.launched_at_s)
            restore_instance(held, instance)
            if held.ended_at_s is None:
                self._machines.look_ahead(held)
            self._tokens.remember(held)

    def shut_down(self, instance_id: str) -> None:
        """End an instance that shut itself down. This is not a call of the API, so no fault applies."""
        self._machines.advance(int(self._clock()))
        held = self._machines.by_id[instance_id]
        if held.ended_at_s is None:
            self._machines.end(held, self.now_s, EndCause.USER, "Client.InstanceInitiatedShutdown")

    def add_fault(self, fault: Fault) -> None:
        """Add a fault; what happens to machines, and whose time is past or absent, happens now."""
        self._machines.advance(int(self._clock()))
        if fault.kind not in OF_MACHINES:
            self.faults.add(fault)
            return
        if fault.instance_id is not None:
            held = self._machines.by_id.get(fault.instance_id)
            if held is None or (fault.kind in OF_SPOT and not held.is_spot):
                raise ValueError(f"{fault.kind}: {fault.instance_id} is not a spot instance of this market")
        self._machines.schedule_fault(fault)
        self._machines.advance(self.now_s)

    def enter(self, operation: str, market: Market | None = None) -> int:
        """Advance the market to now and apply scripted faults to the call; return the market's time."""
        self._machines.advance(int(self._clock()))
        if self.faults.strikes(FaultKind.THROTTLE, operation, self.now_s, market) is not None:
            raise MarketUnreachable("RequestLimitExceeded", "Request limit exceeded.")
        if self.faults.strikes(FaultKind.UNAVAILABLE, operation, self.now_s, market) is not None:
            raise MarketUnreachable("Unavailable", "The service is unavailable. Please try again shortly.")
        refusal = self.faults.strikes(FaultKind.DENIED, operation, self.now_s, market)
        if refusal is not None:
            raise denied(refusal.code)
        return self.now_s

    def _lose_answer(self, operation: str, market: Market | None = None) -> None:
        if self.faults.strikes(FaultKind.LOSE_ANSWER, operation, self.now_s, market) is not None:
            raise MarketUnreachable("ConnectionClosedError", "the connection was closed before the answer came")

    def _hold(self, request: LaunchRequest, options: LaunchOptions, now_s: int, died: Fault | None) -> HeldInstance:
        digest = hashlib.blake2s(f"{self._seed}/{len(self._machines.by_id)}".encode()).hexdigest()
        held = self._remember(f"i-{digest[:17]}", request, options, now_s)
        self._tokens.remember(held)
        self._machines.launch(held, died)
        return held

    def _remember(
        self, instance_id: str, request: LaunchRequest, options: LaunchOptions, launched_at_s: int
    ) -> HeldInstance:
        evicts_at_s = eviction_s(request, self.traces.get(request.market), self._max_life_s, launched_at_s)
        marks_at_s = self._machines.plan_notice(evicts_at_s, launched_at_s)
        boots = [self._machines.first_boot(launched_at_s)]
        held = HeldInstance(instance_id, request, options, launched_at_s, evicts_at_s, marks_at_s, evicts_at_s, boots)
        self._machines.by_id[instance_id] = held
        return held
