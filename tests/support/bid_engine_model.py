"""What a job holds, and which orders are right, by the orders and answers alone: the model beside a bidding engine."""

from hypothesis import event

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.allocations import AllocationState, MachineState
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew
from proteus_spot.bidding.market.model import HOUR_S, Allocation, Market, Tier
from tests.support.markets import START_S, TYPES


def names_of(allocation: Allocation) -> tuple[str, ...]:
    return tuple(f"i-{allocation.allocation_id}-{number}" for number in range(allocation.count))


def vcpus_of(order: Acquire) -> int:
    return order.count * TYPES[order.market.instance_type].vcpu


class BidEngineModel:
    """The state of the model, and the checks of each order against it."""

    def begin(self, job: JobModel, *, foresees: bool) -> None:
        """Begin with a job that holds nothing; `foresees`: its policy may bid the very price."""
        self.now_s = START_S
        self.job = job
        self.closed = False
        self.open_order: Acquire | None = None
        self.answered: set[str] = set()
        self.bought: list[str] = []
        self.purchases: list[Acquire] = []
        self.hours: dict[str, set[int]] = {}
        self.lapses: dict[str, Lapse] = {}
        self.standing: dict[str, AllocationState] = {}
        self.allocations: dict[str, Allocation] = {}
        #: the state of each machine, by its allocation; of some the grant did not say which they are
        self.machines: dict[str, dict[str, MachineState]] = {}
        self.unnamed: dict[str, set[str]] = {}
        self.unlisted_since_s: int | None = None
        self.cooling: dict[Market, int] = {}
        #: the machines that the job offers for release, and the number that it has a use for
        self.offered: frozenset[str] = frozenset()
        self.used: int | None = None
        self.foresees = foresees

    def take_in(self, allocation: Allocation, *, named: bool = False) -> None:
        name = allocation.allocation_id
        if name not in self.standing:
            self.standing[name], self.allocations[name] = AllocationState.HELD, allocation
            self.hours[name] = {0}
            self.machines[name] = dict.fromkeys(names_of(allocation), MachineState.HELD)
            self.unnamed[name] = set() if named else set(self.machines[name])

    def update(self, name: str, *machines: str, to: MachineState) -> None:
        """Note the new state of machines, and what follows for their allocation."""
        self.machines[name].update(dict.fromkeys(machines, to))
        states = set(self.machines[name].values())
        if self.working(name):
            self.standing[name] = AllocationState.HELD
        elif MachineState.HELD in states:
            self.standing[name] = AllocationState.LAPSING
        else:
            noticed = MachineState.NOTICED in states
            self.standing[name] = AllocationState.NOTICED if noticed else AllocationState.GONE

    def those(self, name: str, *states: MachineState) -> list[str]:
        return [machine for machine, state in self.machines[name].items() if state in states]

    def ending(self, name: str) -> list[str]:
        """Return the machines of an allocation that are held until their paid hour ends."""
        held, lapse = self.those(name, MachineState.HELD), self.lapses.get(name)
        if lapse is None or not lapse.instance_ids:
            return [] if lapse is None else held
        return [machine for machine in held if machine in lapse.instance_ids]

    def working(self, name: str) -> list[str]:
        """Return the machines of an allocation that are held, and whose end is not ordered."""
        ending = self.ending(name)
        return [machine for machine in self.those(name, MachineState.HELD) if machine not in ending]

    def granted_at(self, lapse: Lapse) -> int:
        return list(self.standing).index(lapse.allocation_id)

    def check(self, order: Order, prices: dict[Market, int]) -> None:
        match order:
            case Acquire() if self.open_order is not None:
                assert order == self.open_order
                assert self.capped_vcpus() + vcpus_of(order) <= self.job.max_spot_vcpus
            case Acquire():
                assert not self.closed
                assert order.order_id not in self.bought
                self.bought.append(order.order_id)
                self.purchases.append(order)
                kind = TYPES[order.market.instance_type]
                assert order.bid_micros > prices[order.market] - self.foresees  # `best` may bid the very price
                assert not self.job.ceiling_on_demand or prices[order.market] <= kind.on_demand_micros
                assert self.cooling.get(order.market, 0) <= self.now_s
                assert 0 < order.count * kind.vcpu <= self.job.allocation_vcpus
                assert self.capped_vcpus() + vcpus_of(order) <= self.job.max_spot_vcpus
                assert self.used is None or self.working_machines() + order.count <= self.used
                self.open_order = order
            case Renew():
                self.decided(order)
                assert not self.closed
                is_late = "paid for" in order.decision.reason  # it has begun
                assert is_late or self.capped_vcpus() <= self.job.max_spot_vcpus, "what was found is let go first"
                named = set(self.working(order.allocation_id)) - self.unnamed[order.allocation_id]
                assert is_late or "on demand" in order.decision.reason or named.isdisjoint(self.offered)
            case Lapse() if order == self.lapses.get(order.allocation_id):
                assert self.ending(order.allocation_id)
            case Lapse():
                name, released = order.allocation_id, set(order.instance_ids)
                if released:
                    assert not self.closed
                    event("some machines of an allocation are released")
                    before = set(self.ending(name))
                    assert before < released <= {*before, *self.working(name)}
                    assert released - before <= self.offered - self.unnamed[name]
                    self.due(order)
                    self.lapses[name] = order
                    self.update(name, to=MachineState.HELD)
                    assert self.working(name), "the allocation goes on"
                    return
                if self.closed:  # hours that began undecided are paid for; one that was renewed is taken back
                    self.hours[order.allocation_id].update(range(1, order.hour))
                    self.hours[order.allocation_id].discard(order.hour)
                self.decided(order)
                self.due(order)
                self.lapses[order.allocation_id] = order
                self.update(order.allocation_id, to=MachineState.HELD)  # of no machine: the whole lapses

    def due(self, order: Lapse) -> None:
        assert 0 < order.before_s - self.now_s <= self.job.renewal_lead_s
        assert order.before_s == self.allocations[order.allocation_id].launched_at_s + order.hour * HOUR_S

    def decided(self, order: Renew | Lapse) -> None:
        name = order.allocation_id
        assert self.standing[name] is AllocationState.HELD
        assert self.allocations[name].tier is Tier.TRANSIENT
        assert order.hour not in self.hours[name]
        self.hours[name].add(order.hour)

    def check_hours(self) -> None:
        """Assert that after a tick no hour of a held allocation is undecided, up to the one that is due."""
        for name, allocation in self.allocations.items():
            if self.standing[name] is AllocationState.HELD and allocation.tier is Tier.TRANSIENT:
                if self.closed:  # what ends soon is let go; hours that began after the end are nobody's decision
                    now_s = max(self.now_s, allocation.launched_at_s)
                    assert allocation.hour_ends_at_s(now_s) - now_s > self.job.renewal_lead_s
                    self.hours[name].update(range(1, allocation.hour_index(self.now_s) + 1))
                due = max(self.now_s + self.job.renewal_lead_s - allocation.launched_at_s, 0) // HOUR_S
                assert self.hours[name] == set(range(due + 1))

    def capped_vcpus(self) -> int:
        """Return the spot vCPUs that the limit is for: those held, and those noticed until they are gone."""
        return sum(
            TYPES[a.market.instance_type].vcpu
            for name, a in self.allocations.items()
            for _ in [*self.working(name), *self.those(name, MachineState.NOTICED)]
            if a.tier is Tier.TRANSIENT
        )

    def working_machines(self) -> int:
        """Return the number of spot machines that are held and do not lapse."""
        return sum(len(self.working(name)) for name, a in self.allocations.items() if a.tier is Tier.TRANSIENT)

    def answer(self, order_id: str) -> None:
        self.answered.add(order_id)
        if self.open_order is not None and self.open_order.order_id == order_id:
            self.open_order = None
