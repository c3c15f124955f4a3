"""What the machines of a simulated sweep cost, and which of their steps were free."""

from dataclasses import dataclass

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.simulated_machine import SimulatedMachine
from proteus_spot.bidding.billing import BillingModel, OnDemandHourly, OnDemandPerSecond, refunded_micros, total_micros
from proteus_spot.bidding.billing.base import Charge
from proteus_spot.bidding.market.model import HOUR_S, EndCause
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace


@dataclass(frozen=True, slots=True)
class MachineBill:
    """A machine that has ended, and its bill.

    Attributes
    ----------
    order_id, trial : of its deployment.
    launched_at_s, ended_at_s, cause : its life.
    charges : by `bidding.billing`, refunded ones included and marked.
    from_step, kept_step : the steps that it added to the trial are from_step + 1 to kept_step; later ones were lost.
    done_step : the last step that it trained.
    free_steps : how many of the kept ones ended in an hour that was refunded.
    """

    order_id: str
    trial: int
    launched_at_s: int
    ended_at_s: int
    cause: EndCause
    charges: tuple[Charge, ...]
    from_step: int
    kept_step: int
    done_step: int
    free_steps: int

    @property
    def micros(self) -> Micros:
        """What is paid: the charges less refunds."""
        return total_micros(self.charges)

    @property
    def refunded_micros(self) -> Micros:
        """The refunds."""
        return refunded_micros(self.charges)

    @property
    def machine_s(self) -> int:
        """Seconds from its launch to its end."""
        return self.ended_at_s - self.launched_at_s


def on_demand_billing(spot: BillingModel, price_micros: Micros) -> BillingModel:
    """Return how machines on demand are charged beside spot machines: both by the second, or both by the hour."""
    return OnDemandPerSecond(price_micros) if spot.by_second else OnDemandHourly(price_micros)


def bill_of(machine: SimulatedMachine, trace: Trace, billing: BillingModel) -> MachineBill:
    """Return the bill of a machine that has ended.

    Raises
    ------
    ValueError
        If it has not.
    """
    end = machine.end
    if end is None:
        raise ValueError(f"{machine.allocation.allocation_id} still lives: it has no bill yet")
    ended_at_s, cause = end
    launched_at_s = machine.allocation.launched_at_s
    # One second more, so that an eviction at the end counts.
    charges = billing.charges(trace, 1, launched_at_s, ended_at_s, cause, ended_at_s + 1)
    if cause is EndCause.USER and charges and charges[-1].hour_start_s == ended_at_s:
        charges = charges[:-1]  # the hour that begins with that second was not used
    kept = machine.saved_at(ended_at_s)
    kept_step = machine.from_step if kept is None else kept
    return MachineBill(
        order_id=machine.allocation.allocation_id,
        trial=machine.trial,
        launched_at_s=launched_at_s,
        ended_at_s=ended_at_s,
        cause=cause,
        charges=charges,
        from_step=machine.from_step,
        kept_step=kept_step,
        done_step=machine.step_at(ended_at_s),
        free_steps=_free_steps(machine, kept_step, charges),
    )


def _free_steps(machine: SimulatedMachine, kept_step: int, charges: tuple[Charge, ...]) -> int:
    refunded = [charge.hour_start_s for charge in charges if charge.refunded]
    if not refunded or kept_step <= machine.from_step:
        return 0
    ends_s = machine.starts_s + np.arange(1, kept_step - machine.from_step + 1) * machine.step_s
    return sum(int(((ends_s > start_s) & (ends_s <= start_s + HOUR_S)).sum()) for start_s in refunded)
