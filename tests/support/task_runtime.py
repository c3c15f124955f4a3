"""A runtime for tasks: a simulated market in this process, a state database in a file, a clock that a test moves."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from inspect import unwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proteus_spot.tasks.market.decisions
import proteus_spot.tasks.market.facts.observing
import proteus_spot.tasks.task_runtime
from proteus_spot.bidding.market.machine_events import EventQueue
from proteus_spot.bidding.market.model import InstanceFact, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.runtime import Runtime
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_leases import extend_leases
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.bookkeeping import (
    book_ledger,
    lives_within_budget,
    on_demand_spending_now,
    spending_now,
)
from proteus_spot.tasks.market.decisions import decide
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.facts.observing import (
    known_to_decide_on,
    observe_quotas,
    observe_scores,
    quotas_to_decide_on,
)
from proteus_spot.tasks.market.ingest import fetch_prices, history_days, markets_of
from proteus_spot.tasks.market.job_opening import open_job
from proteus_spot.tasks.market.listed_machines import job_machines, let_go
from proteus_spot.tasks.market.purchases.reliable_purchases import secure_reliable_tier
from proteus_spot.tasks.market.purchases.sending import buy
from proteus_spot.tasks.training.traffic import crossing_usd_per_vcpu_h
from proteus_spot.tasks.training.work_left import time_left
from tests.support.market_servers import ManualClock

T0 = 1464739200  # 2016-06-01T00:00:00Z
#: The job begins here: two days of history lie before it.
BEGIN_S = T0 + 2 * 86_400
MARKET = Market("c4.large", "us-east-1a")
OTHER = Market("m4.large", "us-east-1b")
ON_DEMAND: Micros = 105_000


class TaskRuntime:
    """What the tasks of a test touch.

    Parameters
    ----------
    directory : where the database and the blobs go.
    taken_after_s : the price of `MARKET` passes every bid so long after the job's begin; None: never.
    traces : prices of `MARKET` and `OTHER`; None: calm ones.
    """

    def __init__(
        self,
        directory: Path,
        patch: pytest.MonkeyPatch,
        taken_after_s: int | None = None,
        traces: TraceSet | None = None,
    ) -> None:
        rows = [(T0, 20_000), *([] if taken_after_s is None else [(BEGIN_S + taken_after_s, 900_000)])]
        times, prices = (np.array(column) for column in zip(*rows, strict=True))
        calm = {MARKET: Trace(times, prices), OTHER: Trace(np.array([T0]), np.array([30_000]))}
        traces = TraceSet(calm) if traces is None else traces
        self.clock = ManualClock(float(BEGIN_S))
        catalog = read_catalog()
        day = datetime.fromtimestamp(BEGIN_S, UTC).date()
        self.market = SimSpotMarket(traces, lambda market: catalog.find(market, day), self.clock.now_s)
        self.store = Store.open(f"sqlite:///{directory / 'state.db'}")
        settings = Settings(
            blob_url=(directory / "blobs").as_uri(),
            database_url=f"sqlite:///{directory / 'state.db'}",
            ec2_endpoint_url="http://simulated.test",
        )
        blobs = Blobs((directory / "blobs").as_uri())
        self.runtime = Runtime(settings, self.clock, self.store, blobs, self.market, catalog)
        patch.setattr(proteus_spot.tasks.task_runtime, "open_runtime", lambda: self.runtime)
        patch.setattr(
            proteus_spot.tasks.market.decisions, "training_begun", lambda job_id, begun_at_s: True
        )  # no controller is here to begin it
        patch.setattr(proteus_spot.tasks.market.facts.observing, "observe_scores", plain(observe_scores))
        patch.setattr(proteus_spot.tasks.market.facts.observing, "observe_quotas", plain(observe_quotas))

    def use(self, **settings: Any) -> None:
        """Change settings."""
        self.runtime = replace(self.runtime, settings=self.runtime.settings.model_copy(update=settings))

    def use_events(self, events: EventQueue) -> None:
        """Name a queue of machine events."""
        self.runtime = replace(self.runtime, events=events)

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def begin(self, spec: JobSpec) -> None:
        """Record and open the job, and buy its reliable tier."""
        plain(record_job)(spec)
        plain(fetch_prices)(markets_of(spec), history_days())
        for step in (open_job, secure_reliable_tier):
            plain(step)(spec, JobEngine(spec.job_id))

    def tick(self, spec: JobSpec, notices: dict[str, int] | None = None) -> list[Any]:
        """Decide and carry out, as a tick does; return the orders."""
        from proteus_spot.bidding.engine.orders import Acquire, Lapse

        facts = job_machines(spec.job_id)
        prices = {market: trace.price_at(self.clock.at_s) for market, trace in self.market.traces.items()}
        job_engine = JobEngine(spec.job_id)
        limits = spending_now(spec, job_engine.cached()), time_left(spec)
        crossing_usd = crossing_usd_per_vcpu_h(spec)
        known, left = known_to_decide_on(job_engine, prices), quotas_to_decide_on(job_engine)
        seen = (facts, prices, notices or {}, None, None, *limits, crossing_usd, known, left)
        orders = plain(decide)(job_engine, *seen, on_demand_spending_now(spec, job_engine.cached()))
        if spec.budget_usd is not None:
            plain(extend_leases)(spec.job_id, lives_within_budget(spec, job_engine.cached()))
        for order in orders:
            if isinstance(order, Acquire):
                plain(buy)(spec, job_engine, order)
            elif isinstance(order, Lapse):
                plain(let_go)(spec.job_id, {order.allocation_id: order.instance_ids})
        plain(book_ledger)(spec.job_id)
        return list(orders)

    def facts(self, spec: JobSpec) -> Sequence[InstanceFact]:
        """Every machine of the job."""
        return self.market.describe([("proteus:owner", self.runtime.owner), ("proteus:job", spec.job_id)])


def plain(task: Any) -> Any:
    """The function under a task: no Prefect is asked."""
    return unwrap(task)


def spec(job_id: str = "job", **transient: Any) -> JobSpec:
    """A job with one reliable machine that may hold two small spot machines in `MARKET`."""
    return JobSpec.model_validate(
        {
            "job_id": job_id,
            "training": {"clocks": 3},
            "reliable": {"count": 1, "instance_type": MARKET.instance_type, "zone": MARKET.zone},
            "transient": {
                "markets": [str(MARKET)],
                "allocation_vcpus": 4,
                "max_vcpus": 4,
                "policy": "proteus",
                "billing": "hourly-refund",
                **transient,
            },
        }
    )
