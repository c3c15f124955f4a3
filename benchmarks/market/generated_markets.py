"""Comparison of the schemes on real prices and on generated ones of the same markets and days.

``python -m proteus_spot.benchmarks.market.backtest --generated 4`` prints the tables, from the files in PROTEUS_TRACES.
"""

from dataclasses import astuple, fields, replace
from pathlib import Path

import numpy as np
from rich.table import Table as RichTable

from proteus_spot.benchmarks.market.backtest_field import FILES, MarketField, Months, midnight_s, real, simulated
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.schemes.scheme_registry import ORACLE
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.forecast import fit_forecast
from proteus_spot.bidding.market.trace_statistics import TraceStatistics, statistics
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import TYPICAL, generate

_RANKED = (
    "standard+checkpoint",
    "standard+agileml",
    "bidbrain+checkpoint",
    "just-above",
    "proteus",
    "best",
    ORACLE,
)
_HOURS = 20


def alike(on: MarketField, months: Months, seed: int) -> MarketField:
    """Return a field with generated prices of the markets and days of `on`, fitted in the same way."""
    from_s, between_s, until_s = (midnight_s(day) for day in (months.fit_from, months.fit_until, months.until))
    on_demand = {market: on.types[market.instance_type].on_demand_micros for market in on.markets}
    vcpus = {name: one.vcpu for name, one in on.types.items()}
    traces = generate(on_demand, from_s, until_s, np.random.default_rng(seed), climate=TYPICAL, vcpus=vcpus)
    foresight = fit_forecast(traces, on.types, from_s, between_s)
    return replace(on, traces=traces, evictions=fit(traces, from_s, between_s), foresight=foresight)


def tables(folder: Path, seeds: int, starts: int, threads: int) -> tuple[RichTable, RichTable]:
    """Return the costs of the schemes on both, and price statistics; means over `seeds`, ± their deviation."""
    costs = RichTable(title=f"cost against on-demand, free machine time; {_HOURS} h, all zones, {starts} starts")
    looks = RichTable(title="statistics of the markets: 10th, 50th and 90th percentile over markets")
    for shown, first in ((costs, "scheme"), (looks, "statistic")):
        for name in ("file", first, "real", "generated"):
            shown.add_column(name, no_wrap=True)
    for months in FILES:
        on = real(folder, months)
        made = [alike(on, months, seed) for seed in range(seeds)]
        name = f"{months.name} ({len(on.markets)})"
        for scheme in _RANKED:
            costs.add_row(name, scheme, *(_costs(each, scheme, starts, threads) for each in ([on], made)))
        window = midnight_s(months.fit_from), midnight_s(months.until)
        looked = [_looks([one.traces for one in which], on, window) for which in ([on], made)]
        for index, each in enumerate(fields(TraceStatistics)):
            looks.add_row(name, each.name, *("  ".join(f"{value:.3f}" for value in rows[:, index]) for rows in looked))
        costs.add_section()
        looks.add_section()
    return costs, looks


def _costs(fields_of: list[MarketField], scheme: str, starts: int, threads: int) -> str:
    costs, frees = [], []
    for on in fields_of:
        outcomes = simulated(on, on.markets, scheme, _HOURS, starts, threads)
        hours = [
            outcomes.machine_hours(by).sum()
            for by in (Outcome.ON_DEMAND_VCPU_S, Outcome.PAID_VCPU_S, Outcome.FREE_VCPU_S)
        ]
        costs.append(outcomes.relative_cost.mean())
        frees.append(hours[-1] / sum(hours))
    spread = f" ± {np.std(costs, ddof=1):.3f}" if len(costs) > 1 else ""
    return f"{np.mean(costs):.3f}{spread}, {np.mean(frees):.2f} free"


def _looks(sets: list[TraceSet], on: MarketField, window: tuple[int, int]) -> np.ndarray:
    """Return the percentiles of each statistic, shape (3, statistics)."""
    rows = [
        astuple(statistics(traces[market], on.types[market.instance_type].on_demand_micros, *window))
        for traces in sets
        for market in on.markets
    ]
    return np.nanpercentile(np.array(rows), (10, 50, 90), axis=0)
