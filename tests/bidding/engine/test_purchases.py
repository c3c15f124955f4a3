"""The engine: purchases, refusals, quotas, and the loss of single machines."""

from dataclasses import replace

import pytest

from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import (
    AllocationRefused,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MarketCooled,
    NodesOffered,
    NoticeSeen,
)
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait, number_after, order_id_of, order_parts
from proteus_spot.bidding.market.model import HOUR_S, EndCause
from tests.support.bid_engines import ENDS_S, JOB, PRICES, TICK_S, bought, engine_of, full, kinds
from tests.support.markets import (
    LARGE,
    MARKETS,
    START_S,
    TYPES,
    XLARGE,
    XLARGE_B,
    gone,
    granted,
    opened,
    reliable,
    spot,
    tick,
)


def test_a_purchase_is_ordered_again_the_same_until_it_is_answered():
    engine = engine_of(reliable())
    (order,) = engine.handle(tick(START_S, PRICES))
    assert isinstance(order, Acquire)
    assert (order.order_id, order.market, order.count) == ("j-buy-0", XLARGE, 4)
    assert order.decision.chosen.bid_micros == order.bid_micros
    # even when prices have changed: the token stands for one purchase
    assert engine.handle(tick(START_S + TICK_S, {XLARGE_B: "0.01"})) == (order,)
    assert engine.holdings.open_orders == {order.order_id: order}
    engine.handle(granted(bought(order, START_S + TICK_S)))
    assert engine.holdings.open_orders == {}
    (second,) = engine.handle(tick(START_S + 2 * TICK_S, PRICES))
    assert second.order_id == "j-buy-1"


def test_the_cap_counts_what_was_bought():
    engine = engine_of(reliable())
    for number in range(2):
        (order,) = engine.handle(tick(START_S, PRICES))
        assert order.order_id == f"j-buy-{number}"
        engine.validate()
        engine.handle(granted(bought(order, START_S)))
    (wait,) = engine.handle(tick(START_S + TICK_S, PRICES))
    assert isinstance(wait, Wait)
    assert "32 spot vCPUs are held" in wait.decision.reason


def test_a_grant_twice_or_after_the_end_changes_nothing():
    engine = engine_of(reliable())
    (order,) = engine.handle(tick(START_S, PRICES))
    grant = granted(bought(order, START_S))
    for _ in range(2):
        assert engine.handle(grant) == ()
    assert len(engine.holdings.footprint) == 2
    engine.handle(gone(order.order_id, START_S + 60))
    engine.handle(grant)
    assert engine.holdings.footprint == (reliable(),)
    assert engine.holdings.positions[order.order_id].standing is AllocationState.GONE


def test_a_grant_that_repeats_an_old_answer_leaves_the_open_purchase_open():
    engine = engine_of(reliable())
    (first,) = engine.handle(tick(START_S, PRICES))
    grant = granted(bought(first, START_S))
    engine.handle(grant)
    (second,) = engine.handle(tick(START_S + TICK_S, PRICES))
    engine.handle(grant)
    engine.handle(AllocationRefused(START_S, first.order_id, "Late", "an answer that came twice"))
    assert engine.holdings.open_orders == {second.order_id: second}


def test_a_market_that_refused_cools_down():
    engine = engine_of(reliable())
    (order,) = engine.handle(tick(START_S, PRICES))
    engine.handle(AllocationRefused(START_S + 5, order.order_id, "InsufficientInstanceCapacity", "none left"))
    (other,) = engine.handle(tick(START_S + 10, PRICES))
    assert (other.order_id, other.market) == ("j-buy-1", XLARGE_B)
    engine.handle(AllocationRefused(START_S + 10, other.order_id, "InsufficientInstanceCapacity", "none left"))
    (wait,) = engine.handle(tick(START_S + 604, PRICES))
    assert "left alone for a while" in wait.decision.reason
    (again,) = engine.handle(tick(START_S + 605, PRICES))  # ten minutes after it refused
    assert (again.order_id, again.market) == ("j-buy-2", XLARGE)


def test_only_markets_of_the_job_are_bought():
    engine = BidEngine()
    engine.handle(replace(opened(JOB), markets=(XLARGE_B,)))
    (order,) = engine.handle(tick(START_S, PRICES))
    assert order.market == XLARGE_B


