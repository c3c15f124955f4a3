"""Prices that are not fit to decide on: nothing is bought on them, and the line says why."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import proteus_spot.tasks.market.current_prices
from proteus_spot.bidding.engine.events import TickDue
from proteus_spot.bidding.engine.journal import from_record, replay
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew, Wait
from proteus_spot.bidding.market.model import HOUR_S, Market, PricePoint
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.storage.price_store import PriceStore
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.costs import cost_rows
from proteus_spot.tasks.market.current_prices import Prices, observe_prices, prices_to_decide_on
from proteus_spot.tasks.market.decisions import decide, opened_markets
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import open_job
from proteus_spot.tasks.market.listed_machines import let_go
from proteus_spot.tasks.market.purchases.sending import buy
from proteus_spot.tasks.reports.job_list import job_lines
from proteus_spot.tasks.reports.job_summary import snapshot_of
from tests.support.market_servers import client, credentials, served
from tests.support.task_runtime import BEGIN_S, MARKET, OTHER, T0, TaskRuntime, plain, spec

DAY_S = 86_400
LIMIT_S = 3 * DAY_S
STOPPED = "no market's price was reported for 3 days (PROTEUS_PRICES_MAX_AGE_S): the feed has stopped"


@pytest.fixture
def live(here: TaskRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRuntime]:
    """The world's market behind the real endpoint, asked by the real client, with a job that holds a spot machine."""
    credentials(monkeypatch)
    monkeypatch.setattr(proteus_spot.tasks.market.current_prices, "observe_prices", plain(observe_prices))
    with served(here.market, here.clock, tmp_path / "machines") as endpoint:
        settings = here.runtime.settings.model_copy(update={"prices_max_age_s": LIMIT_S})
        here.runtime = replace(here.runtime, market=client(endpoint.url, attempts=1), settings=settings)
        here.begin(spec(max_vcpus=8))
        yield here


def tick(here: TaskRuntime) -> tuple[Prices, list[Order]]:
    """Observe, decide and carry out, as `tick_job` does."""
    job = spec(max_vcpus=8)
    prices = prices_to_decide_on(opened_markets(JobEngine("job")))
    orders = list(plain(decide)(JobEngine("job"), here.facts(job), prices.by_market, {}, prices.left_out))
    for order in orders:
        if isinstance(order, Acquire):
            plain(buy)(job, JobEngine("job"), order)
        elif isinstance(order, Lapse):
            plain(let_go)("job", [order.allocation_id])
    return prices, orders


def check_replay(here: TaskRuntime) -> None:
    """The journal alone gives the orders that were given."""
    entries = [entry.record for entry in here.store.journals.entries("job")]
    assert [r["left_out"] for r in entries if r["kind"] == "TickDue"], "what was left out is in the journal"
    for number, record in enumerate(entries):
        event = from_record(record)
        if isinstance(event, TickDue):
            orders = replay(entries[:number]).handle(event)
            assert list(orders) == [from_record(one) for one in entries[number + 1 :][: len(orders)]]


def test_a_price_that_has_stood_for_long_is_not_old_while_others_are_told(live: TaskRuntime) -> None:
    live.market.traces = TraceSet(
        {
            MARKET: Trace(np.array([T0]), np.array([20_000])),
            OTHER: Trace(np.array([T0, BEGIN_S + 9 * DAY_S]), np.array([30_000, 31_000])),
        }
    )
    live.clock.at_s = BEGIN_S + 10 * DAY_S
    assert plain(observe_prices)([MARKET]) == Prices({MARKET: 20_000})


