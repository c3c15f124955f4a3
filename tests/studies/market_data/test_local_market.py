"""The generated market of `proteus run`: what it shows, whatever the seed and the policy."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from proteus_spot.bidding.backtest.reference_cluster import cheapest
from proteus_spot.bidding.backtest.replay.engine_replay import run_by_engine
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES
from proteus_spot.bidding.engine.events import NoticeSeen
from proteus_spot.bidding.engine.orders import Lapse, Renew
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.forecast import fit_forecast
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import read_prices
from proteus_spot.studies.market_data.local_market import generated_market, write_generated

_VCPUS = 8


@pytest.mark.parametrize("seed", range(6))
def test_two_hours_have_an_hours_end_that_is_decided_and_an_eviction(seed: int, tmp_path: Path) -> None:
    market = generated_market(tmp_path / "prices.csv.gz", (), None, 14.0)
    write_generated(market, None, seed, 2.0)
    traces = read_prices(market.path)
    start_s = market.start_s
    types = read_catalog(None).at(datetime.fromtimestamp(start_s, UTC).date(), "us-east-1")
    rises = [traces[each].first_above(types[each.instance_type].on_demand_micros, start_s) for each in market.markets]
    assert 68 <= (min(rise for rise in rises if rise) - start_s) / 60 <= 80

    reference = cheapest(market.markets, types, _VCPUS)
    evictions = fit(traces, traces.first_s, start_s)
    foresight = fit_forecast(traces, types, traces.first_s, start_s)
    for name in ("best", "proteus"):
        scheme = SCHEMES[name]
        changes = {"max_spot_vcpus": _VCPUS, "reliable_count": 1, "reliable_vcpus": 2, "reliable_works": 1}
        if name == "proteus":
            changes["allocation_vcpus"] = 4
        setting = scheme.setting(reference, 3, window_s=2 * HOUR_S, **changes)
        told = run_by_engine(traces, market.markets, types, evictions, foresight, scheme, start_s, reference, setting)
        said = [type(entry) for entry in told.journal]
        assert Renew in said or Lapse in said, name
        assert NoticeSeen in said, name
        assert told.journal[-1].at_s == start_s + 2 * HOUR_S, "the job was too large to be done before"  # type: ignore[union-attr]


def test_the_same_seed_writes_the_same_file(tmp_path: Path) -> None:
    written = []
    for name in ("a", "b", "c"):
        market = generated_market(tmp_path / name / "prices.csv.gz", (), None, 14.0)
        market.path.parent.mkdir()
        write_generated(market, None, 3 if name == "c" else 2, 1.0)
        written.append(read_prices(market.path))
    assert written[0] == written[1] != written[2]
