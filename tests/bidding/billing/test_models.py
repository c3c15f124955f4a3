"""Charges, held against a second accounting that knows nothing but seconds and decimals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.billing import (
    BillingModel,
    Charge,
    Flat,
    HourlyRefund,
    OnDemandHourly,
    PerSecondFirstHourFree,
    Repricing,
    refunded_micros,
    total_micros,
    total_prorata_micros,
)
from proteus_spot.bidding.market.model import HOUR_S, EndCause
from proteus_spot.bidding.market.traces import Trace

MICRO = Decimal("0.000001")
H = HOUR_S


@dataclass
class Bill:
    """What the second accounting finds, in dollars."""

    ended_at_s: int
    cause: EndCause | None
    hours: list[tuple[int, Decimal]] = field(default_factory=list)  # (start, amount)
    refunded_hours: set[int] = field(default_factory=set)

    @property
    def total(self) -> Decimal:
        return sum((amount for start, amount in self.hours if start not in self.refunded_hours), Decimal(0))

    @property
    def refund(self) -> Decimal:
        return sum((amount for start, amount in self.hours if start in self.refunded_hours), Decimal(0))

    @property
    def prorata(self) -> Decimal:
        if not self.hours or self.hours[-1][0] in self.refunded_hours:
            return self.total
        start, last = self.hours[-1]
        used = last * min(self.ended_at_s - start, 3600) / 3600
        return self.total - last + used.quantize(MICRO, ROUND_HALF_EVEN)


def second_by_second(
    events: list[tuple[int, int]], count: int, bid: int, launched_at_s: int, leave_at_s: int | None, until_s: int
) -> Bill:
    """Live through every second from the launch to the window's end."""
    changes: dict[int, int] = {}
    price: Decimal | None = None
    for at_s, micros in events:  # in file order: the last of a second stays
        changes[at_s] = micros
        if at_s <= launched_at_s:
            price = Decimal(micros) / 1_000_000
    assert price is not None
    bill = Bill(until_s, None)
    hour_start = launched_at_s
    for now_s in range(launched_at_s, until_s):
        if now_s in changes:
            price = Decimal(changes[now_s]) / 1_000_000
            if now_s > launched_at_s and changes[now_s] > bid:
                bill.ended_at_s, bill.cause = now_s, EndCause.EVICTED
                if now_s < hour_start + 3600:
                    bill.refunded_hours.add(hour_start)
                return bill
        if now_s == leave_at_s:
            bill.ended_at_s, bill.cause = now_s, EndCause.USER
            return bill
        if (now_s - launched_at_s) % 3600 == 0:
            hour_start = now_s
            bill.hours.append((now_s, (price * count).quantize(MICRO, ROUND_HALF_EVEN)))
    return bill


def trace(events: list[tuple[int, int]]) -> Trace:
    return Trace(np.array([at for at, _ in events]), np.array([micros for _, micros in events]))


LAUNCH = 1000
#: Where something can go wrong: on the hours, a second beside them, and anywhere.
MOMENTS = st.one_of(
    st.sampled_from([LAUNCH + hour * H + off for hour in range(3) for off in (-1, 0, 1)]),
    st.integers(LAUNCH - 10, LAUNCH + 2 * H + 10),
)


@settings(deadline=None, max_examples=60)
@given(
    events=st.lists(st.tuples(MOMENTS, st.integers(1, 9).map(lambda cents: 10_000 * cents + 1)), max_size=8),
    count=st.integers(1, 7),
    bid=st.integers(1, 9).map(lambda cents: 10_000 * cents + 1),
    leave_at_s=st.none() | MOMENTS.filter(lambda at: at >= LAUNCH),
    until_s=MOMENTS.filter(lambda at: at >= LAUNCH),
)
@example([(LAUNCH + H, 50_001)], 3, 20_001, LAUNCH + H, LAUNCH + 2 * H)  # taken and left in one second, on the hour
@example([(LAUNCH + 5, 50_001)], 3, 20_001, LAUNCH + 5, LAUNCH + 2 * H)  # the same within the hour
@example([(LAUNCH + 5, 50_001)], 3, 20_001, None, LAUNCH + 5)  # taken as the window ends
def test_charges_are_what_living_through_every_second_costs(
    events: list[tuple[int, int]], count: int, bid: int, leave_at_s: int | None, until_s: int
) -> None:
    events = sorted([(LAUNCH - 20, 10_001), *events], key=lambda event: event[0])
    bill = second_by_second(events, count, bid, LAUNCH, leave_at_s, until_s)

    prices = trace(events)
    taken_at_s = prices.first_above(bid, LAUNCH)
    if taken_at_s is not None and (leave_at_s is None or taken_at_s <= leave_at_s):
        ended_at_s, cause = taken_at_s, EndCause.EVICTED
    else:
        ended_at_s, cause = leave_at_s, None if leave_at_s is None else EndCause.USER
    charges = HourlyRefund().charges(prices, count, LAUNCH, ended_at_s, cause, until_s)

    assert [(c.hour_start_s, Decimal(c.amount_micros) * MICRO) for c in charges] == bill.hours
    assert {c.hour_start_s for c in charges if c.refunded} == bill.refunded_hours
    assert total_micros(charges) * MICRO == bill.total
    assert refunded_micros(charges) * MICRO == bill.refund
    assert total_prorata_micros(charges, bill.ended_at_s) * MICRO == bill.prorata
    assert [c.hour_index for c in charges] == list(range(len(charges)))
    assert all(c.amount_micros == c.price_micros * count and type(c.amount_micros) is int for c in charges)


