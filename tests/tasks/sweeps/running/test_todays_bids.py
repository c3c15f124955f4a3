"""A sweep on EC2 bids nothing: its limit is the price on demand, which is EC2's own, and is not sent."""

import pytest

from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.studies.market_data.predictors import sweep_predictors
from proteus_spot.tasks.market.job_opening import priced
from proteus_spot.tasks.market.purchases.requests import trial_request
from proteus_spot.tasks.sweeps.running.trial_offers import offers_at
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, OTHER, T0, TaskRuntime


@pytest.mark.parametrize("today", [False, True])
def test_the_limit_of_today_is_the_price_on_demand(here: TaskRuntime, today: bool) -> None:
    traces = here.market.traces
    types = priced([MARKET, OTHER], BEGIN_S)
    predictor = sweep_predictors("none", traces, TimeWindow(T0, BEGIN_S))
    prices = {MARKET: 20_000, OTHER: 2 * types[OTHER.instance_type].on_demand_micros}
    offers = offers_at(prices, traces, types, predictor, 0, 0, BEGIN_S, today)
    assert (offers[MARKET].bid_micros == ON_DEMAND) is today
    assert offers[MARKET].bid_micros > 20_000
    assert offers[OTHER].bid_micros == prices[OTHER], "what is dearer than on demand is not bought"


@pytest.mark.parametrize(
    ("is_aws", "bid_micros", "no_limit"),
    [(True, ON_DEMAND, True), (True, ON_DEMAND - 1, False), (False, ON_DEMAND, False), (True, None, False)],
)
def test_no_maximum_price_is_sent_to_ec2(
    here: TaskRuntime, is_aws: bool, bid_micros: int | None, no_limit: bool
) -> None:
    if is_aws:
        here.use(ec2_endpoint_url=None)
    request = trial_request("sweep", 0, "sweep-0-1", MARKET, token="token", bid_micros=bid_micros)
    assert (request.no_limit, request.bid_micros) == (no_limit, bid_micros)
