"""The engine under a budget and a deadline: what passes them is not bought, or smaller, and the reason says so."""

from dataclasses import replace

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import AllocationRefused, JobClosed, TickDue
from proteus_spot.bidding.engine.journal import from_record, to_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.bidding.market.model import HOUR_S, Allocation, Tier
from proteus_spot.bidding.market.money import Micros
from tests.support.bid_engines import JOB, PRICES, bought, engine_of
from tests.support.markets import LARGE, START_S, TYPES, XLARGE, XLARGE_B, granted, opened, reliable, spot, table, tick

BY_SECOND = replace(JOB, billing="per-second-first-hour-free")
#: The time by which machines can be ended, from a tick on.
END_S = 600


def with_limits(event: TickDue, left: Micros | None = None, time_left: TimeLeft | None = None) -> TickDue:
    """Return the tick of a job that may still commit `left` micro-dollars."""
    spending = None if left is None else Spending(10_000_000, 10_000_000 - left, event.at_s + END_S)
    return replace(event, spending=spending, time_left=time_left)


def wanted(job=JOB) -> Acquire:
    """Return what is bought without a limit."""
    (order,) = engine_of(reliable(), job=job).handle(tick(START_S, PRICES))
    assert isinstance(order, Acquire)
    assert order.count > 1
    return order


def decided(left: Micros, job=JOB):
    (order,) = engine_of(reliable(), job=job).handle(with_limits(tick(START_S, PRICES), left))
    return order


def test_a_purchase_that_fits_is_bought_as_without_a_budget():
    full = wanted()
    assert decided(full.count * full.bid_micros) == full


def test_a_purchase_that_would_pass_the_budget_is_made_smaller_and_says_so():
    full = wanted()
    order = decided(full.count * full.bid_micros - 1)
    assert isinstance(order, Acquire)
    assert (order.market, order.count, order.bid_micros) == (full.market, full.count - 1, full.bid_micros)
    assert order.decision.chosen.count == order.count
    assert f"{order.count} of {full.count} machines, since the budget of $10.0000 leaves" in order.decision.reason


def test_what_a_budget_leaves_of_a_purchase_is_cut_to_machines_that_have_a_task():
    job = replace(JOB, tasks=8, task_vcpus=8)
    full = wanted(job)
    assert TYPES[full.market.instance_type].vcpu == 4, "two machines run a task"
    assert full.count % 2 == 0
    order = decided((full.count - 1) * full.bid_micros, job)
    assert order.count == full.count - 2
    assert f"{4 * order.count} vCPUs work as fast" in order.decision.reason


def test_after_a_purchase_that_a_budget_made_smaller_each_machine_of_the_next_has_a_task():
    job = replace(JOB, allocation_vcpus=8, max_spot_vcpus=20, tasks=5, task_vcpus=4, billing=BY_SECOND.billing)
    job = replace(job, reliable_works=False, boot_s=0.0, cooldown_s=0)
    engine = BidEngine()
    engine.handle(opened(job, "deadline", table(beta=0.01)))
    engine.handle(granted(reliable()))
    event = tick(START_S, {LARGE: "0.000001"})
    left = TimeLeft(START_S + HOUR_S, 16 * HOUR_S, 1.0, 300.0)
    orders = engine.handle(with_limits(event, 100_000, left))
    bought_vcpus = [order.count * TYPES[order.market.instance_type].vcpu for order in orders]
    assert len(orders) == 2
    assert [order.bid_micros is None for order in orders] == [True, False]
    assert job.useful_vcpus(sum(bought_vcpus)) > job.useful_vcpus(sum(bought_vcpus) - 2)


def test_what_does_not_fit_at_all_is_not_bought_and_the_reason_says_so():
    order = decided(wanted().bid_micros - 1)
    assert isinstance(order, Wait)
    assert "the budget of $10.0000 leaves" in order.decision.reason
    assert order.decision.candidates[0].why_not == "does not fit in the budget"


