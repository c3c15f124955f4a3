"""The plan of a job by what the state databases here know of its markets."""

from datetime import UTC, datetime
from pathlib import Path

from proteus_spot.bidding.facts.rates import application_name
from proteus_spot.bidding.market.model import Market
from proteus_spot.infra.clock import open_clock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.settings import load_settings
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.market_data.on_demand_prices import types_of
from proteus_spot.studies.plan.live_plan import LivePlan, live_plan
from proteus_spot.tasks.market.facts.showing import MarketLine, list_markets


def plan_live(
    job: JobSpec,
    file: str,
    *,
    vcpu_hours: float | None,
    starts: int,
    seed: int,
    catalog: Path | None = None,
    database: str | None = None,
    directory: Path | None = None,
) -> LivePlan:
    """Return the plan of the job that `file` describes.

    Of several databases the one counts that knows the most of its markets.

    Raises
    ------
    InputError
        One line on what is wrong with the file, or missing.
    """
    markets = [Market.parse(text) for text in job.transient.markets]
    lines, _ = list_markets(job.transient.markets, database, directory)
    places: dict[str | None, list[MarketLine]] = {}
    for line in lines:
        places.setdefault(line.directory, []).append(line)
    if not places:
        raise InputError(f"{file}: there is no state database here; name one by --database or --dir")
    best = max(places.values(), key=lambda found: sum(line.known.survival.exposure_s for line in found))
    now_s = max(line.known.at_s for line in best) or int(open_clock(load_settings().clock).now_s())
    reliable = Market(job.reliable.instance_type, job.reliable.zone)
    types = types_of(
        read_catalog(catalog),
        [*markets, reliable],
        datetime.fromtimestamp(now_s, UTC).date(),
        where=f"{file}: ",
        name="the catalogue",
        fix="name another, or --catalog",
    )
    known = tuple(line.known for line in best)
    name = application_name(job.training.app, job.transient.unit)
    speeds = {line.known.market.instance_type: line.speeds[name] for line in best if name in line.speeds}
    return live_plan(job, file, known, dict(types), speeds, vcpu_hours=vcpu_hours, starts=starts, seed=seed)