#: One cent until the second hour, then two, then three.
PRICES = trace([(0, 10_000), (LAUNCH + H, 20_000), (LAUNCH + 2 * H, 30_000)])


def paid(ended_at_s: int | None, cause: EndCause | None, until_s: int = LAUNCH + 9 * H, count: int = 4) -> list[int]:
    """Return what each started hour costs in the end."""
    return [c.net_micros for c in HourlyRefund().charges(PRICES, count, LAUNCH, ended_at_s, cause, until_s)]


def test_an_hour_costs_the_price_at_its_start() -> None:
    assert paid(LAUNCH + 3 * H, EndCause.USER) == [40_000, 80_000, 120_000]


def test_a_started_hour_is_paid_in_full_by_who_leaves() -> None:
    assert paid(LAUNCH + H + 1, EndCause.USER) == [40_000, 80_000]
    assert paid(LAUNCH + 1, EndCause.USER) == [40_000]


def test_an_eviction_refunds_the_hour_in_progress_only() -> None:
    assert paid(LAUNCH + 2 * H - 1, EndCause.EVICTED) == [40_000, 0]
    assert paid(LAUNCH + 2 * H + 1, EndCause.EVICTED) == [40_000, 80_000, 0]


@pytest.mark.parametrize("cause", EndCause)
def test_an_end_on_the_hour_leaves_it_paid_and_begins_no_other(cause: EndCause) -> None:
    assert paid(LAUNCH + H, cause) == [40_000]


@pytest.mark.parametrize("cause", EndCause)
def test_an_end_in_the_second_of_the_launch_costs_nothing(cause: EndCause) -> None:
    assert paid(LAUNCH, cause) == []


def test_the_window_cuts_what_has_not_happened_yet() -> None:
    assert paid(None, None, until_s=LAUNCH) == []
    assert paid(None, None, until_s=LAUNCH + 1) == [40_000]
    assert paid(None, None, until_s=LAUNCH + H) == [40_000]
    assert paid(None, None, until_s=LAUNCH + H + 1) == [40_000, 80_000]
    assert paid(LAUNCH + 10, EndCause.EVICTED, until_s=LAUNCH + 10) == [40_000]
    assert paid(LAUNCH + 10, EndCause.EVICTED, until_s=LAUNCH + 11) == [0]


def test_the_last_price_holds_for_ever() -> None:
    assert paid(None, None, until_s=LAUNCH + 5 * H)[2:] == [120_000] * 3


def test_an_hour_that_was_refunded_still_shows_what_was_charged() -> None:
    (charge,) = HourlyRefund().charges(PRICES, 4, LAUNCH, LAUNCH + 5, EndCause.EVICTED, LAUNCH + H)
    assert charge == Charge(0, LAUNCH, 10_000, 40_000, refunded=True)
    assert (total_micros([charge]), refunded_micros([charge])) == (0, 40_000)