def test_where_seconds_are_paid_only_those_until_the_end_are_committed():
    full = wanted(BY_SECOND)
    each = -(-full.bid_micros * END_S // HOUR_S)
    assert decided(full.count * each, BY_SECOND) == full
    assert decided(full.count * each - 1, BY_SECOND).count == full.count - 1


def test_the_next_hour_counts_whole_and_lapses_where_it_does_not_fit():
    bid = spot("a", count=2, bid="0.30")
    for left, kind in ((600_000, Renew), (599_999, Lapse)):
        engine = engine_of(reliable(), bid)
        order = engine.handle(with_limits(tick(START_S + HOUR_S - 200, PRICES), left))[0]
        assert isinstance(order, kind)
    assert order.before_s == START_S + HOUR_S - 200, "at once: should the next ticks be lost, it would be charged"
    assert "the next hour may cost $0.6000" in order.decision.reason


def test_a_renewal_and_a_purchase_of_one_tick_share_what_is_left():
    engine = engine_of(reliable(), spot("a", count=2, bid="0.30"))
    at_s = START_S + HOUR_S - 200
    renew, acquire = engine.handle(with_limits(tick(at_s, PRICES), None))
    assert isinstance(renew, Renew)
    assert isinstance(acquire, Acquire)
    engine = engine_of(reliable(), spot("a", count=2, bid="0.30"))
    renew, other = engine.handle(with_limits(tick(at_s, PRICES), 600_000 + acquire.bid_micros - 1))
    assert isinstance(renew, Renew)
    assert isinstance(other, Wait)


def test_by_the_second_a_renewal_commits_nothing():
    engine = engine_of(reliable(), spot("a", count=2), job=BY_SECOND)
    order = engine.handle(with_limits(tick(START_S + HOUR_S - 200, PRICES), 0))[0]
    assert isinstance(order, Renew)


#: At 0.001 clocks a vCPU-second, 40 vCPUs (32, and 8 reliable) train 100 clocks in 2500 s.
TIGHT = TimeLeft(START_S + 3_000, 100, 0.001, 400.0)
LOOSE = replace(TIGHT, deadline_s=START_S + 10_000)


def after_slack(engine: BidEngine, at_s: int = START_S, left: Micros | None = None):
    return engine.handle(with_limits(tick(at_s, PRICES), left, TIGHT))


def test_while_there_is_slack_the_policy_decides():
    (order,) = engine_of(reliable()).handle(with_limits(tick(START_S, PRICES), None, LOOSE))
    assert order == wanted()


def test_without_slack_machines_on_demand_fill_the_cap():
    engine = engine_of(reliable())
    (order,) = after_slack(engine)
    assert isinstance(order, Acquire)
    kind = TYPES[order.market.instance_type]
    assert order.bid_micros is None
    assert order.count * kind.vcpu == JOB.max_spot_vcpus
    assert "slack is gone" in order.decision.reason
    assert kind.on_demand_micros / kind.vcpu == min(each.on_demand_micros / each.vcpu for each in TYPES.values())
    engine.validate()


def test_the_zone_of_the_reliable_tier_comes_first():
    for market in (XLARGE, XLARGE_B):
        (order,) = after_slack(engine_of(reliable(market=market)))
        assert order.market.zone == market.zone


def test_spot_machines_that_live_on_count_in_the_cap():
    (order,) = after_slack(engine_of(reliable(), spot("a", count=4)))
    assert order.count * TYPES[order.market.instance_type].vcpu == JOB.max_spot_vcpus - 16


def on_demand_engine() -> BidEngine:
    engine = engine_of(reliable())
    (order,) = after_slack(engine)
    engine.handle(granted(bought(order, START_S)))
    return engine


def test_machines_on_demand_are_kept_and_no_spot_machine_is_bought_any_more():
    engine = on_demand_engine()
    (held,) = [p.allocation for p in engine.holdings.positions.values() if p.allocation.tier is Tier.TRANSIENT]
    orders = engine.handle(with_limits(tick(START_S + HOUR_S - 200, PRICES), None, LOOSE))
    assert [type(order) for order in orders] == [Renew, Wait]
    assert orders[0].allocation_id == held.allocation_id
    engine.handle(JobClosed(START_S + HOUR_S))
    (order,) = engine.handle(tick(START_S + 2 * HOUR_S - 200, PRICES))
    assert isinstance(order, Lapse)


def test_a_market_without_capacity_on_demand_is_left_for_another():
    engine = engine_of(reliable())
    (order,) = after_slack(engine)
    engine.handle(AllocationRefused(START_S, order.order_id, "InsufficientInstanceCapacity", "none"))
    (other,) = after_slack(engine, START_S + 120)
    assert isinstance(other, Acquire)
    assert other.bid_micros is None
    assert other.market != order.market


def test_a_quota_means_fewer_machines_on_demand_and_cools_no_market():
    engine = engine_of(reliable())
    (order,) = after_slack(engine)
    engine.handle(AllocationRefused(START_S, order.order_id, "VcpuLimitExceeded", "no more"))
    (fewer,) = after_slack(engine, START_S + 120)
    assert isinstance(fewer, Acquire)
    assert (fewer.market, fewer.count, fewer.bid_micros) == (order.market, order.count // 2, None)


def test_the_budget_wins_over_the_deadline():
    (full,) = after_slack(engine_of(reliable()))
    each = TYPES[full.market.instance_type].on_demand_micros
    (order,) = after_slack(engine_of(reliable()), left=2 * each)
    assert (order.count, order.bid_micros) == (2, None)
    (wait,) = after_slack(engine_of(reliable()), left=each - 1)
    assert isinstance(wait, Wait)
    assert "budget" in wait.decision.reason
    assert "slack is gone" in wait.decision.reason


def test_limits_and_purchases_on_demand_survive_the_journal():
    event = with_limits(tick(START_S, PRICES), 5_000, TIGHT)
    assert from_record(to_record(event)) == event
    (order,) = after_slack(engine_of(reliable()))
    assert from_record(to_record(order)) == order


def test_a_machine_on_demand_is_in_the_footprint_for_the_paper_s_policy():
    engine = engine_of(reliable(), Allocation("od", XLARGE, 2, START_S, Tier.TRANSIENT, None))
    (order,) = engine.handle(tick(START_S, PRICES))
    assert isinstance(order, Acquire | Wait)
