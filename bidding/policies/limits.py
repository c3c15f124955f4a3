"""Limits on what a policy decides: the budget, the deadline's machines on demand, what a job has a use for."""

from collections.abc import Mapping
from dataclasses import replace

from proteus_spot.bidding.economics.budget import Purse, purchase_micros
from proteus_spot.bidding.economics.deadline import DeadlineRule, SafetyNet, TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.market.model import Allocation, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros, usd
from proteus_spot.bidding.market.quotas import left_of, quota_of
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision, MarketView
from proteus_spot.bidding.policies.footprint import price_text, usd_per_vcpu_h

#: The rule of a deadline.
DEADLINE_RULE: DeadlineRule = SafetyNet()


def purchase_within(decision: Decision, on_demand: bool, job: JobModel, purse: Purse, now_s: int) -> Decision:
    """Return the purchase as large as the budget allows, and take its cost from the purse; WAIT where nothing fits."""
    chosen, left = decision.chosen, purse.left_micros
    if chosen is None or left is None or purse.spending is None:
        return decision
    hour_micros = chosen.price_micros if on_demand else job.hour_micros(chosen.bid_micros)
    each_micros = purchase_micros(job.pays_whole_hours, hour_micros, purse.spending.ends_by_s - now_s)
    count = min(chosen.count, left // each_micros if each_micros else chosen.count)
    leaves = f"the budget of {usd(purse.spending.budget_micros)} leaves {usd(left)}"
    if not count:
        why = f"{leaves}, and a machine of {chosen.market} may cost {usd(each_micros)}"
        return _not_bought(decision, chosen, why, "does not fit in the budget")
    purse.take(count * each_micros)
    return decision if count == chosen.count else _smaller(decision, chosen, count, leaves)


def _not_bought(decision: Decision, chosen: Candidate, why: str, why_not: str) -> Decision:
    first = replace(chosen, why_not=why_not)
    reason = f"nothing is bought: {why}; else: {decision.reason}"
    return Decision(Choice.WAIT, reason, decision.cost_per_work, (first, *decision.candidates[1:]))


def _smaller(decision: Decision, chosen: Candidate, count: int, why: str) -> Decision:
    share = count / chosen.count
    smaller = replace(chosen, count=count, cost_usd=chosen.cost_usd * share, work=chosen.work * share)
    reason = f"{count} of {chosen.count} machines, since {why}: {decision.reason}"
    return replace(decision, reason=reason, candidates=(smaller, *decision.candidates[1:]))


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


def purchase_in_quota(
    decision: Decision, types: Mapping[str, InstanceType], left_vcpus: Mapping[str, int], *, spot: bool
) -> Decision:
    """Return the purchase as large as the account's quota of its kind allows; WAIT where no machine fits.

    Parameters
    ----------
    left_vcpus : vCPUs that are left by quota code.
    """
    chosen = decision.chosen
    left = None if chosen is None else left_of(left_vcpus, chosen.market.instance_type, spot)
    if chosen is None or left is None or chosen.count * types[chosen.market.instance_type].vcpu <= left:
        return decision
    quota = quota_of(chosen.market.instance_type, spot)
    assert quota is not None, "it has a limit"
    why = f"the account's quota {quota.name!r} leaves {max(left, 0)} vCPUs"
    count = max(left, 0) // types[chosen.market.instance_type].vcpu
    return _smaller(decision, chosen, count, why) if count else _not_bought(decision, chosen, why, "beyond the quota")


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
    return _smaller(decision, chosen, count, fits)


def is_on_demand(allocation: Allocation) -> bool:
    """Return whether the allocation was bought on demand to keep a deadline."""
    return allocation.bid_micros is None and allocation.tier is Tier.TRANSIENT


def on_demand_purchase(
    view: MarketView, markets: tuple[Market, ...], left: TimeLeft | None, held_vcpus: int
) -> Decision | None:
    """Return the decision that the deadline forces: machines on demand, up to the cap; None while there is slack.

    Once machines were bought on demand the job is finished with them: no spot machine is bought any more.

    Parameters
    ----------
    markets : those that the job may buy in.
    held_vcpus : vCPUs on the transient tier that count in the cap.
    """
    if left is None:
        return None
    reliable = [each for each in view.footprint if each.tier is Tier.RELIABLE and view.job.reliable_works]
    vcpus = view.job.max_spot_vcpus + sum(map(view.vcpus_of, reliable))
    slack_s = DEADLINE_RULE.slack_s(left, view.now_s, vcpus)
    if slack_s > 0 and not any(map(is_on_demand, view.footprint)):
        return None
    gone = f"the deadline's slack is gone ({left.clocks} clocks are left)"
    room = view.job.max_spot_vcpus - held_vcpus
    types = {market: view.types[market.instance_type] for market in markets if market not in view.cooling}
    fits = [market for market in sorted(types) if types[market].vcpu <= room]
    if not fits:
        return Decision(Choice.WAIT, f"{gone}, and no machine on demand fits in {room} vCPUs", float("inf"))
    # a zone where the reliable tier is comes first among equals: its bytes cross no zone
    zones = {each.market.zone for each in view.footprint if each.tier is Tier.RELIABLE}

    def rank(market: Market) -> tuple[float, bool, Market]:
        micros = types[market].on_demand_micros / types[market].vcpu
        return micros + view.crossing_usd(market) * MICROS_PER_DOLLAR, market.zone not in zones, market

    best = min(fits, key=rank)
    kind, count = types[best], room // types[best].vcpu
    each = kind.on_demand_micros / MICROS_PER_DOLLAR / kind.vcpu
    chosen = Candidate(
        market=best,
        count=count,
        price_micros=kind.on_demand_micros,
        delta_micros=0,
        eviction_prob=0.0,
        cost_usd=each * count * kind.vcpu,
        work=float(count * kind.vcpu),
        cost_per_work=each,
    )
    reason = (
        f"{gone}: {count} x {best} on demand at {price_text(kind.on_demand_micros)}, {usd_per_vcpu_h(each)}, "
        "finish the job"
    )
    return Decision(Choice.ACQUIRE, reason, float("inf"), (chosen,))
