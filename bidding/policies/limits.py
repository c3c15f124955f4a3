"""Limits on what a policy decides: the budget, the deadline's machines on demand, what a job has a use for."""

from collections.abc import Mapping
from dataclasses import replace

from proteus_spot.bidding.economics.budget import Purse, purchase_micros
from proteus_spot.bidding.economics.deadline import DeadlineRule, SafetyNet
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.market.model import Allocation, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros, usd
from proteus_spot.bidding.market.quotas import left_of, quota_of
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision, MachineRelease, MarketView
from proteus_spot.bidding.policies.footprint import price_text, usd_per_work
from proteus_spot.bidding.policies.offers import fewest

#: The most that machines on demand may cost, in words.
ON_DEMAND_LIMIT = "the limit for machines on demand (on_demand_usd)"
#: The rule of a deadline.
DEADLINE_RULE: DeadlineRule = SafetyNet()


def purchase_within(decision: Decision, job: JobModel, purse: Purse, now_s: int, limit: str = "the budget") -> Decision:
    """Return the purchase as large as the budget allows, and take its cost from the purse; WAIT where nothing fits.

    Parameters
    ----------
    limit : the budget in words.
    """
    chosen, left = decision.chosen, purse.left_micros
    if chosen is None or left is None or purse.spending is None:
        return decision
    hour_micros = chosen.price_micros if chosen.on_demand else job.hour_micros(chosen.bid_micros)
    each_micros = purchase_micros(job.pays_whole_hours, hour_micros, purse.spending.ends_by_s - now_s)
    count = min(chosen.count, left // each_micros if each_micros else chosen.count)
    leaves = f"{limit} of {usd(purse.spending.budget_micros)} leaves {usd(left)}"
    if not count:
        why = f"{leaves}, and a machine of {chosen.market} may cost {usd(each_micros)}"
        return _not_bought(decision, chosen, why, f"does not fit in {limit}")
    purse.take(count * each_micros)
    return decision if count == chosen.count else smaller(decision, chosen, count, leaves)


def _not_bought(decision: Decision, chosen: Candidate, why: str, why_not: str) -> Decision:
    first = replace(chosen, why_not=why_not)
    reason = f"nothing is bought: {why}; else: {decision.reason}"
    return Decision(Choice.WAIT, reason, decision.cost_per_work, (first, *decision.candidates[1:]))


def smaller(decision: Decision, chosen: Candidate, count: int, why: str) -> Decision:
    """Return the purchase of `chosen` with `count` of its machines, and the reason why it is not larger."""
    share = count / chosen.count
    cut = replace(chosen, count=count, cost_usd=chosen.cost_usd * share, work=chosen.work * share)
    reason = f"{count} of {chosen.count} machines, since {why}: {decision.reason}"
    return replace(decision, reason=reason, candidates=(cut, *decision.candidates[1:]))


def on_demand_within(view: MarketView, market: Market) -> int | None:
    """Return how many machines of `market` on demand may be bought by the dollars that the job may spend on them.

    It is negative where too many are held; None: no limit.
    """
    spending = view.on_demand_spending
    if spending is None:
        return None
    hour_micros = view.types[market.instance_type].on_demand_micros
    each = purchase_micros(view.job.pays_whole_hours, hour_micros, spending.ends_by_s - view.now_s)
    return (spending.budget_micros - spending.committed_micros) // max(each, 1)


def on_demand_releases(view: MarketView) -> tuple[MachineRelease, ...]:
    """Return the machines on demand to let go because the job may spend no more on them; the youngest first."""
    released = []
    spending = view.on_demand_spending
    held = sorted(filter(is_on_demand, view.footprint), key=lambda each: (-each.launched_at_s, each.allocation_id))
    over = 0 if not held else -(on_demand_within(view, held[0].market) or 0)
    for each in held:
        count = min(over, each.count)
        if spending is not None and count > 0:
            text = f"{count} of {each.count} x {each.market} on demand are let go: {ON_DEMAND_LIMIT} of "
            text += f"{usd(spending.budget_micros)} is spent"
            released.append(MachineRelease(each.allocation_id, count, Decision(Choice.LAPSE, text, float("inf"))))
            over -= count
    return tuple(released)


def renewal_within(
    decision: Decision, allocation: Allocation, job: JobModel, types: Mapping[str, InstanceType], purse: Purse
) -> Decision:
    """Return the renewal if the budget pays the whole hour, and take its cost from the purse; else LAPSE.

    Where seconds are paid nothing is committed by a renewal.
    """
    if not job.pays_whole_hours:
        return decision
    cost = allocation.count * _most_hour_micros(allocation, job, types)
    if purse.take(cost):
        return decision
    reason = f"the budget leaves {usd(purse.left_micros or 0)}, and the next hour may cost {usd(cost)}"
    return Decision(Choice.LAPSE, f"{reason}; else: {decision.reason}", decision.cost_per_work)


def _most_hour_micros(allocation: Allocation, job: JobModel, types: Mapping[str, InstanceType]) -> Micros:
    if allocation.bid_micros is None:
        return types[allocation.market.instance_type].on_demand_micros
    return job.hour_micros(allocation.bid_micros)


def purchase_in_quota(decision: Decision, types: Mapping[str, InstanceType], left_vcpus: Mapping[str, int]) -> Decision:
    """Return the purchase as large as the account's quota of its kind allows; WAIT where no machine fits.

    Parameters
    ----------
    left_vcpus : vCPUs that are left by quota code.
    """
    chosen = decision.chosen
    spot = chosen is not None and not chosen.on_demand
    left = None if chosen is None else left_of(left_vcpus, chosen.market.instance_type, spot)
    if chosen is None or left is None or chosen.count * types[chosen.market.instance_type].vcpu <= left:
        return decision
    quota = quota_of(chosen.market.instance_type, spot)
    assert quota is not None, "it has a limit"
    why = f"the account's quota {quota.name!r} leaves {max(left, 0)} vCPUs"
    count = max(left, 0) // types[chosen.market.instance_type].vcpu
    return smaller(decision, chosen, count, why) if count else _not_bought(decision, chosen, why, "beyond the quota")


def renewal_of_use(view: MarketView, allocation: Allocation) -> Decision | None:
    """Return LAPSE for an allocation that the job offers for release; None for any other."""
    if allocation.allocation_id not in view.offered:
        return None
    return Decision(Choice.LAPSE, f"the job offers it for release: {_fits(view.machines)}", float("inf"))


def part_of_no_use(count: int, of_count: int, machines: int | None) -> Decision:
    """Return LAPSE for `count` of the `of_count` machines of an allocation, since the job offers them for release."""
    reason = f"the job offers {count} of these {of_count} machines for release: {_fits(machines)}"
    return Decision(Choice.LAPSE, reason, float("inf"))


def _fits(machines: int | None) -> str:
    return f"what it holds in memory fits on {machines} spot machine(s)"


def purchase_of_use(decision: Decision, view: MarketView) -> Decision:
    """Return the purchase cut to the machines that the job still has a use for; WAIT if it has none."""
    chosen = decision.chosen
    if chosen is None or view.machines is None or view.spot_machines + chosen.count <= view.machines:
        return decision
    count = view.machines - view.spot_machines
    fits = f"what the job holds in memory fits on {view.machines} spot machine(s), and {view.spot_machines} are held"
    if count < 1:
        return _not_bought(decision, chosen, fits, "the job has no use for it")
    return smaller(decision, chosen, count, fits)


def purchase_for_tasks(decision: Decision, job: JobModel, held_vcpus: int, vcpus: int) -> Decision:
    """Return the purchase cut to the machines that the job's tasks have a use for; WAIT if they have none.

    A quota or a budget may have cut it, or one before it, to machines of which the last has no task.

    Parameters
    ----------
    held_vcpus : what is held on the transient tier, and bought before.
    vcpus : size of a machine.
    """
    chosen = decision.chosen
    if chosen is None or (count := fewest(job, held_vcpus, chosen.count, vcpus)) == chosen.count:
        return decision
    why = f"{held_vcpus + count * vcpus} {job.unit_name}s work as fast"
    return (
        smaller(decision, chosen, count, why) if count else _not_bought(decision, chosen, why, "no task is left for it")
    )


def is_on_demand(allocation: Allocation) -> bool:
    """Return whether the allocation was bought on demand to keep a deadline."""
    return allocation.bid_micros is None and allocation.tier is Tier.TRANSIENT


def on_demand_purchase(view: MarketView) -> Decision | None:
    """Return the decision that the deadline forces: machines on demand, up to the cap; None while there is slack.

    Once machines were bought on demand the job is finished with them: no spot machine is bought any more.
    """
    left = view.time_left
    if left is None:
        return None
    reliable = [each for each in view.footprint if each.tier is Tier.RELIABLE and view.job.reliable_works]
    room = view.on_demand_room_vcpus
    best = cheapest_on_demand(view, room)
    speed = 1.0 if best is None else view.work_of(best) / view.size_of(best)
    work = view.job.max_spot_vcpus * speed + sum(each.count * view.work_of(each.market) for each in reliable)
    slack_s = DEADLINE_RULE.slack_s(left, view.now_s, work)
    if slack_s > 0 and not any(map(is_on_demand, view.footprint)):
        return None
    gone = f"the deadline's slack is gone ({left.clocks} clocks are left)"
    if best is None:
        return Decision(Choice.WAIT, f"{gone}, and {no_on_demand(view, room)}", float("inf"))
    chosen = on_demand_candidate(view, best, room // view.size_of(best))
    reason = (
        f"{gone}: {chosen.count} x {best} on demand at {price_text(chosen.price_micros)}, "
        f"{usd_per_work(chosen.cost_per_work, view.job)}, finish the job"
    )
    return Decision(Choice.ACQUIRE, reason, float("inf"), (chosen,))


def cheapest_on_demand(view: MarketView, room_vcpus: int, *, at_rest: bool = False) -> Market | None:
    """Return the market with the cheapest work on demand; None where no machine fits in `room_vcpus`.

    Parameters
    ----------
    at_rest : whether markets that are left alone for now count, too.
    """
    resting = frozenset[Market]() if at_rest else view.on_demand_cooling
    markets = [each for each in view.markets if each not in resting and not view.job.excludes(each)]
    types = {market: view.types[market.instance_type] for market in markets}
    # a zone where the reliable tier is comes first among equals: its bytes cross no zone
    zones = {each.market.zone for each in view.footprint if each.tier is Tier.RELIABLE}

    def rank(market: Market) -> tuple[float, bool, Market]:
        micros = types[market].on_demand_micros / view.work_of(market)
        return micros + view.crossing_usd(market) * MICROS_PER_DOLLAR, market.zone not in zones, market

    return min((market for market in types if view.size_of(market) <= room_vcpus), key=rank, default=None)


def no_on_demand(view: MarketView, room_vcpus: int) -> str:
    """Return why no machine on demand can be bought."""
    markets = [each for each in view.markets if not view.job.excludes(each)]
    if not markets:
        return "all of its markets are excluded by the job (exclude_markets)"
    if all(view.size_of(each) > room_vcpus for each in markets):
        return f"no machine on demand fits in {room_vcpus} {view.job.unit_name}s"
    return "machines on demand were refused, or are beyond the account's quota"


def on_demand_candidate(view: MarketView, market: Market, count: int) -> Candidate:
    """Return the purchase of `count` machines on demand."""
    kind = view.types[market.instance_type]
    return Candidate(
        market=market,
        count=count,
        price_micros=kind.on_demand_micros,
        delta_micros=0,
        eviction_prob=0.0,
        cost_usd=kind.on_demand_micros * count / MICROS_PER_DOLLAR,
        work=count * view.work_of(market),
        cost_per_work=kind.on_demand_micros / MICROS_PER_DOLLAR / view.work_of(market),
        on_demand=True,
    )
