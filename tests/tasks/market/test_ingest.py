"""Price history: fetched once, only what is new, by one run at a time."""

import pytest

from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.storage.price_store import PriceStore
from proteus_spot.tasks.market import ingest
from proteus_spot.tasks.market.ingest import IngestRequest, fetch_prices, markets_of_interest
from tests.support.task_runtime import BEGIN_S, MARKET, OTHER, T0, TaskRuntime, plain, spec

DAYS = 3.0


def test_the_second_fetch_asks_only_for_what_is_new(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    history = here.market.price_history

    def watched(markets, from_s, until_s):
        asked.append((from_s, until_s))
        return history(markets, from_s, until_s)

    monkeypatch.setattr(here.market, "price_history", watched)
    assert plain(fetch_prices)([MARKET, OTHER], DAYS) == 2
    here.clock.at_s += 7200
    assert plain(fetch_prices)([MARKET, OTHER], DAYS) == 0
    assert asked == [(BEGIN_S - int(DAYS * 86_400), BEGIN_S), (BEGIN_S - ingest._OVERLAP_S, BEGIN_S + 7200)]
    assert PriceStore(here.runtime.blobs).read([MARKET], T0, BEGIN_S)[MARKET].price_at(BEGIN_S) == 20_000


def test_a_market_that_is_asked_for_later_gets_its_whole_history(here: TaskRuntime) -> None:
    plain(fetch_prices)([MARKET], DAYS)
    here.clock.at_s += 3600
    assert plain(fetch_prices)([MARKET, OTHER], DAYS) == 1
    assert PriceStore(here.runtime.blobs).observed_until_s(OTHER) == BEGIN_S + 3600


def test_one_run_at_a_time(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    here.store.claims.claim(ingest._CLAIM, "another", 10_000.0)
    monkeypatch.setattr(ingest, "_PATIENCE_S", 0.0)
    with pytest.raises(ProteusError, match="another run"):
        plain(fetch_prices)([MARKET], DAYS)
    assert PriceStore(here.runtime.blobs).segments() == ()


def test_a_run_that_fails_lets_the_next_one_in(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(here.market, "price_history", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            plain(fetch_prices)([MARKET], DAYS)
    assert plain(fetch_prices)([MARKET], DAYS) == 1


def test_the_markets_of_interest_are_those_of_the_open_jobs(here: TaskRuntime) -> None:
    assert markets_of_interest(IngestRequest()) == ()
    here.begin(spec())
    assert markets_of_interest(IngestRequest()) == (MARKET,)
    assert markets_of_interest(IngestRequest(markets=[str(OTHER), str(OTHER)])) == (OTHER,)


def test_a_market_that_is_none_is_refused_by_the_form() -> None:
    with pytest.raises(ValueError, match="not a market"):
        IngestRequest(markets=["c4.large"])