def test_nothing_is_bought_on_the_prices_of_a_feed_that_has_stopped(
    live: TaskRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    prices, orders = tick(live)
    assert (prices.left_out, [type(order) for order in orders]) == ({}, [Acquire])
    live.clock.at_s = T0 + LIMIT_S
    assert tick(live)[0].left_out == {}, "the limit itself is not yet too old"
    bought = len(live.facts(spec()))

    live.clock.at_s += 1
    with caplog.at_level(logging.WARNING, "proteus_spot.tasks.market.current_prices"):
        prices, orders = tick(live)
    assert prices == Prices({}, {MARKET: STOPPED})
    assert caplog.messages == [f"nothing is bought in {MARKET}: {STOPPED}"]
    assert isinstance(orders[-1], Wait)
    assert orders[-1].decision.reason.endswith(f"; not weighed: {MARKET}: {STOPPED}")
    assert len(live.facts(spec())) == bought
    check_replay(live)


def _changing(*until_s: int, every_s: int = 900) -> TraceSet:
    """Return prices that change from a week before `BEGIN_S` on, each until its time."""
    traces = {}
    for market, end_s in zip((MARKET, OTHER), until_s, strict=True):
        times_s = np.arange(BEGIN_S - 7 * DAY_S, end_s, every_s)
        traces[market] = Trace(times_s, 20_000 + 10 * (times_s // every_s % 2))
    return TraceSet(traces)


def test_a_feed_that_falls_silent_is_noticed_after_some_hours(here: TaskRuntime) -> None:
    silent = "no market's price was reported for 3 hours, and until then some every half-hour: the feed has stopped"
    here.market.traces = _changing(BEGIN_S + 1, BEGIN_S + 1)
    here.clock.at_s = BEGIN_S + 3 * HOUR_S
    assert plain(observe_prices)([MARKET]).left_out == {}
    here.clock.at_s += 1
    assert plain(observe_prices)([MARKET]) == Prices({}, {MARKET: silent})
    here.clock.at_s = BEGIN_S + 6 * HOUR_S
    assert plain(observe_prices)([MARKET]) == Prices({}, {MARKET: silent})
    here.market.traces = _changing(BEGIN_S + 1, BEGIN_S + 4 * HOUR_S)
    assert plain(observe_prices)([MARKET]).left_out == {}, "the feed reports other markets"


def test_a_feed_of_few_prices_is_not_silent(here: TaskRuntime) -> None:
    here.market.traces = _changing(BEGIN_S + 1, BEGIN_S + 1, every_s=2 * HOUR_S)
    here.clock.at_s = BEGIN_S + 6 * HOUR_S
    assert plain(observe_prices)([MARKET]).left_out == {}


def test_the_list_of_jobs_says_that_the_feed_has_stopped(here: TaskRuntime) -> None:
    here.market.traces = _changing(BEGIN_S + 1, BEGIN_S + 1)
    here.begin(spec())
    here.clock.at_s = BEGIN_S + 6 * HOUR_S
    prices = plain(observe_prices)([MARKET])
    facts = here.facts(spec())
    assert not [
        one for one in plain(decide)(JobEngine("job"), facts, {}, {}, prices.left_out) if isinstance(one, Acquire)
    ]
    (line,) = job_lines(JobStore(here.store, None), [])
    assert "nothing is bought: no market's price was reported for 3 hours" in line.why


def test_a_market_that_tells_no_price_is_left_out_by_itself(live: TaskRuntime) -> None:
    nowhere = Market("c4.large", "us-east-1f")
    prices = plain(observe_prices)([MARKET, nowhere])
    assert prices == Prices({MARKET: 20_000}, {nowhere: "the market reports no price"})


def test_a_market_that_does_not_answer_stops_no_tick(live: TaskRuntime, caplog: pytest.LogCaptureFixture) -> None:
    _, (order,) = tick(live)
    assert isinstance(order, Acquire)
    assert plain(book_ledger)("job").lines == 2
    until_s = BEGIN_S + HOUR_S + 1
    live.market.add_fault(Fault(FaultKind.UNAVAILABLE, operation="price_history", until_s=until_s))
    live.clock.at_s = BEGIN_S + HOUR_S - 100

    prices, orders = tick(live)
    why = "the market did not report its prices (Unavailable)"
    assert prices == Prices({}, {MARKET: why})
    assert [type(one) for one in orders] == [Renew, Wait], "what is held is decided on, by the last price"
    assert f"{MARKET}: {why}" in orders[-1].decision.reason
    assert len([fact for fact in live.facts(spec()) if fact.alive]) == 3
    check_replay(live)

    live.clock.at_s = until_s
    spent = live.store.purchases.spent("job")
    (spot,) = [record.allocation for record in live.store.purchases.allocations("job") if record.allocation.bid_micros]
    booked = plain(book_ledger)("job")
    assert (booked.lines, booked.lacks_prices) == (2, True), "the hours that began meanwhile"
    assert "bids stand for prices: the market did not report any" in caplog.text
    types = read_catalog().at(datetime.fromtimestamp(BEGIN_S, UTC).date(), "us-east-1")
    hour_micros, bid_micros = types["c4.large"].on_demand_micros, spot.bid_micros or 0
    assert live.store.purchases.spent("job") == spent + hour_micros + spot.count * bid_micros
    told = f"no price is known in {MARKET}: 1 hour is booked at the bid, or the planned on-demand price, until it is"
    assert snapshot_of(live.store, "job", until_s).unpriced == told
    assert {row.why for row in cost_rows(store=live.store)} == {told}
    live.clock.at_s += 1
    booked = plain(book_ledger)("job")
    assert (booked.lines, booked.lacks_prices) == (1, False), "corrected"
    assert live.store.purchases.spent("job") == spent + hour_micros + spot.count * 20_000
    assert snapshot_of(live.store, "job", until_s).unpriced == ""


def test_a_job_is_not_opened_on_a_history_that_nobody_kept_up(here: TaskRuntime) -> None:
    job = spec()
    plain(record_job)(job)
    observed_s = BEGIN_S - here.runtime.settings.prices_max_age_s - DAY_S
    points = [PricePoint(MARKET, observed_s - HOUR_S, 20_000)]
    stored = PriceStore(here.runtime.blobs)
    stored.add(points, [MARKET], (observed_s - HOUR_S, observed_s), "test", observed_s)
    with pytest.raises(InputError, match=rf"^market {MARKET}: .* 22 days ago, .* 21 days .*run .*ingest-prices"):
        plain(open_job)(job, JobEngine("job"))
    assert opened_markets(JobEngine("job")) == ()

    seen_s = observed_s + DAY_S  # nothing has changed, and somebody looked
    stored.add([], [MARKET], (observed_s, seen_s), "test", seen_s)
    assert plain(open_job)(job, JobEngine("job")) == 1


def test_a_market_that_was_never_observed_has_no_history(here: TaskRuntime) -> None:
    plain(record_job)(spec())
    with pytest.raises(InputError, match="has no price history"):
        plain(open_job)(spec(), JobEngine("job"))
