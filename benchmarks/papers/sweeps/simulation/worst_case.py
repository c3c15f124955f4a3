"""The worst case of what a simulated sweep spends, for its decisions under a budget."""

from collections.abc import Iterable

from proteus_spot.benchmarks.papers.sweeps.simulation.simulated_machine import SimulatedMachine
from proteus_spot.bidding.billing import BillingModel, total_micros
from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace

#: Living machines, each with the prices of its market, how it is charged, and the highest price of its hour.
Living = Iterable[tuple[SimulatedMachine, Trace, BillingModel, Micros]]


def spending_at(budget_micros: Micros, spent_micros: Micros, living: Living, now_s: int, ends_s: int) -> Spending:
    """Return the spending at a tick.

    Parameters
    ----------
    spent_micros : the bills of the machines that have ended.
    ends_s : seconds in which every machine can be ended: from this tick to the next one, and what a pause waits for.
    """
    committed = spent_micros + sum(_most_micros(*each, now_s, now_s + ends_s) for each in living)
    return Spending(budget_micros, committed, now_s + ends_s)


def _most_micros(
    machine: SimulatedMachine, trace: Trace, billing: BillingModel, highest_micros: Micros, now_s: int, ends_by_s: int
) -> Micros:
    """Return the most that a machine costs if it ends by `ends_by_s`: what is charged by now, the rest at its bid."""
    launched_at_s = machine.allocation.launched_at_s
    charged = total_micros(billing.charges(trace, 1, launched_at_s, None, None, now_s + 1))
    if not billing.by_second:
        coming = (ends_by_s - launched_at_s) // HOUR_S - (now_s - launched_at_s) // HOUR_S
        return charged + coming * highest_micros
    # Each hour is rounded by itself: by less than one, and of three hours at most.
    return charged + highest_micros * (ends_by_s - now_s) // HOUR_S + 3
