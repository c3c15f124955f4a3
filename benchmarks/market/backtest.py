"""The batch simulator: how many jobs a second, and (as a script) the published schemes on real prices.

``python -m benchmarks.market.backtest`` prints the table, from the price files and the catalogue that PROTEUS_TRACES names.
"""

import os
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import process_time
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.figure import Figure, figure, seconds
from benchmarks.market.backtest_workload import read_and_fit, whole_table
from bidding.backtest.clairvoyant import bound as clairvoyant
from bidding.backtest.eviction_arrays import Table, pack_table
from bidding.backtest.outcomes import Outcome
from bidding.backtest.price_arrays import Markets, pack
from bidding.backtest.reference_cluster import TOO_SMALL, Reference, by_zone, cheapest, draw_starts
from bidding.backtest.replay.engine_replay import run_by_engine
from bidding.backtest.runner import Outcomes, run_one
from bidding.backtest.runner import run as run_jobs
from bidding.backtest.schemes.registry import ORACLE, SCHEMES
from bidding.backtest.schemes.registry import scheme as named
from bidding.backtest.summary import summary
from bidding.evictions.table import EvictionTable, fit
from bidding.forecast import Foresight, fit_foresight
from bidding.market.model import InstanceType, Market
from bidding.market.traces import TraceSet
from bidding.synthetic.renewal_market import TYPICAL, generate
from infra.market_data.price_files import read_catalog, read_prices

_CATALOG = "catalog-us-east-1-2013-2017.csv"
_ROUNDS = 5
_SEED = 0
_STARTS = 1000

#: At least so many jobs a second of so many hours are asked for: one thread, four markets, after compilation.
_ASKED = {2: 10_000, 20: 1_500}


