"""A job under `best`: what it learns when it is opened, and what each tick sees of the markets' recent past."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proteus_spot.tasks.market.job_opening
import proteus_spot.tasks.market.market_features
from proteus_spot.bidding.engine.events import JobOpened, TickDue
from proteus_spot.bidding.engine.journal import from_record, replay
from proteus_spot.bidding.engine.orders import Acquire, Wait
from proteus_spot.bidding.forecast import features_of
from proteus_spot.bidding.forecast.features import LOOKBACK_S
from proteus_spot.bidding.market.model import HOUR_S, Market, PricePoint
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.tasks.market.current_prices import Prices
from proteus_spot.tasks.market.decisions import decide, opened_markets
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import job_model
from proteus_spot.tasks.market.market_features import observe_signals, signals_to_decide_on
from proteus_spot.tasks.market.purchases.sending import buy
from tests.support.forecasts import foresight_of
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, OTHER, T0, TaskRuntime, plain, spec

NOWHERE = Market("c4.large", "us-east-1f")
#: Two weeks of steps: every three hours up, an hour later down.
STEPS_S = np.arange(T0 - 14 * 86_400, T0 + 4 * 86_400, HOUR_S)
STEPS = np.where(np.arange(len(STEPS_S)) % 3, 20_000, 23_000)
MOVING = TraceSet({MARKET: Trace(STEPS_S, STEPS), OTHER: Trace(STEPS_S + 60, STEPS)})
CALM = foresight_of(((0.2, 0.5), (0.1, 0.3), (0.01, 0.02)))


@pytest.fixture
def asked(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[Market], int, int]]:
    """What the world's market is asked for; its prices move, and a job has learnt what it learns."""
    monkeypatch.setattr(proteus_spot.tasks.market.market_features, "observe_signals", plain(observe_signals))
    monkeypatch.setattr(proteus_spot.tasks.market.job_opening, "fit_forecast", lambda *window: CALM)
    here.market.traces = MOVING
    asked: list[tuple[Sequence[Market], int, int]] = []
    real = here.market.price_history

    def price_history(markets: Sequence[Market], from_s: int, until_s: int) -> list[PricePoint]:
        asked.append((tuple(markets), from_s, until_s))
        return real(markets, from_s, until_s)

    monkeypatch.setattr(here.market, "price_history", price_history)
    return asked


def best(**transient: Any) -> Any:
    """The job, under `best`."""
    return spec(**{"policy": "best", "markets": [str(MARKET), str(OTHER)], "allocation_vcpus": None, **transient})


def journal(here: TaskRuntime, kind: type) -> list[Any]:
    records = (entry.record for entry in here.store.journals.entries("job"))
    return [item for item in map(from_record, records) if isinstance(item, kind)]


def test_a_job_learns_of_the_history_that_its_eviction_table_is_fitted_on(here: TaskRuntime) -> None:
    here.market.traces = MOVING
    here.begin(best())
    (event,) = journal(here, JobOpened)
    assert event.foresight is not None
    low = features_of(MOVING, int(STEPS_S[-1]) - HOUR_S)[OTHER].features(ON_DEMAND)
    assert event.foresight.outlook(low, 0)[0] > event.foresight.outlook(low, 4)[0], "the higher bid is the safer one"


def test_a_job_under_another_policy_learns_nothing_and_asks_for_no_signals(here: TaskRuntime, asked: list[Any]) -> None:
    here.begin(spec())
    (event,) = journal(here, JobOpened)
    assert event.foresight is None
    asked.clear()
    assert signals_to_decide_on(JobEngine("job"), Prices({MARKET: 20_000})) == {}
    assert not asked


def test_where_nothing_can_be_learnt_the_job_is_not_opened(here: TaskRuntime) -> None:
    here.market.traces = TraceSet({MARKET: Trace(np.array([T0]), np.array([ON_DEMAND + 1]))})
    with pytest.raises(InputError, match=r"^policy best: the 14 days of stored prices hold no hour .*policy proteus$"):
        here.begin(best(markets=[str(MARKET)]))
    assert opened_markets(JobEngine("job")) == ()


def test_a_tick_asks_the_market_only_for_what_is_not_stored(here: TaskRuntime, asked: list[Any]) -> None:
    here.begin(best())
    here.clock.at_s = BEGIN_S + 5 * HOUR_S
    asked.clear()
    signals = signals_to_decide_on(JobEngine("job"), Prices({MARKET: 1, OTHER: 1}))
    assert asked == [((MARKET, OTHER), BEGIN_S, BEGIN_S + 5 * HOUR_S)]
    assert signals == features_of(here.market.traces, BEGIN_S + 5 * HOUR_S), "as if all had been asked for"


