"""Bookings: what ended long ago is final, unless it is seen alive again."""

from itertools import pairwise

import pytest

import proteus_spot.tasks.market.bookkeeping
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.current_prices import history
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier
from tests.support.task_runtime import BEGIN_S, TaskRuntime, plain, spec


def test_an_allocation_that_ended_a_day_before_a_booking_is_booked_again_only_if_it_lives(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(markets: list[Market], from_s: int, until_s: int) -> TraceSet:
        asked.append(from_s)
        return history(markets, from_s, until_s)

    monkeypatch.setattr(proteus_spot.tasks.market.bookkeeping, "history", counted)
    here.begin(spec())
    here.clock.at_s += 60
    here.tick(spec())
    (spot,) = [record for record in here.store.purchases.allocations("job") if record.allocation.bid_micros is not None]
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    here.market.terminate(spot.instance_ids)
    plain(release_reliable_tier)(JobEngine("job"))
    here.tick(spec())
    spent = here.store.purchases.spent("job")
    ended_s = here.clock.at_s
    for after_s, is_asked in ((600, True), (DAY_S - 60, True), (DAY_S + HOUR_S, True), (DAY_S + HOUR_S + 120, False)):
        asked.clear()
        here.clock.at_s = ended_s + after_s
        assert plain(book_ledger)("job").lines == 0
        assert bool(asked) == is_asked, after_s
    assert here.store.purchases.spent("job") == spent
    times = [seen.at_s for seen in here.store.jobs.observations("job", ObservationKind.BOOKED)]
    assert all(later - earlier >= HOUR_S for earlier, later in pairwise(times))

    here.store.purchases.record_instance(spot.allocation_id, spot.instance_ids[0])
    assert plain(book_ledger)("job").lines > 0
    assert asked == [BEGIN_S + 60]
    assert here.store.purchases.spent("job") > spent


def test_a_booking_that_lacks_prices_is_none_after_which_hours_are_final(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())

    def noted() -> list[float]:
        return [seen.at_s for seen in here.store.jobs.observations("job", ObservationKind.BOOKED)]

    before = noted()
    here.clock.at_s += HOUR_S + 60
    here.market.add_fault(Fault(FaultKind.UNAVAILABLE, operation="price_history", times=1))
    assert plain(book_ledger)("job").lacks_prices
    assert noted() == before
    assert not plain(book_ledger)("job").lacks_prices
    assert noted() == [*before, here.clock.at_s]
