"""Benchmark `backtest`: simulated jobs per second; as a script, the published schemes on real prices.

``python -m proteus_spot.benchmarks.market.backtest`` prints the table, from the price files and the catalogue in
PROTEUS_TRACES.
"""

import os
from functools import partial
from pathlib import Path
from time import process_time

import click
import numpy as np
from rich.table import Table as RichTable

from proteus_spot.benchmarks.figure import Figure, figure, seconds
from proteus_spot.benchmarks.market.backtest_field import CATALOG, FILES, SEED, MarketField, generated, real, simulated
from proteus_spot.benchmarks.market.backtest_workload import read_and_fit, whole_table
from proteus_spot.bidding.backtest.clairvoyant import bound as clairvoyant
from proteus_spot.bidding.backtest.outcomes import Outcome, summary
from proteus_spot.bidding.backtest.reference_cluster import by_zone, draw_starts
from proteus_spot.bidding.backtest.replay.engine_replay import run_by_engine
from proteus_spot.bidding.backtest.runner import Outcomes, run_one
from proteus_spot.bidding.backtest.runner import run as run_jobs
from proteus_spot.bidding.backtest.schemes.scheme_registry import ORACLE, SCHEMES
from proteus_spot.flows.terminal.tables import output_console

_ROUNDS = 5
_STARTS = 1000

#: {hours of a job: required jobs per second} with one thread, four markets, after compilation.
_ASKED = {2: 10_000, 20: 1_500}


def _folder() -> Path | None:
    named = os.environ.get("PROTEUS_TRACES")
    return Path(named) if named and (Path(named) / CATALOG).exists() else None


def run(scratch: Path) -> list[Figure]:
    """Measure on one thread, except for the full table."""
    folder = _folder()
    on = real(folder, FILES[1]) if folder else generated()
    note = "real prices, 4 markets" if folder else "generated prices, 4 markets; PROTEUS_TRACES names no real ones"
    figures = []
    packed = on.packed(on.markets)
    for hours, asked in _ASKED.items():
        jobs = asked // 2
        starts_s = draw_starts(np.random.default_rng(SEED), on.from_s, on.until_s, hours, jobs)

        work = partial(run_jobs, *packed, SCHEMES["proteus"], starts_s, hours, on.reference)
        work()
        began_s = process_time()
        ours = [jobs / seconds(work) for _ in range(_ROUNDS)]
        busy = f"{note}; {jobs * _ROUNDS / (process_time() - began_s):,.0f} in a second of processor time"
        what = f"{hours}-hour jobs under proteus, one thread"
        figures.append(figure("backtest", what, "jobs/s", ours, [float(asked)], "the least asked for", busy))
    figures += [_beside_the_engine(on, scheme, note) for scheme in ("proteus", "best")]
    window = FILES[2].asked(folder) if folder else {}
    source = f"real prices, {FILES[2].file}" if folder else "generated prices"
    return [*figures, *read_and_fit(scratch), whole_table(source, **window)]


def _beside_the_engine(on: MarketField, scheme: str, note: str) -> Figure:
    """Measure the same 20-hour job through the compiled driver and through the live engine."""
    (start_s,) = draw_starts(np.random.default_rng(SEED), on.from_s, on.until_s, 20, 1)
    setting = SCHEMES[scheme].setting(on.reference, 20)
    packed = on.packed(on.markets)

    def compiled() -> None:
        run_one(*packed, SCHEMES[scheme], int(start_s), on.reference, setting)

    def engine() -> None:
        inputs = (on.traces, on.markets, on.types, on.evictions, on.foresight)
        run_by_engine(*inputs, SCHEMES[scheme], int(start_s), on.reference, setting)

    compiled()
    engine()
    ours = [seconds(compiled) * 1000 for _ in range(_ROUNDS)]
    theirs = [seconds(engine) * 1000 for _ in range(3)]
    return figure("backtest", f"one 20-hour job under {scheme}", "ms", ours, theirs, "through the live engine", note)


#: The rows of the table; the last two know future prices.
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
    """Return the results of the schemes for each file, zone and length, beside the published ones."""
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
    help="Compare the files with generated markets of N seeds instead.",
)
def main(starts: int, threads: int, generated: int | None) -> None:
    """Print the table, and the number of jobs per second that one thread simulates."""
    console = output_console()
    folder = _folder()
    if folder is None:
        raise click.UsageError(f"PROTEUS_TRACES names no folder with {CATALOG} and its price files")
    if generated is not None:
        from proteus_spot.benchmarks.market.generated_markets import tables  # it stands on this module

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