@pytest.mark.parametrize("model", [HourlyRefund(), PerSecondFirstHourFree(), Flat(100_000), OnDemandHourly(100_000)])
@pytest.mark.parametrize(
    ("count", "ended_at_s", "cause", "complaint"),
    [
        (0, None, None, "0 instances"),
        (1, LAUNCH - 1, EndCause.USER, "before its launch"),
        (1, LAUNCH + 1, None, "together"),
        (1, None, EndCause.USER, "together"),
    ],
)
def test_what_is_no_life_has_no_bill(
    model: BillingModel, count: int, ended_at_s: int | None, cause: EndCause | None, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        model.charges(PRICES, count, LAUNCH, ended_at_s, cause, LAUNCH + H)


@pytest.mark.parametrize("model", [HourlyRefund(), PerSecondFirstHourFree(), PerSecondFirstHourFree(Repricing.CHANGE)])
def test_nothing_can_have_been_bought_before_the_first_price(model: BillingModel) -> None:
    with pytest.raises(ValueError, match="no price is known at -1"):
        model.charges(PRICES, 1, -1, None, None, H)


@pytest.mark.parametrize("cause", EndCause)
def test_on_demand_pays_every_started_hour_whatever_ends_it(cause: EndCause) -> None:
    charges = OnDemandHourly(105_000).charges(None, 3, LAUNCH, LAUNCH + H + 1, cause, LAUNCH + 9 * H)
    assert charges == (
        Charge(0, LAUNCH, 105_000, 315_000, refunded=False),
        Charge(1, LAUNCH + H, 105_000, 315_000, refunded=False),
    )
    assert OnDemandHourly(105_000).charges(None, 3, LAUNCH, LAUNCH + H, cause, LAUNCH + 9 * H) == charges[:1]


@pytest.mark.parametrize(
    ("ended_at_s", "micros"),
    [(LAUNCH + H // 4, 25_000), (LAUNCH + H, 100_000), (LAUNCH + H + H // 2, 150_000), (LAUNCH + 2 * H, 200_000)],
)
def test_a_job_answers_for_the_part_of_the_last_hour_that_it_used(ended_at_s: int, micros: int) -> None:
    charges = OnDemandHourly(100_000).charges(None, 1, LAUNCH, ended_at_s, EndCause.USER, LAUNCH + 9 * H)
    assert total_prorata_micros(charges, ended_at_s) == micros


def test_a_job_that_ends_before_its_machines_do_pays_no_later_hour() -> None:
    charges = OnDemandHourly(100_000).charges(None, 1, LAUNCH, None, None, LAUNCH + 3 * H)
    assert len(charges) == 3
    assert total_prorata_micros(charges, LAUNCH + H + H // 2) == 150_000


#: A cent an hour, then two from a quarter past on.
RISES = trace([(0, 10_000), (LAUNCH + H // 4, 20_000)])


@pytest.mark.parametrize(
    ("repricing", "amounts"), [(Repricing.HOUR, [10_000, 10_000]), (Repricing.CHANGE, [17_500, 10_000])]
)
def test_a_new_price_counts_at_the_next_hour_or_at_once(repricing: Repricing, amounts: list[int]) -> None:
    model = PerSecondFirstHourFree(repricing)
    charges = model.charges(RISES, 1, LAUNCH, LAUNCH + H + H // 2, EndCause.USER, LAUNCH + 9 * H)
    assert [charge.amount_micros for charge in charges] == amounts
    assert [charge.price_micros for charge in charges] == [10_000, 20_000]


@pytest.mark.parametrize(
    ("ended_at_s", "net"),
    [
        (LAUNCH + H // 2, [0]),
        (LAUNCH + H - 1, [0]),
        (LAUNCH + H, [36_000]),
        (LAUNCH + H + 100, [36_000, 1_000]),
        (LAUNCH + 2 * H + 1, [36_000, 36_000, 10]),
    ],
)
def test_an_eviction_frees_the_first_hour_and_no_later_one(ended_at_s: int, net: list[int]) -> None:
    steady = trace([(0, 36_000)])
    charges = PerSecondFirstHourFree().charges(steady, 1, LAUNCH, ended_at_s, EndCause.EVICTED, LAUNCH + 9 * H)
    assert [charge.net_micros for charge in charges] == net


@pytest.mark.parametrize("repricing", Repricing)
def test_the_first_minute_is_charged_whole_and_shared_by_the_seconds_used(repricing: Repricing) -> None:
    steady = trace([(0, 36_000)])
    (charge,) = PerSecondFirstHourFree(repricing).charges(steady, 2, LAUNCH, LAUNCH + 15, EndCause.USER, LAUNCH + H)
    assert (charge.amount_micros, charge.paid_s) == (1_200, 60)
    assert total_prorata_micros([charge], LAUNCH + 15) == 300
    second = PerSecondFirstHourFree(repricing).charges(
        steady, 2, LAUNCH, LAUNCH + H + 15, EndCause.USER, LAUNCH + 2 * H
    )
    assert second[1].amount_micros == 300, "no later hour has a minimum"


def test_a_fixed_price_is_paid_by_the_second_up_to_the_longest_life() -> None:
    charges = Flat(36_000, max_life_s=H + 10).charges(None, 2, LAUNCH, None, None, LAUNCH + 9 * H)
    assert charges == (
        Charge(0, LAUNCH, 36_000, 72_000, refunded=False),
        Charge(1, LAUNCH + H, 36_000, 200, refunded=False, paid_s=10),
    )
    assert Flat(36_000).charges(None, 2, LAUNCH, LAUNCH + 7, EndCause.EVICTED, LAUNCH + H)[0].net_micros == 140


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: PerSecondFirstHourFree(minimum_s=H + 1), "a minimum of 3601 s"),
        (lambda: Flat(-1), "a price of -1"),
        (lambda: Flat(1, max_life_s=0), "at most 0 s"),
    ],
)
def test_what_is_no_model_is_refused(make: Callable[[], BillingModel], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()