@dataclass(frozen=True)
class Months:
    """A price file, the days to fit on and those to evaluate on (the last one is left out), and what was published.

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
        """Return what `proteus backtest` is asked for these months."""
        return {
            "prices": str(folder / self.file),
            "catalog": str(folder / _CATALOG),
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
class Field:
    """What schemes are compared on."""

    traces: TraceSet
    types: dict[str, InstanceType]
    evictions: EvictionTable
    foresight: Foresight | None
    markets: tuple[Market, ...]
    reference: Reference
    from_s: int
    until_s: int

    def packed(self, markets: tuple[Market, ...]) -> tuple[Markets, Table]:
        return pack(self.traces, markets, self.types), pack_table(self.evictions, markets, self.foresight)


def midnight_s(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def real(folder: Path, months: Months) -> Field:
    traces = read_prices(folder / months.file)
    types = dict(read_catalog(folder / _CATALOG).at(months.fit_until))
    evictions = fit(traces, midnight_s(months.fit_from), midnight_s(months.fit_until))
    markets = tuple(
        market for market in traces if market.instance_type in types and market.instance_type not in months.left_out
    )
    learnt = TraceSet({market: traces[market] for market in markets})
    foresight = fit_foresight(learnt, types, midnight_s(months.fit_from), midnight_s(months.fit_until))
    reference = cheapest(traces, types)
    return Field(
        traces, types, evictions, foresight, markets, reference, midnight_s(months.fit_until), midnight_s(months.until)
    )


def generated() -> Field:
    """Return four markets of generated prices, a month to fit on and three weeks to evaluate on."""
    from_s, between_s, until_s = (midnight_s(day) for day in (date(2016, 5, 6), date(2016, 6, 1), date(2016, 6, 22)))
    types = dict(read_catalog().at(date(2016, 6, 1)))
    markets = tuple(Market("m4.xlarge", f"us-east-1{letter}") for letter in "acde")
    on_demand = {market: types[market.instance_type].on_demand_micros for market in markets}
    vcpus = {name: one.vcpu for name, one in types.items()}
    traces = generate(on_demand, from_s, until_s, np.random.default_rng(_SEED), climate=TYPICAL, vcpus=vcpus)
    evictions = fit(traces, from_s, between_s)
    foresight = fit_foresight(traces, types, from_s, between_s)
    return Field(traces, types, evictions, foresight, markets, cheapest(traces, types), between_s, until_s)


def simulated(on: Field, markets: tuple[Market, ...], scheme: str, hours: int, starts: int, threads: int) -> Outcomes:
    starts_s = draw_starts(np.random.default_rng(_SEED), on.from_s, on.until_s, hours, starts)
    packed = on.packed(markets)
    if scheme == clairvoyant.CLAIRVOYANT:
        return clairvoyant.run(packed[0], starts_s, hours, on.reference, threads=threads)
    return run_jobs(*packed, named(scheme), starts_s, hours, on.reference, threads=threads)


def _folder() -> Path | None:
    named = os.environ.get("PROTEUS_TRACES")
    return Path(named) if named and (Path(named) / _CATALOG).exists() else None


def run(scratch: Path) -> list[Figure]:
    """Measure, but for the whole table on one thread."""
    folder = _folder()
    on = real(folder, FILES[1]) if folder else generated()
    note = "real prices, 4 markets" if folder else "generated prices, 4 markets; PROTEUS_TRACES names no real ones"
    figures = []
    packed = on.packed(on.markets)
    for hours, asked in _ASKED.items():
        jobs = asked // 2
        starts_s = draw_starts(np.random.default_rng(_SEED), on.from_s, on.until_s, hours, jobs)

        def work(starts_s=starts_s, hours=hours):
            run_jobs(*packed, SCHEMES["proteus"], starts_s, hours, on.reference)

        work()
        began_s = process_time()
        ours = [jobs / seconds(work) for _ in range(_ROUNDS)]
        busy = f"{note}; {jobs * _ROUNDS / (process_time() - began_s):,.0f} in a second of processor time"
        what = f"{hours}-hour jobs under proteus, one thread"
        figures.append(figure("backtest", what, "jobs/s", ours, [float(asked)], "the least asked for", busy))
    figures += [_beside_the_engine(on, scheme, note) for scheme in ("proteus", "best")]
    asked = FILES[2].asked(folder) if folder else {}
    told = f"real prices, {FILES[2].file}" if folder else "generated prices"
    return [*figures, *read_and_fit(scratch), whole_table(told, **asked)]


def _beside_the_engine(on: Field, scheme: str, note: str) -> Figure:
    """Measure the same 20-hour job through the compiled driver and through the live engine."""
    (start_s,) = draw_starts(np.random.default_rng(_SEED), on.from_s, on.until_s, 20, 1)
    setting = SCHEMES[scheme].setting(on.reference, 20)
    packed = on.packed(on.markets)

    def compiled() -> None:
        run_one(*packed, SCHEMES[scheme], int(start_s), on.reference, setting)

    def engine() -> None:
        known = (on.traces, on.markets, on.types, on.evictions, on.foresight)
        run_by_engine(*known, SCHEMES[scheme], int(start_s), on.reference, setting)

    compiled()
    engine()
    ours = [seconds(compiled) * 1000 for _ in range(_ROUNDS)]
    theirs = [seconds(engine) * 1000 for _ in range(3)]
    return figure("backtest", f"one 20-hour job under {scheme}", "ms", ours, theirs, "through the live engine", note)


#: The rows of the table; the last two know the prices to come.
_COMPARED = (
    "standard+checkpoint",
    "standard+agileml",
    "bidbrain+checkpoint",
    "proteus",
    "best",
    "just-above",
    "fixed-delta:0.01",
    ORACLE,
    clairvoyant.CLAIRVOYANT,
)

_COLUMNS = (
    "file",
    "zone",
    "h",
    "scheme",
    "cost",
    "se",
    "p10",
    "p90",
    "published",
    "run time",
    "p90",
    "free",
    "evicted",
)


def table(folder: Path, starts: int, threads: int) -> RichTable:
    """Return what the schemes make of each file, zone and length, beside what was published."""
    title = f"cost and run time against on-demand, share of free machine time, evictions a job; {starts} starts each"
    shown = RichTable(title=title, title_justify="left")
    for name in _COLUMNS:
        shown.add_column(name, justify="left" if name in ("file", "zone", "scheme") else "right", no_wrap=True)
    for months in FILES:
        on = real(folder, months)
        published = dict(zip(("standard+checkpoint", "proteus"), months.published, strict=True))
        name = f"{months.name} ({len(on.markets)})"
        for zone, markets in by_zone(on.markets).items():
            for hours in (20, 2):
                for scheme in _COMPARED:
                    outcomes = simulated(on, markets, scheme, hours, starts, threads)
                    beside = published.get(scheme) if (zone, hours) == ("all", 20) else None
                    shown.add_row(name, zone, str(hours), scheme, *_cells(outcomes, beside))
        shown.add_section()
    return shown


def _cells(outcomes: Outcomes, beside: float | None) -> list[str]:
    cost, runtime = summary(outcomes.relative_cost), summary(outcomes.relative_runtime)
    on_demand, paid, free = (
        outcomes.machine_hours(by).sum() for by in (Outcome.ON_DEMAND_VCPU_S, Outcome.PAID_VCPU_S, Outcome.FREE_VCPU_S)
    )
    given_up = len(outcomes.rows) - outcomes.finished.sum()
    return [
        *(f"{each:.4f}" for each in (cost.mean, cost.se, cost.p10, cost.p90)),
        "" if beside is None else f"{beside:.3f}",
        f"{runtime.mean:.3f}" + (f" ({given_up} not done)" if given_up else ""),
        f"{runtime.p90:.3f}",
        f"{free / (on_demand + paid + free):.2f}",
        f"{outcomes.evictions.mean():.2f}",
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--starts", default=_STARTS, show_default=True, help="Jobs for each row.")
@click.option("--threads", default=os.cpu_count() or 1, show_default=True)
@click.option(
    "--generated",
    metavar="SEEDS",
    type=click.IntRange(1),
    help="Compare the files with generated markets of so many seeds instead.",
)
def main(starts: int, threads: int, generated: int | None) -> None:
    """Print the table, and how many jobs a second one thread simulates."""
    console = Console()
    console = console if console.is_terminal else Console(width=175)
    folder = _folder()
    if folder is None:
        raise click.UsageError(f"PROTEUS_TRACES names no folder with {_CATALOG} and its price files")
    if generated is not None:
        from benchmarks.market.generated_markets import tables  # it stands on this module

        for shown in tables(folder, generated, starts, threads):
            console.print(shown)
        return
    took_s = seconds(lambda: console.print(table(folder, starts, threads)))
    console.print(f"the table took {took_s:.1f} s on {threads} threads, reading and fitting included")
    for one in run(folder):
        low, high = one.ours_spread
        console.print(
            f"{one.what}: {one.ours:,.4g} {one.unit} ({low:,.4g} to {high:,.4g}), {one.beside_is} {one.beside:,.0f}; "
            f"{one.note}; load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
