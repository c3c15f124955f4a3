"""What is known of markets by the state databases that a user means, for the verb `proteus market` and the report."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proteus_spot.bidding.engine.events import JobOpened, TickDue
from proteus_spot.bidding.engine.journal import from_record
from proteus_spot.bidding.facts.known import SHOWN_H, MarketKnown
from proteus_spot.bidding.facts.learning import REMEMBERED_S, MarketPrices, known_of
from proteus_spot.bidding.facts.rates import TypeSpeed, speeds_by_application
from proteus_spot.bidding.facts.records import AdvisorBand
from proteus_spot.bidding.market.catalog import region_among
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.job_stores import JobStore, open_job_stores
from proteus_spot.infra.market_data.capacity_files import read_advisor
from proteus_spot.infra.state.records import JobKind
from proteus_spot.infra.state.store import Store


@dataclass(frozen=True, slots=True)
class MarketLine:
    """A market as a list shows it; `directory` is of a local run, None where the database is shared.

    `speeds` are those of its type by application.
    """

    known: MarketKnown
    directory: str | None
    speeds: Mapping[str, TypeSpeed]

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object, with the survival and the age of each figure."""
        record = self.known.to_record()
        for figure in (each for each in record.values() if isinstance(each, dict) and "at_s" in each):
            figure["age_s"] = None if figure["at_s"] is None else max(self.known.at_s - figure["at_s"], 0)
        lives = {f"{hours}h": self.known.survival_now.lives(hours * HOUR_S) for hours in SHOWN_H}
        chance = {"chance": self.known.grant.chance, "size": self.known.grant.size}
        speeds = {app: asdict(each) | {"age_s": each.age_s(self.known.at_s)} for app, each in self.speeds.items()}
        return {**record, **chance, "lives": lives, "speeds": speeds, "directory": self.directory}


def list_markets(
    wanted: Sequence[str], database: str | None = None, directory: Path | None = None, advisor: Path | None = None
) -> tuple[list[MarketLine], list[str]]:
    """Return what is known of markets, and a line for each database that cannot be read.

    Parameters
    ----------
    wanted : the markets, as ``TYPE/ZONE``; none: those of the jobs.
    database, directory : choose as in `infra.local_market.job_stores.open_job_stores`.
    advisor : file of a spot advisor, whose bands are recorded first, for all jobs on these databases.

    Raises
    ------
    InputError
        Naming the market or the file.
    """
    markets = [_market(text) for text in wanted]
    bands = None if advisor is None else read_advisor(advisor)
    lines = []
    with open_job_stores(database, directory) as (stores, left_out):
        for each in stores:
            recent = _recent(each)
            chosen = markets or recent.markets
            if bands is not None:
                _record_bands(each.store, bands, chosen, recent.now_s)
            known = known_of(each.store.markets, chosen, recent.now_s, recent.prices)
            place = None if each.directory is None else str(each.directory)
            by_app = speeds_by_application(each.store.markets.works(recent.now_s - REMEMBERED_S))
            for market in chosen:
                kind = market.instance_type
                speeds = {app: speeds[kind] for app, speeds in by_app.items() if kind in speeds}
                lines.append(MarketLine(known[market], place, speeds))
    return lines, left_out


@dataclass(frozen=True, slots=True)
class _Recent:
    """The newest time, the prices and the markets of the jobs in a database."""

    now_s: int
    prices: MarketPrices
    markets: tuple[Market, ...]


def _recent(jobs: JobStore) -> _Recent:
    now_s = 0
    present: dict[Market, tuple[Micros, int]] = {}
    on_demand: dict[str, Micros] = {}
    markets: set[Market] = set()
    for job in jobs.store.jobs.list_jobs():
        if job.kind is not JobKind.JOB:
            continue
        now_s = max(now_s, int(jobs.now_s(job.job_id)))
        for kind in (JobOpened, TickDue):
            for entry in jobs.store.journals.entries(job.job_id, kinds=[kind.__name__])[-1:]:
                event = from_record(entry.record)
                if isinstance(event, JobOpened):
                    on_demand |= {name: sold.on_demand_micros for name, sold in event.types.items()}
                    markets |= set(event.markets)
                elif isinstance(event, TickDue):
                    present |= {market: (price, event.at_s) for market, price in event.prices.items()}
    return _Recent(now_s, MarketPrices(present, on_demand), tuple(sorted(markets)))


def _record_bands(store: Store, bands: Mapping[str, Any], markets: Sequence[Market], now_s: int) -> None:
    regions = {market: region_among(market.zone, bands) for market in markets}
    store.markets.record_facts(
        AdvisorBand(now_s, market, bands[region][market.instance_type])
        for market, region in regions.items()
        if region is not None and market.instance_type in bands[region]
    )


def _market(text: str) -> Market:
    try:
        return Market.parse(text)
    except ValueError as error:
        raise InputError(str(error)) from None
