"""The tables of a job's report."""

from types import SimpleNamespace
from typing import Any, cast

from proteus_spot.bidding.facts.learning import known_of
from proteus_spot.bidding.facts.records import Life, Rebalance
from proteus_spot.bidding.market.model import Market
from proteus_spot.reports.pages.page_tables import about_tables, market_table
from tests.support.market_facts import KeptFacts


def test_a_result_table_is_as_short_for_many_clocks_as_for_one() -> None:
    def rows(clocks: int) -> int:
        series = [[clock, 1, 2, 3] for clock in range(clocks)]
        result = {"clocks": clocks, "memory_by_clock": series, "anything_by_clock": series, "losses": series}
        job = SimpleNamespace(
            result=result, spec={}, state="finished", created_at_s=0, ended_at_s=None, failure=None, stop_by=None
        )
        return len(about_tables(cast(Any, SimpleNamespace(job=job)))[1].rows)

    assert rows(3500) == rows(1) < 10


def test_the_table_of_markets_says_to_how_many_a_rebalance_was_recommended_and_by_whom() -> None:
    market, now_s = Market("c5.large", "us-east-1a"), 10 * 3600
    life = Life(market, now_s - 7200, now_s - 5000, taken=True, instance_id="i-1")
    found = [Rebalance(now_s - 5600, market, "i-1"), Rebalance(now_s - 60, market, "i-2")]
    (table,) = market_table(known_of(KeptFacts(lives=[life], rebalances=found), [market], now_s).values())
    assert table.columns[-2:] == ("rebalance recommended within the hour", "taken within an hour of one")
    assert table.rows[0][-2:] == ("1, from the instance metadata", "100%")