def test_a_store_that_nobody_kept_up_is_older_than_what_is_asked_for(here: TaskRuntime, asked: list[Any]) -> None:
    here.begin(best())
    here.clock.at_s = BEGIN_S + 10 * 86_400
    asked.clear()
    assert signals_to_decide_on(JobEngine("job"), Prices({MARKET: 1})) == features_of(
        TraceSet({MARKET: here.market.traces[MARKET]}), BEGIN_S + 10 * 86_400
    )
    assert asked == [((MARKET,), BEGIN_S + 10 * 86_400 - LOOKBACK_S, BEGIN_S + 10 * 86_400)]


def test_a_market_that_is_not_stored_has_the_signal_of_what_is_told(here: TaskRuntime, asked: list[Any]) -> None:
    here.begin(best(markets=[str(MARKET)]))
    now_s = BEGIN_S + 2 * HOUR_S
    here.clock.at_s = now_s
    signals = signals_to_decide_on(JobEngine("job"), Prices({MARKET: 1, OTHER: 1, NOWHERE: 1}))
    told = here.market.traces.between(BEGIN_S, now_s)
    assert signals == {MARKET: features_of(here.market.traces, now_s)[MARKET], OTHER: features_of(told, now_s)[OTHER]}


def test_a_market_that_does_not_answer_gives_no_signals(
    here: TaskRuntime, asked: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    here.begin(best())
    here.market.add_fault(Fault(FaultKind.UNAVAILABLE, operation="price_history", until_s=BEGIN_S + HOUR_S))
    with caplog.at_level(logging.WARNING, "proteus_spot.tasks.market.market_features"):
        assert signals_to_decide_on(JobEngine("job"), Prices({MARKET: 1})) == {}
    assert "did not report its recent prices" in caplog.messages[-1]
    asked.clear()
    assert signals_to_decide_on(JobEngine("job"), Prices({}, {MARKET: "it did not tell"})) == {}
    assert not asked, "what has no price is not decided on"


def test_a_decision_is_journalled_with_its_signals_and_can_be_made_again(here: TaskRuntime, asked: list[Any]) -> None:
    job = best(max_vcpus=8)
    here.begin(job)
    here.clock.at_s = BEGIN_S + HOUR_S
    prices = here.market.traces.prices_at(here.clock.at_s)
    told = signals_to_decide_on(JobEngine("job"), Prices(prices))
    (order,) = plain(decide)(JobEngine("job"), here.facts(job), prices, {}, {}, told)
    assert isinstance(order, Acquire)
    assert order.count == 4, "all of the cap at once"
    assert journal(here, TickDue)[-1].signals == told
    entries = [entry.record for entry in here.store.journals.entries("job")]
    at = next(number for number, record in enumerate(entries) if record["kind"] == "TickDue")
    assert replay(entries[:at]).handle(from_record(entries[at])) == (order,)
    plain(buy)(job, JobEngine("job"), order)
    (order,) = plain(decide)(JobEngine("job"), here.facts(job), prices, {}, {}, told)
    assert isinstance(order, Wait)


@pytest.mark.parametrize(
    ("given", "vcpus"),
    [
        ({"policy": "best", "max_vcpus": 64}, 64),
        ({"policy": "best", "max_vcpus": 64, "allocation_vcpus": 8}, 8),
        ({"policy": "best", "max_vcpus": 0}, 1),
        ({"policy": "standard", "max_vcpus": 64}, 64),
        ({"policy": "just-above", "max_vcpus": 64}, 4),
        ({"policy": "proteus", "max_vcpus": 64}, 4),
        ({"policy": "proteus", "max_vcpus": 64, "allocation_vcpus": 8}, 8),
    ],
)
def test_an_allocation_is_as_large_as_the_policy_likes_it_unless_told(given: dict[str, Any], vcpus: int) -> None:
    assert job_model(spec(**{"allocation_vcpus": None, **given}), 240).allocation_vcpus == vcpus


@pytest.mark.parametrize(("max_vcpus", "vcpus"), [(3, 3), (5, 4), (7, 4), (8, 8), (64, 8)])
def test_of_a_net_no_more_is_bought_than_its_workers_can_use(tmp_path: Path, max_vcpus: int, vcpus: int) -> None:
    (tmp_path / "mine.py").write_text("from proteus_spot.nets import Net\nclass Mine(Net):\n    workers = 8\n")
    asked = spec(max_vcpus=max_vcpus)
    net = {"app": "mine:Mine", "code": str(tmp_path / "mine.py")}
    model = job_model(asked.model_copy(update={"training": asked.training.model_copy(update=net)}), 240)
    assert (model.tasks, model.task_vcpus, model.max_spot_vcpus) == (8, 1, vcpus)
    (tmp_path / "mine.py").unlink()  # a job that has begun goes on
    gone = asked.model_copy(update={"training": asked.training.model_copy(update=net)})
    assert job_model(gone, 240).max_spot_vcpus == max_vcpus
