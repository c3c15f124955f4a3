"""The markets and applications on which sweeps are compared: real prices and recorded trials, or generated ones."""

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np

from proteus_spot.benchmarks.market.backtest_field import CATALOG, FILES, midnight_s
from proteus_spot.benchmarks.papers.sweeps.records import read_record
from proteus_spot.benchmarks.papers.sweeps.simulation.generated_curves import generate_trials
from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import SweepPrices, sweep_prices
from proteus_spot.bidding.evictions.base import as_table
from proteus_spot.bidding.evictions.fit_capacity import Band, hazard_per_s, of_bands
from proteus_spot.bidding.evictions.table import EvictionTable, fit
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import TYPICAL, generate
from proteus_spot.bidding.tuning.provisioning.bids import LEAST_DELTA_MICROS, MOST_DELTA_MICROS
from proteus_spot.infra.market_data.capacity_files import read_advisor
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import read_prices

#: Six types of 2 to 16 vCPUs, as the paper's pool: two of 2, two of 4, one of 8 and one of 16, in every zone.
TYPES = ("m3.large", "r3.large", "m1.xlarge", "d2.xlarge", "d2.2xlarge", "m4.4xlarge")
#: A market is rough if so many of the bids that are drawn in it were evicted within the hour, in the fitted weeks.
ROUGH = 0.1
#: The months whose file has these types.
MONTHS = FILES[2]
#: The latest start of a sweep leaves so much of the prices to it.
LEAVES_S = 6 * DAY_S
SEED = 0
#: What the median trial of an application takes on 2 vCPUs: recorded seconds are stretched to it.
TRIAL_HOURS = 6.0
#: Where the recorded trials are, one file an application.
CURVES = Path(__file__).with_name("curves")
_ADVISOR = Path("advisor") / "spot-advisor-2022-01.json.gz"


@dataclass(frozen=True)
class SweepField:
    """Markets to sweep in.

    Attributes
    ----------
    prices : of the evaluated weeks.
    table : fitted on the weeks before, none shared.
    bands : shares of machines taken in a month, by market, where a bid decides nothing.
    fit_from_s : the prices of [fit_from_s, prices.from_s) were fitted.
    traces : prices of all these weeks.
    note : where the prices come from.
    """

    prices: SweepPrices
    table: EvictionTable
    bands: dict[Market, Band]
    fit_from_s: int
    traces: TraceSet
    note: str

    def starts(self, count: int) -> list[int]:
        """Return start times of sweeps, evenly over the evaluated weeks: each a draw from an equal part of them."""
        rng = np.random.default_rng(SEED)
        span_s = (self.prices.until_s - LEAVES_S - self.prices.from_s) / count
        return [self.prices.from_s + int((part + rng.random()) * span_s) for part in range(count)]

    @property
    def capacity_table(self) -> EvictionTable:
        """The bands as the table of a predictor."""
        return as_table(of_bands(self.bands))

    @property
    def rates_per_s(self) -> dict[Market, float]:
        """Evictions of a machine per second, by market, where a bid decides nothing."""
        return {market: hazard_per_s(band.share()) for market, band in self.bands.items()}