def test_a_tick_that_buys_nothing_decides_what_is_held_and_repeats_no_purchase():
    engine = engine_of(reliable(), spot())
    sparing = replace(tick(START_S + HOUR_S - 60, PRICES), buy=False)
    assert kinds(engine.handle(sparing)) == ["Renew"]
    assert engine.holdings.open_orders == {}
    (order,) = engine.handle(tick(START_S + HOUR_S - 50, PRICES))
    assert engine.handle(replace(sparing, at_s=START_S + HOUR_S - 40)) == ()
    assert engine.holdings.open_orders == {order.order_id: order}


def test_a_market_that_is_left_out_is_not_bought_in_and_the_decision_says_so():
    engine = engine_of(reliable())
    due = replace(tick(START_S, {XLARGE_B: "0.06"}), left_out={XLARGE: "no price", LARGE: "no price"})
    (order,) = engine.handle(due)
    assert isinstance(order, Acquire)
    assert order.market == XLARGE_B
    assert order.decision.reason.endswith(f"; not weighed: {LARGE}, {XLARGE}: no price")


def test_with_every_market_left_out_it_waits_and_holds_and_decides_on_hours():
    left_out = dict.fromkeys(MARKETS, "no price")
    engine = engine_of(reliable(), spot("a", XLARGE))
    engine.handle(replace(tick(START_S, PRICES), buy=False))
    (wait,) = engine.handle(replace(tick(START_S, {}), left_out=left_out))
    assert isinstance(wait, Wait)
    assert wait.decision.reason.startswith("nothing can be bought: no market has a price; not weighed: ")
    orders = engine.handle(replace(tick(START_S + HOUR_S - 100, {}), left_out=left_out))
    assert kinds(orders) == ["Renew", "Wait"]


def test_a_purchase_that_nobody_answered_is_not_repeated_on_a_price_that_nobody_tells():
    engine = engine_of(reliable())
    (order,) = engine.handle(tick(START_S, PRICES))
    (wait,) = engine.handle(replace(tick(START_S + TICK_S, {}), left_out={order.market: "no price"}))
    assert isinstance(wait, Wait)
    assert "j-buy-0 stays unanswered" in wait.decision.reason
    assert engine.handle(tick(START_S + 2 * TICK_S, PRICES)) == (order,)


def test_the_on_demand_policy_waits():
    (wait,) = engine_of(reliable(), policy="on-demand").handle(tick(START_S, PRICES))
    assert isinstance(wait, Wait)


def test_a_machine_that_is_lost_without_a_notice_is_bought_again():
    engine = engine_of(reliable(), spot(count=8))  # at the cap
    assert kinds(engine.handle(tick(START_S + 60, PRICES))) == ["Wait"]
    engine.handle(MachineGone(START_S + 100, "a", "i-a-3", EndCause.EVICTED))
    assert engine.holdings.footprint == (reliable(), spot(count=7))
    (order,) = engine.handle(tick(START_S + 120, PRICES))
    assert (type(order), order.market, order.count) == (Acquire, XLARGE, 1)


def test_a_noticed_machine_counts_in_the_cap_until_it_is_gone_and_the_others_work_on():
    engine = engine_of(reliable(), spot(count=8))
    engine.handle(MachineNoticed(START_S + 100, "a", "i-a-3", START_S + 220))
    assert (engine.holdings.footprint, engine.holdings.spot_vcpus) == ((reliable(), spot(count=7)), 32)
    assert kinds(engine.handle(tick(START_S + 120, PRICES))) == ["Wait"]
    engine.handle(MachineGone(START_S + 220, "a", "i-a-3", EndCause.EVICTED))
    (order,) = engine.handle(tick(START_S + 240, PRICES))
    assert (type(order), order.count) == (Acquire, 1)


def test_the_market_that_takes_one_machine_is_left_alone_meanwhile():
    engine = engine_of(reliable(), spot(count=4))
    engine.handle(MachineNoticed(START_S + 100, "a", "i-a-3", START_S + 220))
    (order,) = engine.handle(tick(START_S + 220, PRICES))
    assert order.market == XLARGE_B


def test_a_market_whose_launch_failed_is_left_alone_for_a_while():
    engine = engine_of(reliable(), spot(count=2))
    engine.handle(gone("a", START_S + 5, EndCause.FAILED))
    (order,) = engine.handle(tick(START_S + 10, PRICES))
    assert order.market == XLARGE_B


