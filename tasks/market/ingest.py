"""Price history from the market into the price store; only new prices are fetched."""

import logging
from collections.abc import Sequence
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, field_validator

from proteus_spot.bidding.market.model import DAY_S, Market
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.storage.price_store import PriceStore
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.market_data.predictors import predictor_ages
from proteus_spot.tasks.job_records import is_sweep, job_spec, ticking_jobs
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Each fetch begins this long before the end of the last one, for rows that the market reported late.
_OVERLAP_S = 3600
_CLAIM = "ingest-prices"
#: Real seconds that a claim lasts, and that another run waits for it: longer, for its holder may have been killed.
_CLAIM_S = 300.0
_PATIENCE_S = _CLAIM_S + 30.0


class IngestRequest(BaseModel):
    """The markets and the length of history to fetch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    markets: list[str] = Field(
        default_factory=list, title="Markets", description="TYPE/ZONE each; empty: those of the open jobs."
    )
    days: float = Field(14.0, gt=0, le=90, title="History to begin with, in days", description="AWS gives 90.")

    @field_validator("markets")
    @classmethod
    def _are_markets(cls, value: list[str]) -> list[str]:
        for text in value:
            Market.parse(text)
        return value


def markets_of_interest(request: IngestRequest) -> tuple[Market, ...]:
    """Return the markets to fetch, sorted, each once."""
    names = request.markets or [name for job_id in ticking_jobs() for name in _markets_of_job(job_id)]
    return tuple(sorted({Market.parse(name) for name in names}))


def _markets_of_job(job_id: str) -> Sequence[str]:
    """Return the markets of a job, or of a sweep, by the form in which it was recorded."""
    if not is_sweep(job_id):
        return job_spec(job_id).transient.markets
    return list(current_runtime().store.jobs.job(job_id).spec["markets"])


def markets_of(spec: JobSpec) -> tuple[Market, ...]:
    """Return the markets that the job may bid in, sorted, each once."""
    return tuple(sorted({Market.parse(name) for name in spec.transient.markets}))


def history_days() -> float:
    """Return how much history a job's eviction model is fitted on, in days."""
    return current_runtime().settings.history_days


@runtime_task("observe predictors")
def observe_predictors() -> list[str]:
    """Log and return a line on the age of each kept eviction predictor, or on a file that cannot be used."""
    try:
        lines = predictor_ages(current_runtime().now_s())
    except InputError as error:
        lines = [str(error)]
    for line in lines:
        _log.info("eviction predictor %s", line)
    return lines


@runtime_task("fetch prices", market=True)
def fetch_prices(markets: Sequence[Market], days: float) -> int:
    """Fetch what the store does not have yet; return how many rows were new.

    A run that dies has stored nothing, or all that it fetched; the next run continues from there.

    Raises
    ------
    ProteusError
        If another run is fetching prices, and does not end.
    """
    runtime = current_runtime()
    store = PriceStore(runtime.blobs)
    holder = uuid4().hex
    if not markets:
        return 0
    deadline_s = runtime.clock.now_s() + _PATIENCE_S * runtime.clock.scale
    while not runtime.store.claims.claim(_CLAIM, holder, _CLAIM_S):
        if runtime.clock.now_s() >= deadline_s:
            raise ProteusError("prices: another run is still fetching them; try again when its claim has expired")
        runtime.clock.wait_until(runtime.clock.now_s() + 0.2 * runtime.clock.scale)
    try:
        now_s = runtime.now_s()
        first_s = int(now_s - days * DAY_S)
        groups: dict[int, list[Market]] = {}
        for market in markets:
            until_s = store.observed_until_s(market)
            groups.setdefault(first_s if until_s is None else max(until_s - _OVERLAP_S, first_s), []).append(market)
        source = runtime.settings.ec2_endpoint_url or f"ec2.{runtime.settings.region}"
        new = 0
        for from_s in sorted(groups):
            points = runtime.market.price_history(groups[from_s], from_s, now_s)
            new += store.add(points, groups[from_s], (from_s, now_s), source, now_s)
        return new
    finally:
        runtime.store.claims.release(_CLAIM, holder)
