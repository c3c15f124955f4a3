"""Script that draws a run of `proteus run`.

``python -m proteus_spot.benchmarks.market.run_picture RUN_DIRECTORY OUT.png``

Four panels over market time: prices with our bids, the footprint, the loss, the dollars. Everything is read from the
run's state database and price file; only sums are computed.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from proteus_spot.bidding.market.model import HOUR_S, EndCause, Market, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import read_prices
from proteus_spot.infra.state.records import AllocationRecord, Job, ObservationKind
from proteus_spot.infra.state.store import Store

_ON_DEMAND = "#555555"
_PALE = "#d0d0d0"
_INCHES = (9.0, 9.6)


def _minutes(at_s: Any, job: Job) -> Any:
    return (np.asarray(at_s, dtype=float) - job.created_at_s) / 60


def _draw_prices(axes: Any, job: Job, records: list[AllocationRecord], traces: TraceSet, ends_s: float) -> None:
    bought = _colours(records)
    for market, trace in traces.items():
        part = trace.between(job.created_at_s, ends_s)
        times = np.append(np.maximum(part.times_s, job.created_at_s), ends_s)
        prices = np.append(part.prices_micros, part.prices_micros[-1]) / MICROS_PER_DOLLAR
        colour = bought.get(market)
        axes.step(
            _minutes(times, job),
            prices,
            where="post",
            color=colour or _PALE,
            lw=1.6 if colour else 0.8,
            zorder=2 if colour else 1,
            label=f"price {market}" if colour else None,
        )
    for record in records:
        held = record.allocation
        if held.bid_micros is None:
            continue
        bid = held.bid_micros / MICROS_PER_DOLLAR
        life = _minutes([held.launched_at_s, record.ended_at_s or ends_s], job)
        axes.plot(life, [bid, bid], color=bought[held.market], ls=(0, (2, 1)), lw=1.2, zorder=3)
        if record.end_cause is EndCause.EVICTED:
            axes.plot(life[1], bid, "x", color="crimson", ms=8, mew=2, zorder=4)
    axes.plot([], [], color=_ON_DEMAND, ls=(0, (2, 1)), lw=1.2, label="our bid")
    axes.plot([], [], "x", color="crimson", ms=8, mew=2, label="eviction")
    axes.plot([], [], color=_PALE, lw=0.8, label="other markets")
    axes.set_yscale("log")
    axes.set_ylim(top=axes.get_ylim()[1] * 4)  # room for the legend
    axes.set_ylabel("$ per instance-hour")
    axes.legend(fontsize=7, ncol=3, loc="upper left", framealpha=0.9)


def _draw_footprint(axes: Any, job: Job, records: list[AllocationRecord], ends_s: float) -> None:
    bought = _colours(records)
    for row, record in enumerate(records):
        held = record.allocation
        start, end = _minutes([held.launched_at_s, record.ended_at_s or ends_s], job)
        taken = record.end_cause is EndCause.EVICTED
        colour = _ON_DEMAND if held.tier is Tier.RELIABLE else bought[held.market]
        axes.barh(row, end - start, left=start, height=0.7, color=colour, alpha=0.85, zorder=2)
        for hour_s in range(held.launched_at_s + HOUR_S, int(record.ended_at_s or ends_s), HOUR_S):
            axes.plot(2 * [_minutes(hour_s, job)], [row - 0.35, row + 0.35], color="white", lw=1.5, zorder=3)
        axes.plot(end, row, "x" if taken else "|", color="crimson" if taken else "black", ms=7, mew=2, zorder=4)
    axes.set_yticks(range(len(records)), [f"{r.allocation.count} x {r.allocation.market}" for r in records], fontsize=7)
    axes.invert_yaxis()
    axes.set_ylabel("footprint")


def _draw_dollars(axes: Any, job: Job, store: Store, records: list[AllocationRecord], ends_s: float) -> None:
    lines = store.purchases.ledger(job.job_id)
    times = _minutes([job.created_at_s, *(line.at_s for line in lines), ends_s], job)
    spent = np.cumsum([0, *(line.amount_micros for line in lines), 0]) / MICROS_PER_DOLLAR
    axes.step(times, spent, where="post", color="tab:green", lw=1.8, label=f"ledger: ${spent[-1]:.4f}")
    types = read_catalog().at(datetime.fromtimestamp(job.created_at_s, UTC).date(), "us-east-1")
    kinds = {record.allocation.market.instance_type for record in records}
    per_vcpu_s = min(types[k].on_demand_micros / types[k].vcpu for k in sorted(kinds)) / HOUR_S / MICROS_PER_DOLLAR
    trained_s = job.ended_at_s or ends_s
    grid = np.linspace(job.created_at_s, ends_s, 400)
    vcpu_s = np.zeros_like(grid)
    for record in records:
        held = record.allocation
        until_s = min(record.ended_at_s or trained_s, trained_s)
        span = np.clip(grid, held.launched_at_s, max(until_s, held.launched_at_s)) - held.launched_at_s
        vcpu_s += span * held.count * types[held.market.instance_type].vcpu
    cost = vcpu_s * per_vcpu_s
    axes.plot(
        _minutes(grid, job), cost, color=_ON_DEMAND, lw=1.2, label=f"the same machines on demand: ${cost[-1]:.4f}"
    )
    axes.set_ylabel("dollars")
    axes.legend(fontsize=8, loc="upper left")


def _draw_loss(axes: Any, job: Job, store: Store) -> None:
    points = [p for p in store.jobs.observations(job.job_id, ObservationKind.PROGRESS) if p.payload["loss"] is not None]
    times = _minutes([p.at_s for p in points], job)
    axes.plot(times, [p.payload["loss"] for p in points], color="tab:blue", lw=1.6)
    axes.set_yscale("log")
    axes.set_ylabel("training loss")
    last = points[-1]
    axes.annotate(
        f"clock {last.payload['clock']}",
        (times[-1], last.payload["loss"]),
        textcoords="offset points",
        xytext=(-6, 10),
        ha="right",
        fontsize=8,
    )


def _colours(records: list[AllocationRecord]) -> dict[Market, Any]:
    markets = sorted({r.allocation.market for r in records if r.allocation.tier is Tier.TRANSIENT})
    return {market: matplotlib.colormaps["tab10"](i % 10) for i, market in enumerate(markets)}


def draw(directory: Path, prices: Path, out: Path) -> None:
    """Draw the one job of a run's directory into `out`."""
    with Store.open(f"sqlite:///{directory / 'state.db'}") as store:
        (job,) = store.jobs.list_jobs()
        records = store.purchases.allocations(job.job_id)
        ends_s = max([record.ended_at_s or 0 for record in records] + [job.ended_at_s or 0])
        figure, panels = plt.subplots(
            4, 1, figsize=_INCHES, sharex=True, height_ratios=[3, 2.4, 1.6, 2], constrained_layout=True
        )
        _draw_prices(panels[0], job, records, read_prices(prices), ends_s)
        _draw_footprint(panels[1], job, records, ends_s)
        _draw_loss(panels[2], job, store)
        _draw_dollars(panels[3], job, store, records, ends_s)
        for axes in panels:
            axes.axvline(_minutes(job.ended_at_s, job), color="black", lw=0.8, ls=":", zorder=0)
            axes.grid(alpha=0.25)
        panels[0].set_title("one training job on a spot market (dotted: the model is trained)", fontsize=10, loc="left")
        panels[-1].set_xlabel("market time since the job was recorded, minutes")
        figure.savefig(out, dpi=100)
        plt.close(figure)


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--prices", type=click.Path(path_type=Path), help="Price file of the run. Default: DIRECTORY/prices.csv.gz."
)
def main(directory: Path, out: Path, prices: Path | None) -> None:
    """Draw the run in DIRECTORY into the file OUT."""
    if not (directory / "state.db").exists():
        raise click.ClickException(f"{directory}: holds no state.db; give the directory of a run")
    try:
        draw(directory, prices or directory / "prices.csv.gz", out)
    except InputError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