def test_what_is_left_of_an_allocation_is_renewed_and_lapses_as_a_smaller_one():
    for price, kind in (("0.05", "Renew"), ("3", "Lapse")):
        engine = full(reliable(), spot(count=4, bid="9"))
        engine.handle(MachineGone(START_S + 100, "a", "i-a-0", EndCause.EVICTED))
        engine.handle(MachineNoticed(ENDS_S - 130, "a", "i-a-1", ENDS_S - 10))
        order = engine.handle(tick(ENDS_S - 120, {XLARGE: price}))[0]
        assert (type(order).__name__, order.allocation_id) == (kind, "a")
    assert engine.holdings.positions["a"].standing is AllocationState.LAPSING
    assert engine._view(tick(ENDS_S - 100, {})).lapsing == (spot(count=2, bid="9"),)
    engine.handle(gone("a", ENDS_S, EndCause.USER))
    assert engine.holdings.positions["a"].cause is EndCause.USER
    assert engine.holdings.positions["a"].machines["i-a-0"].cause is EndCause.EVICTED


def test_a_machine_that_is_seen_alive_is_held_again_and_its_allocation_with_it():
    engine = engine_of(reliable(), spot(count=2))
    engine.handle(gone("a", START_S + 100))
    engine.handle(MachineSeen(START_S + 200, "a", "i-a-1"))
    assert engine.holdings.footprint == (reliable(), spot(count=1))
    assert engine.holdings.positions["a"].ended_at_s is None
    engine.handle(NoticeSeen(START_S + 300, "a", START_S + 420))
    assert engine.holdings.positions["a"].standing is AllocationState.NOTICED
    engine.handle(MachineSeen(START_S + 700, "a", "i-a-1"))
    assert engine.holdings.footprint == (reliable(), spot(count=1))


def test_an_allocation_that_was_let_go_and_is_seen_alive_is_let_go_again():
    engine = full(reliable(), spot(bid="9"))
    lapse, _ = engine.handle(tick(ENDS_S - 240, {XLARGE: "3"}))
    engine.handle(gone("a", ENDS_S - 1, EndCause.USER))
    engine.handle(MachineSeen(ENDS_S + 60, "a", "i-a-1"))
    assert engine.holdings.positions["a"].standing is AllocationState.LAPSING
    assert engine.handle(tick(ENDS_S + 120, {XLARGE: "0.01"}))[0] == lapse


def test_machines_that_are_found_later_may_exceed_the_cap_and_hours_lapse_until_it_is_kept():
    engine = engine_of(reliable(), spot("a", count=8))
    engine.handle(granted(spot("b", count=8)))
    engine.validate()
    assert engine.holdings.spot_vcpus == 64
    assert kinds(engine.handle(tick(START_S + 60, PRICES))) == ["Wait"]
    first, second, wait = engine.handle(tick(ENDS_S - 240, PRICES))
    assert (type(first), first.allocation_id) == (Lapse, "a")
    assert "64 spot vCPUs are held, of at most 32" in first.decision.reason
    assert (type(second), second.allocation_id, type(wait)) == (Renew, "b", Wait)


def test_an_unanswered_purchase_that_no_longer_fits_in_is_not_ordered_again_until_it_does():
    engine = engine_of(reliable())
    (order,) = engine.handle(tick(START_S, PRICES))
    engine.handle(granted(spot("stray", count=8)))
    engine.validate()
    (wait,) = engine.handle(tick(START_S + TICK_S, PRICES))
    assert isinstance(wait, Wait)
    assert "j-buy-0 stays unanswered until it fits in" in wait.decision.reason
    engine.handle(gone("stray", START_S + 200))
    assert engine.handle(tick(START_S + 2 * TICK_S, PRICES)) == (order,)


