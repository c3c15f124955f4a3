"""The interval between checkpoints that a user asks for: minutes, or by the mean time to eviction in the fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.bidding.economics.elasticity import Checkpointing, mean_time_to_eviction_s
from proteus_spot.bidding.evictions.fixed_bid import eviction_prob
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs, at_interval, open_inputs
from proteus_spot.studies.backtest.backtest_spec import backtest_spec
from proteus_spot.studies.backtest.job_runs import setting_of
from tests.support.backtests import quiet, small_file, small_spec

SCHEMES = ["standard+checkpoint", "bidbrain+checkpoint", "proteus"]


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_file(tmp_path_factory.mktemp("prices") / "small.csv")


@pytest.fixture(scope="module")
def field(prices: Path) -> BacktestInputs:
    return open_inputs(small_spec(prices, schemes=SCHEMES), quiet)


def asked(prices: Path, **fields: Any) -> Any:
    return small_spec(prices, schemes=SCHEMES, **fields)


def test_unasked_all_stays_as_it_is(field: BacktestInputs, prices: Path) -> None:
    spec = asked(prices)
    assert at_interval(field, spec) == (field, spec)


@pytest.mark.parametrize("minutes", ["60", 60, "60.0"])
def test_minutes_are_taken_and_a_checkpoint_takes_as_long_as_before(
    field: BacktestInputs, prices: Path, minutes: str | float
) -> None:
    told, spec = at_interval(field, asked(prices, checkpoint_interval=minutes))
    for name in SCHEMES[:2]:
        setting = setting_of(spec.scheme(name), spec, field.reference, 2)
        assert (setting.checkpoint_s, setting.efficiency_ppm, setting.restart_s) == (3600, 915_000, 300)
    assert setting_of(spec.scheme("proteus"), spec, field.reference, 2).checkpoint_s == 0
    assert told.notes[-1] == "a checkpoint every 60 min, 8.5% of the time"


def test_by_the_mean_time_the_fit_alone_decides(field: BacktestInputs, prices: Path) -> None:
    fit = field.windows.fit
    on_demand = {market: field.types[market.instance_type].on_demand_micros for market in field.markets}
    beta = eviction_prob(field.traces, on_demand, fit.from_s, fit.until_s)
    assert beta is not None
    best = Checkpointing().for_mean_time(mean_time_to_eviction_s(beta))
    told, spec = at_interval(field, asked(prices, checkpoint_interval="mean-time"))
    assert spec.elasticities[1] == best
    assert best.interval_s != Checkpointing().interval_s
    assert f"every {best.interval_s / 60:,.0f} min" in told.notes[-1]
    until_then = replace(field, traces=field.traces.between(fit.from_s, fit.until_s - 1))
    assert at_interval(until_then, asked(prices, checkpoint_interval="mean-time"))[1] == spec


def test_it_goes_with_the_numbers_of_an_elasticity(field: BacktestInputs, prices: Path) -> None:
    records = [{"model": "checkpointing", "restart_s": 30, "overhead": 0.1}, {"model": "agileml", "reliable_count": 1}]
    _, spec = at_interval(field, asked(prices, elasticity=records, checkpoint_interval="15"))
    agileml, checkpointing = spec.elasticities
    assert agileml.reliable_count == 1
    assert (checkpointing.restart_s, checkpointing.interval_s) == (30, 900)
    assert checkpointing.overhead == pytest.approx(0.2)
    assert backtest_spec(**spec.model_dump()) == spec, "what is written of it can be asked for again"


def test_a_market_that_takes_nothing_is_told(field: BacktestInputs, prices: Path) -> None:
    calm = {name: replace(one, on_demand_micros=10**9) for name, one in field.types.items()}
    told, spec = at_interval(replace(field, types=calm), asked(prices, checkpoint_interval="mean-time"))
    assert spec.elasticities[1].interval_s == 24 * 3600
    assert told.notes[-1].endswith("for no bid at the on-demand price was taken in the fit")


@pytest.mark.parametrize("text", ["weekly", "0", "-5", "1441", "nan", "inf", ""])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"^--checkpoint-interval: (.* )?is neither mean-time nor minutes, from above 0"
    ):
        backtest_spec(checkpoint_interval=text)


def test_an_interval_that_leaves_no_time_or_cannot_be_found_is_refused(field: BacktestInputs, prices: Path) -> None:
    dear = replace(field, types={name: replace(one, on_demand_micros=1) for name, one in field.types.items()})
    instant = [{"model": "checkpointing", "overhead": 0}]
    for on, fields, said in (
        (field, {"checkpoint_interval": "5"}, r"5: overhead is 1\.02: .*one takes 306 s\); give other minutes"),
        (dear, {"checkpoint_interval": "mean-time"}, r"mean-time: no market stood at its on-demand price or below"),
        (field, {"checkpoint_interval": "mean-time", "elasticity": instant}, r"mean-time: no best interval"),
    ):
        with pytest.raises(InputError, match=f"^--checkpoint-interval {said}") as refused:
            at_interval(on, asked(prices, **fields))
        assert "\n" not in str(refused.value)
