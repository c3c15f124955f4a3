"""Orders of a sweep's engine, and a sweep of one trial."""

from proteus_spot.bidding.tuning.sweep_orders import Deploy
from proteus_spot.bidding.tuning.trials import TrialRecord
from tests.support.sweeps import SweepWorld, plan_of


def deploys(orders: object) -> list[Deploy]:
    return [order for order in orders if isinstance(order, Deploy)]  # type: ignore[attr-defined]


def kinds(orders: object) -> list[str]:
    return [type(order).__name__ for order in orders]  # type: ignore[attr-defined]


def one_trial(**changes: object) -> tuple[SweepWorld, TrialRecord]:
    """Return a sweep of one trial that has trained one step on its first machine."""
    world = SweepWorld(plan_of(**{"trials": 1, **changes}))
    world.tick()
    world.train()
    return world, world.engine.sweep.trials[0]