def test_a_refusal_for_the_quota_means_fewer_machines_for_an_hour_and_cools_no_market():
    engine = engine_of(reliable())
    (order,) = engine.handle(tick(START_S, PRICES))
    vcpu = TYPES[order.market.instance_type].vcpu
    engine.handle(AllocationRefused(START_S, order.order_id, "MaxSpotInstanceCountExceeded", "no more"))
    (fewer,) = engine.handle(tick(START_S + TICK_S, PRICES))
    assert isinstance(fewer, Acquire)
    assert (fewer.market, fewer.count) == (order.market, order.count // 2)
    assert f"the account's quota allows {order.count // 2 * vcpu} spot vCPUs" in fewer.decision.reason
    engine.handle(AllocationRefused(START_S + TICK_S, fewer.order_id, "InsufficientInstanceCapacity", "none left"))
    (later,) = engine.handle(tick(START_S + HOUR_S + TICK_S, PRICES))
    assert isinstance(later, Acquire)
    assert later.count == order.count


def test_a_quota_that_allows_nothing_more_stops_purchases_and_says_so():
    engine = engine_of(reliable(), job=replace(JOB, allocation_vcpus=4, max_spot_vcpus=4))
    (order,) = engine.handle(tick(START_S, PRICES))
    assert order.count == 1
    engine.handle(AllocationRefused(START_S, order.order_id, "VcpuLimitExceeded", "no more"))
    (waits,) = engine.handle(tick(START_S + TICK_S, PRICES))
    assert isinstance(waits, Wait)
    assert "the account's quota allows 0 spot vCPUs" in waits.decision.reason


def test_a_purchase_that_is_found_is_not_ordered_again_under_its_id():
    engine = engine_of(reliable())
    engine.handle(granted(spot("j-buy-2", LARGE, 1)))  # bought after the backup from which this record was restored
    (order,) = engine.handle(tick(START_S, PRICES))
    assert order.order_id == "j-buy-3"
    engine.validate()


def test_orders_of_a_copied_database_have_its_generation_in_their_ids():
    engine = engine_of(reliable())
    (first,) = engine.handle(replace(tick(START_S, PRICES), generation="g2-0a"))
    assert first.order_id == "j-g2-0a-buy-0"
    assert engine.handle(replace(tick(START_S, PRICES), generation="g3-0b")) == (first,), "it is open"
    engine.handle(granted(spot("j-buy-4", LARGE, 1)))  # by another copy
    engine.handle(AllocationRefused(START_S, first.order_id, "InsufficientInstanceCapacity", "none left"))
    (second,) = engine.handle(replace(tick(START_S + TICK_S, PRICES), generation="g3-0b"))
    assert second.order_id == "j-g3-0b-buy-5"
    engine.validate()


@pytest.mark.parametrize(
    ("order_id", "parts", "after"),
    [
        ("a-g2-0a-buy-14", ("g2-0a", "buy-14"), 15),
        ("a-buy-14", ("", "buy-14"), 15),
        ("a-g2-buy-14", ("", "g2-buy-14"), 0),
        ("a-b-buy-14", ("", "b-buy-14"), 0),
        ("b-buy-14", ("", ""), 0),
        ("a-buy-x", ("", "buy-x"), 0),
    ],
)
def test_the_parts_of_an_id_are_found(order_id, parts, after):
    assert order_parts("a", order_id) == parts
    assert number_after("a", order_id, "buy-") == after
    if parts[1]:
        assert order_id_of("a", *parts) == order_id


def test_launches_of_no_use_cool_their_market_twice_as_long_each_time():
    engine = engine_of(reliable())
    now_s, pauses = START_S, []
    for number in range(7):
        engine.handle(granted(spot(f"s{number}", XLARGE, 1, launched_at_s=now_s)))
        engine.handle(gone(f"s{number}", now_s + 90, EndCause.USER))
        engine.handle(MarketCooled(now_s + 90, XLARGE, "ended soon after the launch"))
        pauses.append(engine.holdings.cooling[XLARGE] - now_s - 90)
        now_s = engine.holdings.cooling[XLARGE]
    assert pauses == [600, 1200, 2400, 4800, 9600, 9600, 9600]
    engine.handle(granted(spot("long", XLARGE, 1, launched_at_s=now_s)))
    engine.handle(gone("long", now_s + 3000, EndCause.FAILED))
    assert engine.holdings.cooling[XLARGE] == now_s + 3000 + 600


def test_machines_that_the_market_took_are_no_launches_of_no_use():
    engine = engine_of(reliable())
    for name, cause in (("e1", EndCause.EVICTED), ("e2", EndCause.EVICTED), ("useless", EndCause.USER)):
        engine.handle(granted(spot(name, XLARGE, 1)))
        engine.handle(gone(name, START_S + 90, cause))
    engine.handle(MarketCooled(START_S + 90, XLARGE, "ended soon after the launch"))
    assert engine.holdings.cooling[XLARGE] == START_S + 90 + JOB.cooldown_s


def test_machines_that_were_to_end_an_hour_ago_are_ordered_to_end_again():
    engine = engine_of(reliable())
    engine.handle(granted(spot("a", count=3, bid="9")))
    ended = []
    for hour, offered in enumerate((("i-a-0",), ("i-a-0", "i-a-1"))):
        now_s = ENDS_S + hour * HOUR_S - TICK_S
        engine.handle(NodesOffered(now_s, offered, 1))
        orders = engine.handle(tick(now_s, PRICES))
        ended += [order.instance_ids for order in orders if isinstance(order, Lapse) and order.hour == hour + 1]
    assert ended == [("i-a-0",), ("i-a-0", "i-a-1")]
