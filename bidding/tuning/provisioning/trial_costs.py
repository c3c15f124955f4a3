"""The choice of a market for a trial, and whether a move to another machine is worth its cost.

Source: SpotTune, section III-A, `getBestInst` of Algorithm 1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proteus_spot.bidding.market.model import HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros, usd
from proteus_spot.bidding.tuning.provisioning.step_cost import StepTimes, expected_hour_micros, step_micros
from proteus_spot.bidding.tuning.sweep_events import Offer
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan


@dataclass(frozen=True, slots=True)
class MachineChoice:
    """A machine that a trial could be deployed on.

    `bid_micros` None: on demand. `most_hour_micros` is the highest price of its hour, `reason` the figures that it was
    chosen by.
    """

    market: Market
    bid_micros: Micros | None
    most_hour_micros: Micros
    reason: str


class OffersOfTick:
    """The markets that a tick may buy in, with the expected cost of an hour in each.

    The price that is charged decides whether a market may be bought in: by the second that of the launch, by the hour
    that of the hour. Above the price on demand it may not. Formula 1 ranks those that may.

    Parameters
    ----------
    offers : what the markets sell.
    cooling : markets that are left alone now.
    most_vcpus : only smaller machines are bought; None: any.
    """

    def __init__(
        self,
        plan: SweepPlan,
        types: Mapping[str, InstanceType],
        times: StepTimes,
        offers: Mapping[Market, Offer],
        cooling: Mapping[Market, int],
        most_vcpus: int | None,
    ) -> None:
        self._plan, self._types, self._times, self._offers = plan, types, times, offers
        self._on_sale = [
            market
            for market in offers
            if market not in cooling
            and market.instance_type in types
            and (most_vcpus is None or types[market.instance_type].vcpu < most_vcpus)
        ]
        refunded = plan.refunds_first_hour
        #: Type -> (expected cost of an hour, market) of its cheapest market.
        self._cheapest: dict[str, tuple[float, Market]] = {}
        #: Market -> expected cost of an hour, of those that may be bought in as spot.
        self._hour_micros: dict[Market, float] = {}
        #: Number of markets on sale whose charge would be above the price on demand.
        self.above_on_demand = 0
        for market in self._on_sale:
            offer = offers[market]
            if plan.hour_micros(offer.price_micros) > offer.on_demand_micros:
                self.above_on_demand += 1
                continue
            cost = expected_hour_micros(offer.p_evicted, plan.hour_micros(offer.average_micros), refunded)
            self._hour_micros[market] = cost
            found = self._cheapest.get(market.instance_type)
            if found is None or (cost, market) < found:
                self._cheapest[market.instance_type] = (cost, market)

    def best(self, trial: int) -> MachineChoice | None:
        """Return the machine with the lowest expected cost of a step; None where no spot market may be bought in."""
        seconds = self._times.seconds
        found: tuple[float, float, Market] | None = None
        for name, (cost, market) in self._cheapest.items():
            step_s = seconds(trial, name)
            key = (cost * step_s, step_s, market)  # of equal costs the shorter step
            if found is None or key < found:
                found = key
        return None if found is None else self._choice(trial, found[2])

    def in_order(self, trial: int) -> Iterator[MachineChoice]:
        """Yield every spot machine, that of the lowest expected cost of a step first."""
        seconds = self._times.seconds
        times = {name: seconds(trial, name) for name in self._cheapest}
        hours = self._hour_micros.items()
        costs = sorted((hour * (step_s := times[market.instance_type]), step_s, market) for market, hour in hours)
        return (self._choice(trial, market) for _, _, market in costs)

    def _choice(self, trial: int, market: Market) -> MachineChoice:
        offer, step_s = self._offers[market], self._times.seconds(trial, market.instance_type)
        cost = step_micros(self._hour_micros[market], step_s)
        reason = (
            f"least expected cost of a step: {_step_text(cost)} ({step_s:.3g} s a step, {usd(offer.average_micros)} an "
            f"hour on average, {offer.p_evicted:.0%} evicted within the hour)"
        )
        return MachineChoice(market, offer.bid_micros, self._plan.hour_micros(offer.bid_micros), reason)

    # -- on demand --------------------------------------------------------------------------------------------

    def on_demand_markets(self) -> dict[str, Market]:
        """Return the first market of each type on sale; the price on demand is the type's."""
        markets: dict[str, Market] = {}
        for market in sorted(self._on_sale):
            markets.setdefault(market.instance_type, market)
        return markets

    def cheapest_on_demand(self, trial: int, why: str) -> MachineChoice | None:
        """Return the machine on demand with the lowest cost of a step, because of `why`; None: none is on sale."""
        seconds, offers = self._times.seconds, self._offers
        markets = self.on_demand_markets().items()
        costs = [(offers[market].on_demand_micros * seconds(trial, name), market) for name, market in markets]
        return self.on_demand(min(costs)[1], trial, why) if costs else None

    def on_demand(self, market: Market, trial: int, why: str) -> MachineChoice:
        """Return a machine on demand in a market, because of `why`."""
        price = self._offers[market].on_demand_micros
        step_s = self._times.seconds(trial, market.instance_type)
        reason = f"on demand, since {why}: {_step_text(step_micros(price, step_s))} a step ({step_s:.3g} s)"
        return MachineChoice(market, None, price, reason)

    # -- moves ------------------------------------------------------------------------------------------------

    def gain_of_move(self, trial: int, present: Market, steps_left: int) -> str:
        """Return why a trial should move from a machine whose first hour is over; empty where it should not.

        The present machine brings no refund any more; a new one may. The move is worth it where the steps that are
        left, at most those of an hour, are expected to cost less on the best machine, with the seconds that the move
        takes.

        Notes
        -----
        Source: SpotTune, Algorithm 1, third event.
        Differs: the paper moves every trial after an hour; here a move that costs more than it can bring is not made.
        """
        stays, choice = self._offers.get(present), self.best(trial)
        if stays is None or choice is None:
            return ""
        offer = self._offers[choice.market]
        step_s = self._times.seconds(trial, choice.market.instance_type)
        present_step_s = self._times.seconds(trial, present.instance_type)
        steps = min(float(steps_left), HOUR_S / step_s)
        seconds = steps * step_s + self._plan.restart_s
        p_evicted = offer.p_evicted * min(seconds / HOUR_S, 1.0)
        moved = expected_hour_micros(p_evicted, self._plan.hour_micros(offer.average_micros), True) * seconds / HOUR_S
        stayed = self._plan.hour_micros(stays.average_micros) * steps * present_step_s / HOUR_S
        if moved >= stayed:
            return ""
        return (
            f"its first hour is over, and a refund is possible on a new machine only: {steps:.0f} steps are expected "
            f"to cost {usd(round(moved), 6)} on {choice.market}, and {usd(round(stayed), 6)} here"
        )


def _step_text(micros: float) -> str:
    return f"${micros / MICROS_PER_DOLLAR:.2e}"