def sweep_field(folder: Path | None, *, rough: bool = False) -> SweepField:
    """Return the real markets of the price files in `folder`, or generated ones of the same days.

    Parameters
    ----------
    rough : the markets of any type that are rough, in place of those of `TYPES`; where none is, the roughest third.
    """
    from_s, between_s, until_s = (midnight_s(day) for day in (MONTHS.fit_from, MONTHS.fit_until, MONTHS.until))
    day = date(2016, 4, 1)
    if folder is not None:
        types = dict(read_catalog(folder / CATALOG).at(day, "us-east-1"))
        read = read_prices(folder / MONTHS.file)
        sold = tuple(one for one in read if one.instance_type in types and one.instance_type not in MONTHS.left_out)
        note = f"real prices, {MONTHS.file}"
    else:
        types = dict(read_catalog().at(day, "us-east-1"))
        names = [name for name in TYPES if name in types] or sorted(types)[: len(TYPES)]
        sold = tuple(Market(name, f"us-east-1{letter}") for name in names for letter in "abc")
        on_demand = {market: types[market.instance_type].on_demand_micros for market in sold}
        vcpus = {name: one.vcpu for name, one in types.items()}
        made = generate(on_demand, from_s, until_s, np.random.default_rng(SEED), climate=TYPICAL, vcpus=vcpus)
        read, note = TraceSet(made), "generated prices; PROTEUS_TRACES names no real ones"
    table = fit(TraceSet({market: read[market] for market in sold}), from_s, between_s)
    markets = _rough(table, sold) if rough else _of_types(sold)
    traces = TraceSet({market: read[market] for market in markets})
    kinds = {name: types[name] for name in sorted({market.instance_type for market in markets})}
    prices = sweep_prices(traces, markets, kinds, between_s, until_s)
    bands = _bands(folder, markets)
    return SweepField(prices, table, bands, from_s, traces, note)


def _of_types(sold: tuple[Market, ...]) -> tuple[Market, ...]:
    return tuple(market for market in sold if market.instance_type in TYPES) or sold


def _rough(table: EvictionTable, sold: tuple[Market, ...]) -> tuple[Market, ...]:
    shares = {market: roughness(table, market) for market in sold}
    roughest = sorted(sold, key=lambda market: (-shares[market], market))[: -(-len(sold) // 3)]
    return tuple(market for market in sold if shares[market] >= ROUGH) or tuple(sorted(roughest))


def roughness(table: EvictionTable, market: Market) -> float:
    """Return the share of the bids drawn in a market that were evicted within the hour."""
    deltas = np.linspace(LEAST_DELTA_MICROS, MOST_DELTA_MICROS, 200).astype(np.int64)
    return float(np.mean([table.of_bid(market, int(delta))[0] for delta in deltas]))


def _bands(folder: Path | None, markets: tuple[Market, ...]) -> dict[Market, Band]:
    """Return the advisor's band of each market's type; where it has none, the widest one with an end."""
    usual = Band(0.15, 0.2)
    if folder is None or not (folder / _ADVISOR).exists():
        return dict.fromkeys(markets, usual)
    by_type = read_advisor(folder / _ADVISOR)["us-east-1"]
    return {market: by_type.get(market.instance_type, usual) for market in markets}


def applications(folder: Path = CURVES, hours: float | None = TRIAL_HOURS) -> tuple[list[RecordedTrials], str]:
    """Return the recorded applications, their steps stretched so that the median trial takes `hours`, and a note.

    With `hours` None their steps are as they were recorded.
    Without records six generated ones take their place.
    """
    files = sorted(folder.glob("*.npz"))
    if files:
        records, note = [read_record(file) for file in files], "recorded trials"
    else:
        records, note = [generate_trials(seed) for seed in range(6)], "generated trials"
    if hours is None:
        return records, note
    return [stretched(record, hours) for record in records], f"{note}, {hours:g} h for the median one on 2 vCPUs"


def stretched(record: RecordedTrials, hours: float) -> RecordedTrials:
    """Return the record with step times multiplied so that its median trial takes `hours` on 2 vCPUs."""
    on_two = record.seconds_per_step(np.array([2], dtype=np.int64))[:, 0] * record.steps
    factor = hours * HOUR_S / float(np.median(on_two))
    return replace(record, step_s=record.step_s * factor)


def wholly_divided(record: RecordedTrials) -> RecordedTrials:
    """Return the record with steps that vCPUs divide wholly, as the matrix M begins; on 2 vCPUs they are as long."""
    on_two = record.seconds_per_step(np.array([2], dtype=np.int64))
    step_s = np.hstack([2 * on_two, on_two])
    return replace(record, vcpus=np.array([1, 2], dtype=np.int64), step_s=step_s, step_cov=np.zeros_like(step_s))
