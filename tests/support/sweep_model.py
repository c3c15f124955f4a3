"""The trials and machines of a sweep by orders and reports alone: the model beside an engine, it checks the orders."""

from dataclasses import dataclass, field

from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish, PauseTrial, Release, SweepOrder
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from tests.support.markets import START_S


@dataclass
class Node:
    """A machine that trains a trial, as it is; the engine knows what was reported."""

    order: Deploy
    from_step: int
    step: int
    saved: int = 0
    reported: int = 0
    ended: str | None = None
    is_alive: bool = True
    is_noticed: bool = False
    #: Whether the last report that it wrote was read; of a machine that was lost it may be read late.
    is_read: bool = True
    is_late: bool = False


@dataclass
class Seen:
    """A trial by what was reported, in the order in which it was."""

    steps: set[int] = field(default_factory=set)
    saved: int = 0
    ordered: list[str] = field(default_factory=list)


class SweepModel:
    """The state of the model, and the checks of each order against it."""

    def begin(self, plan: SweepPlan) -> None:
        """Begin with a sweep that has neither trials nor machines."""
        self.plan, self.now_s = plan, START_S
        self.trials: dict[int, Seen] = {}
        self.open_orders: dict[str, Deploy] = {}
        self.nodes: dict[str, Node] = {}
        self.released: set[str] = set()
        self.stopping = self.closed = False
        self.finish: Finish | None = None

    def check(self, order: SweepOrder) -> None:
        match order:
            case Deploy() if order.order_id in self.open_orders:
                assert order == self.open_orders[order.order_id]
            case Deploy():
                assert not self.stopping
                assert not self.closed
                assert self.finish is None
                seen = self.trials[order.trial]
                assert order.order_id == f"s-t{order.trial}-{len(seen.ordered)}", "each order has an id of its own"
                assert order.from_step == seen.saved, "no step up to its newest state is run again"
                assert order.from_step < order.until_step <= self.plan.max_trial_steps
                assert not self.busy(order.trial), "a trial is on one machine"
                seen.ordered.append(order.order_id)
                self.open_orders[order.order_id] = order
                assert len(self.open_orders) + len(self.working()) <= self.plan.parallel
            case PauseTrial():
                node = self.nodes[order.deployment]
                assert node.is_alive
                assert node.order.trial == order.trial
            case Release():
                assert not self.nodes[order.allocation_id].is_noticed, "it is free if the market takes it first"
                self.released.add(order.allocation_id)
            case Finish():
                assert not self.open_orders
                assert not any(node.is_alive for node in self.nodes.values())
                assert self.finish in (None, order)
                self.finish = order

    def check_ends_are_ordered(self, orders: tuple[SweepOrder, ...]) -> None:
        """Assert that a machine that lives trains its trial, or its end is ordered at each tick."""
        ends = {order.allocation_id for order in orders if isinstance(order, Release)}
        for name, node in self.nodes.items():
            if node.is_alive and not node.is_noticed and (node.ended or name in self.released):
                assert name in ends

    def working(self) -> list[str]:
        """Return the machines that count in `parallel`."""
        return [n for n, node in self.nodes.items() if node.is_alive and not node.ended and n not in self.released]

    def busy(self, trial: int) -> bool:
        ordered = any(order.trial == trial for order in self.open_orders.values())
        return ordered or any(self.nodes[name].order.trial == trial for name in self.working())

    def train_on(self, name: str, steps: int, saves: bool, then: str = "goes on") -> None:
        node = self.nodes[name]
        node.is_read = False
        node.step = min(node.step + steps, max(node.order.until_step, node.from_step))
        if node.step >= node.order.until_step:
            node.ended = "finished" if node.step == self.plan.max_trial_steps else "paused"
        elif then != "goes on":
            node.ended = "paused" if then == "pauses" else "failed"
        if saves or node.ended in ("paused", "finished"):
            node.saved = node.step
