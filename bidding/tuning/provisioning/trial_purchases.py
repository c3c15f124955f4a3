"""The purchases of one tick: machines by step cost, within the budget, and on demand once a deadline has no slack."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from proteus_spot.bidding.economics.budget import Purse, purchase_micros
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.money import usd
from proteus_spot.bidding.tuning.provisioning.step_cost import StepTimes
from proteus_spot.bidding.tuning.provisioning.trial_costs import MachineChoice, OffersOfTick
from proteus_spot.bidding.tuning.sweep_events import SweepTick
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan

#: Returns the steps that are left, by trial.
StepsLeft = Callable[[], Mapping[int, int]]


class TickPurchases:
    """What one tick buys; nothing is computed before the first question.

    Parameters
    ----------
    times : the matrix M.
    event : the tick, with its offers, budget and deadline.
    cooling : markets that are left alone now.
    most_vcpus : only machines with fewer vCPUs are bought; None: any.
    is_on_demand : whether an earlier tick found the deadline without slack: then trials stay on demand to the end.
    steps_left : see `StepsLeft`.
    """

    def __init__(
        self,
        plan: SweepPlan,
        types: Mapping[str, InstanceType],
        times: StepTimes,
        event: SweepTick,
        cooling: Mapping[Market, int],
        most_vcpus: int | None,
        is_on_demand: bool,
        steps_left: StepsLeft,
    ) -> None:
        self.event, self.at_s = event, event.at_s
        #: Whether machines are bought on demand now, because of the deadline.
        self.is_on_demand = is_on_demand
        #: Whether a machine was not bought because it does not fit in the budget.
        self.budget_refuses = False
        self._plan, self._types, self._times = plan, types, times
        self._cooling, self._most_vcpus, self._steps_left = cooling, most_vcpus, steps_left
        self._purse = Purse(event.spending)
        self._offers: OffersOfTick | None = None
        self._deadline: tuple[Market, str] | None = None
        self._deadline_is_checked = False

    @property
    def offers(self) -> OffersOfTick:
        """The markets that may be bought in."""
        if self._offers is None:
            self._offers = OffersOfTick(
                self._plan, self._types, self._times, self.event.offers, self._cooling, self._most_vcpus
            )
        return self._offers

    def choose(self, trial: int) -> MachineChoice | None:
        """Return the machine for a trial, and take its cost from the budget; None where nothing can be bought."""
        if self.budget_refuses:
            return None  # the cheapest one did not fit, and the purse has not grown
        note = ""
        deadline = self._checked_deadline()
        if deadline is not None:
            choice = self.offers.on_demand(deadline[0], trial, deadline[1])
            if self._take(choice):
                return choice
            note = f"{deadline[1]}, but the budget leaves no machine on demand; "
        first = self.offers.best(trial) or self._instead_of_spot(trial)
        if first is None:
            return None
        found = first if self._take(first) else next(filter(self._take, self.offers.in_order(trial)), None)
        if found is None:
            self.budget_refuses = True
            return None
        return replace(found, reason=f"{note}{self._rank_text(found, first)}{found.reason}")

    def _instead_of_spot(self, trial: int) -> MachineChoice | None:
        """Return a machine on demand where no spot market may be bought in, and the sweep does not wait for one.

        With a deadline the first step is not waited for: without its time nothing says how long waiting is possible.
        """
        if not self._plan.on_demand and (self.event.time_left is None or self._times.is_measured):
            return None
        return self.offers.cheapest_on_demand(trial, f"no spot market may be bought in ({self.refused_note})")

    def _rank_text(self, found: MachineChoice, first: MachineChoice) -> str:
        if found is first:
            return ""
        return f"the budget leaves no machine of {first.market}, which may cost {usd(first.most_hour_micros)} an hour; "

    def _take(self, choice: MachineChoice) -> bool:
        """Take the most that a machine costs until it can be ended from the purse; return whether it was left."""
        spending = self._purse.spending
        if spending is None:
            return True
        seconds = spending.ends_by_s - self.at_s
        return self._purse.take(purchase_micros(self._plan.pays_whole_hours, choice.most_hour_micros, seconds))

    # -- the deadline -----------------------------------------------------------------------------------------

    def _checked_deadline(self) -> tuple[Market, str] | None:
        if not self._deadline_is_checked:
            self._deadline_is_checked = True
            self._deadline = self._on_demand_market()
            self.is_on_demand = self.is_on_demand or self._deadline is not None
        return self._deadline

    def _on_demand_market(self) -> tuple[Market, str] | None:
        """Return where machines are bought on demand, and why; None while the deadline has slack.

        The slack is computed for the fastest type. Once it is gone, the cheapest type is bought that ends in time, or
        else the fastest.

        Notes
        -----
        Source: the safety net of `bidding.economics.deadline.SafetyNet`.
        Differs: there are as many machines as trials at a time, and each trial has step times of its own.
        """
        left = self.event.time_left
        if left is None or not (self._times.is_measured or self.is_on_demand):
            return None
        steps_left, markets = self._steps_left(), self.offers.on_demand_markets()
        if not markets:
            return None
        needed_s = self._needed_s(markets, steps_left)
        remaining_s = left.deadline_s - self.at_s - left.overhead_s
        fastest = min(markets, key=lambda name: (needed_s[name], name))
        if needed_s[fastest] < remaining_s and not self.is_on_demand:
            return None
        in_time = [name for name in markets if needed_s[name] <= remaining_s]
        name = min(in_time, key=lambda name: (self._cost(name, steps_left), name), default=fastest)
        why = f"the deadline is in {left.deadline_s - self.at_s} s, and the rest takes {needed_s[name]:.0f} s"
        return markets[name], why

    def late_on(self, trial: int, instance_type: str) -> str:
        """Return why a trial should leave a spot machine of a type for one on demand; empty where it should stay.

        It should once the deadline has no slack, the machine would end after it, and the fastest type ends earlier,
        with the time of the move. Where the budget leaves no such machine, the trial stays.
        """
        left, plan = self.event.time_left, self._plan
        if left is None or not self._times.is_measured:
            return ""
        steps_left, seconds = self._steps_left(), self._times.cautious_seconds
        steps = steps_left.get(trial, 0)
        needed_s = self._needed_s(self._types, steps_left)
        fastest = min(needed_s, key=lambda name: (needed_s[name], name))
        remaining_s = left.deadline_s - self.at_s - left.overhead_s
        own_s, moved_s = seconds(trial, instance_type) * steps, seconds(trial, fastest) * steps + plan.restart_s
        has_slack = needed_s[fastest] + plan.restart_s < remaining_s and not self.is_on_demand
        if has_slack or own_s * (1 + plan.deadline_margin) <= remaining_s or moved_s >= own_s:
            return ""
        if self.event.spending is not None:
            price = self._types[fastest].on_demand_micros
            until_s = self.event.spending.ends_by_s - self.at_s
            if not Purse(self.event.spending).take(purchase_micros(plan.pays_whole_hours, price, until_s)):
                return ""
        return f"the deadline is in {left.deadline_s - self.at_s} s, and the rest takes {own_s:.0f} s here"

    def _needed_s(self, names: Iterable[str], steps_left: Mapping[int, int]) -> dict[str, float]:
        """Return how long the rest of the sweep takes on machines of each type, with the margin."""
        margin = 1 + self._plan.deadline_margin
        return {name: margin * seconds_needed(self._times, name, steps_left, self._plan.parallel) for name in names}

    def _cost(self, instance_type: str, steps_left: Mapping[int, int]) -> float:
        seconds = sum(self._times.seconds(trial, instance_type) * steps for trial, steps in steps_left.items())
        return self._types[instance_type].on_demand_micros * seconds

    @property
    def refused_note(self) -> str:
        """The markets that were not bought in whatever they cost, counted by reason; empty if there are none."""
        above = self.offers.above_on_demand
        notes = [f"{above} above on demand" if above else "", self._left_out_note()]
        return "; ".join(filter(None, notes))

    def _left_out_note(self) -> str:
        counts: dict[str, int] = {}
        for _, why in sorted(self.event.left_out.items()):
            counts[why] = counts.get(why, 0) + 1
        return "; ".join(f"{count} of the markets not weighed: {why}" for why, count in counts.items())


def seconds_needed(times: StepTimes, instance_type: str, steps_left: Mapping[int, int], parallel: int) -> float:
    """Return how long trials take on machines of one type: the longest of them, or all shared out evenly.

    Parameters
    ----------
    steps_left : number of steps by trial.
    parallel : machines at a time.
    """
    seconds = [times.cautious_seconds(trial, instance_type) * steps for trial, steps in steps_left.items()]
    return max(max(seconds), sum(seconds) / parallel) if seconds else 0.0
