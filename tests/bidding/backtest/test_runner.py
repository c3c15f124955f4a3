"""Many jobs: what they are relative to, when they start, and that threads change nothing."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.backtest.eviction_arrays import pack_table
from proteus_spot.bidding.backtest.outcomes import Outcome, summary
from proteus_spot.bidding.backtest.parameters import JobParameters, window_s
from proteus_spot.bidding.backtest.price_arrays import pack
from proteus_spot.bidding.backtest.reference_cluster import Reference, by_zone, cheapest, draw_starts
from proteus_spot.bidding.backtest.runner import Outcomes, run, run_one
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.forecast import fit_forecast
from proteus_spot.bidding.jit import source_digest
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import TYPICAL, generate
from tests.bidding.backtest.cases import TYPES, A, B, C

DAY = 86_400
MARKETS = (B, A, C)
REFERENCE = cheapest(MARKETS, TYPES)


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    on_demand = {market: TYPES[market.instance_type].on_demand_micros for market in MARKETS}
    return TraceSet(generate(on_demand, 0, 8 * DAY, np.random.default_rng(1), climate=TYPICAL))


def outcomes(traces: TraceSet, scheme: str, hours: int = 2, jobs: int = 120, **more: int) -> Outcomes:
    markets = by_zone(MARKETS)["all"]
    table = pack_table(fit(traces, 0, 4 * DAY), markets, fit_forecast(traces, TYPES, 0, 4 * DAY))
    starts_s = draw_starts(np.random.default_rng(0), 4 * DAY, 8 * DAY, hours, jobs)
    return run(pack(traces, markets, TYPES), table, SCHEMES[scheme], starts_s, hours, REFERENCE, **more)


def test_on_demand_costs_and_takes_what_the_reference_does(traces: TraceSet) -> None:
    told = outcomes(traces, "on-demand")
    assert told.relative_cost == pytest.approx(1)
    assert (told.relative_runtime == 1).all()
    assert (told.machine_hours(Outcome.ON_DEMAND_VCPU_S) == 64 * 2).all()
    assert told.finished.all()
    assert not told.evictions.any()


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "on-demand"])
def test_spot_markets_are_cheaper_and_threads_change_nothing(traces: TraceSet, scheme: str) -> None:
    told = outcomes(traces, scheme)
    assert told.relative_cost.mean() < 1
    assert told.finished.all()
    assert (outcomes(traces, scheme, threads=3).rows == told.rows).all()


def test_who_weighs_signals_needs_a_foresight(traces: TraceSet) -> None:
    markets = by_zone(MARKETS)["all"]
    blind = pack_table(fit(traces, 0, 4 * DAY), markets)
    with pytest.raises(ValueError, match="needs a foresight"):
        run(pack(traces, markets, TYPES), blind, SCHEMES["best"], np.array([4 * DAY]), 2, REFERENCE)


def test_checkpoints_take_their_share_of_the_time(traces: TraceSet) -> None:
    undisturbed = outcomes(traces, "standard+checkpoint")
    undisturbed = undisturbed.relative_runtime[undisturbed.evictions == 0]
    assert undisturbed.min() == pytest.approx(1 / 0.83, abs=1e-3)


def test_settings_may_be_changed_for_every_scheme(traces: TraceSet) -> None:
    told = outcomes(traces, "proteus", reliable_count=0)
    assert not told.machine_hours(Outcome.ON_DEMAND_VCPU_S).any()
    with pytest.raises(TypeError):
        outcomes(traces, "proteus", reliable=0)


def test_one_job_tells_every_purchase(traces: TraceSet) -> None:
    markets = by_zone(MARKETS)["all"]
    packed, table = pack(traces, markets, TYPES), pack_table(fit(traces, 0, 4 * DAY), markets)
    scheme = SCHEMES["proteus"]
    setting = scheme.setting(REFERENCE, 20, allocation_vcpus=8)  # 94 allocations of 8 vCPUs do not fit in one look
    row, log = run_one(packed, table, scheme, 4 * DAY, REFERENCE, setting)
    assert len(log) == row[Outcome.PURCHASES] > 64
    assert log[:, 5].sum() == row[Outcome.EVICTIONS]
    assert (log[:, 4] > log[:, 0]).all()
    assert log[:, 4].max() == 4 * DAY + row[Outcome.RUNTIME_S]


def test_the_reference_is_the_cheapest_per_vcpu_without_the_smallest() -> None:
    kinds = {"t1.micro": InstanceType("t1.micro", 1, 1.0, 1)} | TYPES
    assert cheapest((Market("t1.micro", "a"), A, B), kinds) == Reference(TYPES["small"])
    with pytest.raises(ValueError, match="no market"):
        cheapest((Market("t1.micro", "a"),), kinds)


def test_starts_are_drawn_from_what_leaves_a_job_its_window() -> None:
    window = 9 * 3600
    assert window_s(2) == window
    starts_s = draw_starts(np.random.default_rng(0), 100, 102 + window, 2, 1000)
    assert set(starts_s.tolist()) == {100, 101, 102}
    assert (np.diff(starts_s) >= 0).all()
    with pytest.raises(ValueError, match="is given 9 h"):
        draw_starts(np.random.default_rng(0), 100, 99 + window, 2, 1000)


def test_zones_are_taken_alone_and_together() -> None:
    assert by_zone(MARKETS) == {"a": (B, A), "b": (C,), "all": (B, A, C)}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"work_vcpu_s": 0}, "above 0"),
        ({"tick_s": 0}, "above 0"),
        ({"reliable_count": -1}, "negative"),
        ({"efficiency_ppm": 0}, "efficiency"),
        ({"renewal_lead_s": 3600}, "renewal_lead_s"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(changes: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        JobParameters(**{"work_vcpu_s": 1, "window_s": 1, **changes})


def test_a_summary() -> None:
    one = summary(np.arange(101))
    assert (one.mean, one.p10, one.p90) == (50, 10, 90)
    assert one.se == pytest.approx(np.arange(101).std(ddof=1) / np.sqrt(101))
    assert summary([3]).se == 0
    with pytest.raises(ValueError, match="no job"):
        summary([])


def test_a_change_in_any_source_makes_another_version(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "loop.py").write_text("1")
    seen = [source_digest(tmp_path)]
    for name, text in (("loop.py", "2"), ("rules/one.py", ""), ("rules/one.py", "2"), ("rules/two.py", "")):
        (tmp_path / name).write_text(text)
        seen.append(source_digest(tmp_path))
    assert len(set(seen)) == 5
    assert all(0 <= each < 2**63 for each in seen)


# -- on real prices ----------------------------------------------------------------------------------------------------

on_real_prices = pytest.mark.skipif(
    "PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real price files"
)


@cache
def months(index: int) -> Any:
    """Return one of the three price files, learnt from."""
    from proteus_spot.benchmarks.market.backtest_field import FILES, real

    return real(Path(os.environ["PROTEUS_TRACES"]), FILES[index])


@pytest.mark.slow
@on_real_prices
@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_published_schemes_cost_what_was_published(index: int) -> None:
    from proteus_spot.benchmarks.market.backtest_field import FILES, simulated

    on = months(index)
    for scheme, published, runtime in zip(
        ("standard+checkpoint", "proteus"), FILES[index].published, (1.21, 0.72), strict=True
    ):
        told = simulated(on, on.markets, scheme, hours=20, starts=1000, threads=2)
        assert told.relative_cost.mean() == pytest.approx(published, abs=0.010)
        assert told.relative_runtime.mean() == pytest.approx(runtime, abs=0.03)
        assert told.finished.all()


@pytest.mark.slow
@on_real_prices
@pytest.mark.parametrize(("index", "found_before"), [(0, 0.127), (1, 0.105), (2, 0.127)])
def test_best_costs_less_than_what_was_found_before(index: int, found_before: float) -> None:
    from proteus_spot.benchmarks.market.backtest_field import simulated

    on = months(index)
    told = simulated(on, on.markets, "best", hours=20, starts=1000, threads=2)
    assert told.relative_cost.mean() < found_before
    assert told.relative_runtime.mean() < 0.75
    assert np.percentile(told.relative_runtime, 90) < 1
    assert told.finished.all()


@pytest.mark.slow
@on_real_prices
@pytest.mark.parametrize("index", [0, 1, 2])
def test_best_is_nowhere_worse_than_proteus(index: int) -> None:
    """In each zone and in all, for short jobs and long ones, by more than the standard error of so few starts."""
    from proteus_spot.benchmarks.market.backtest_field import simulated

    on = months(index)
    worse = []
    for zone, markets in by_zone(on.markets).items():
        for hours, starts in ((2, 300), (20, 100)):
            proteus, best = (
                summary(simulated(on, markets, scheme, hours, starts, threads=2).relative_cost)
                for scheme in ("proteus", "best")
            )
            if best.mean > proteus.mean + proteus.se:
                worse.append((zone, hours, best.mean, proteus.mean))
    assert not worse
