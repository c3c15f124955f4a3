"""Markets on which schemes are compared: real price files, and generated prices."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.bidding.backtest.clairvoyant import bound as clairvoyant
from proteus_spot.bidding.backtest.eviction_arrays import EvictionArrays, pack_table
from proteus_spot.bidding.backtest.price_arrays import Markets, pack
from proteus_spot.bidding.backtest.reference_cluster import TOO_SMALL, Reference, cheapest, draw_starts
from proteus_spot.bidding.backtest.runner import Outcomes
from proteus_spot.bidding.backtest.runner import run as run_jobs
from proteus_spot.bidding.backtest.schemes.scheme_registry import scheme as named
from proteus_spot.bidding.evictions.table import EvictionTable, fit
from proteus_spot.bidding.forecast import Forecast, fit_forecast
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import TYPICAL, generate
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import read_prices

CATALOG = "catalog-us-east-1-2013-2017.csv"


SEED = 0


@dataclass(frozen=True)
class Months:
    """A price file, the days to fit on and those to evaluate on (`until` is excluded), and the published figures.

    `published` is the mean cost of (standard+checkpoint, proteus), 20 h, all zones.
    """

    name: str
    fit_from: date
    fit_until: date
    until: date
    published: tuple[float, float]
    left_out: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return f"us-east-1-{self.name}.csv.gz"

    def asked(self, folder: Path) -> dict[str, Any]:
        """Return the fields of `BacktestSpec` for these months."""
        return {
            "prices": str(folder / self.file),
            "catalog": str(folder / CATALOG),
            "fit_from": self.fit_from.isoformat(),
            "fit_to": (self.fit_until - timedelta(days=1)).isoformat(),
            "evaluate_from": self.fit_until.isoformat(),
            "evaluate_to": (self.until - timedelta(days=1)).isoformat(),
            "left_out": [*TOO_SMALL, *self.left_out],
        }


FILES = (
    Months("2015-spring", date(2015, 3, 11), date(2015, 5, 1), date(2015, 6, 1), (0.199, 0.154)),
    Months("2016-early-summer-m4", date(2016, 5, 6), date(2016, 6, 1), date(2016, 6, 22), (0.195, 0.147)),
    Months(
        "2016-spring",
        date(2016, 2, 26),
        date(2016, 4, 1),
        date(2016, 4, 25),
        (0.162, 0.141),
        (*TOO_SMALL, "cg1.4xlarge"),
    ),
)


@dataclass(frozen=True)
class MarketField:
    """Prices, types, fits and reference on which schemes are compared."""

    traces: TraceSet
    types: dict[str, InstanceType]
    evictions: EvictionTable
    foresight: Forecast | None
    markets: tuple[Market, ...]
    reference: Reference
    from_s: int
    until_s: int

    def packed(self, markets: tuple[Market, ...]) -> tuple[Markets, EvictionArrays]:
        return pack(self.traces, markets, self.types), pack_table(self.evictions, markets, self.foresight)


def midnight_s(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def real(folder: Path, months: Months) -> MarketField:
    traces = read_prices(folder / months.file)
    types = dict(read_catalog(folder / CATALOG).at(months.fit_until, "us-east-1"))
    evictions = fit(traces, midnight_s(months.fit_from), midnight_s(months.fit_until))
    markets = tuple(
        market for market in traces if market.instance_type in types and market.instance_type not in months.left_out
    )
    learnt = TraceSet({market: traces[market] for market in markets})
    foresight = fit_forecast(learnt, types, midnight_s(months.fit_from), midnight_s(months.fit_until))
    reference = cheapest(traces, types)
    return MarketField(
        traces, types, evictions, foresight, markets, reference, midnight_s(months.fit_until), midnight_s(months.until)
    )


def generated() -> MarketField:
    """Return four markets of generated prices, a month to fit on and three weeks to evaluate on."""
    from_s, between_s, until_s = (midnight_s(day) for day in (date(2016, 5, 6), date(2016, 6, 1), date(2016, 6, 22)))
    types = dict(read_catalog().at(date(2016, 6, 1), "us-east-1"))
    markets = tuple(Market("m4.xlarge", f"us-east-1{letter}") for letter in "acde")
    on_demand = {market: types[market.instance_type].on_demand_micros for market in markets}
    vcpus = {name: one.vcpu for name, one in types.items()}
    traces = generate(on_demand, from_s, until_s, np.random.default_rng(SEED), climate=TYPICAL, vcpus=vcpus)
    evictions = fit(traces, from_s, between_s)
    foresight = fit_forecast(traces, types, from_s, between_s)
    return MarketField(traces, types, evictions, foresight, markets, cheapest(traces, types), between_s, until_s)


def simulated(
    on: MarketField, markets: tuple[Market, ...], scheme: str, hours: int, starts: int, threads: int
) -> Outcomes:
    starts_s = draw_starts(np.random.default_rng(SEED), on.from_s, on.until_s, hours, starts)
    packed = on.packed(markets)
    if scheme == clairvoyant.CLAIRVOYANT:
        return clairvoyant.run(packed[0], starts_s, hours, on.reference, threads=threads)
    return run_jobs(*packed, named(scheme), starts_s, hours, on.reference, threads=threads)
