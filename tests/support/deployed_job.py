"""One job on a real server, whose ticks and renewals the tests start, double, kill and miss."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.nodes.controller_client import ControllerClient
from proteus_spot.infra.state.records import AllocationRecord
from tests.support import slow_apps as paced
from tests.support.prefect import Deployed, rendezvous, wait_until, without_settings

JOB = "ticked"
MARKET = Market("c4.large", "us-east-1a")
DAY_S = 86_400
T0 = 1464739200  # 2016-06-01T00:00:00Z
START_S = T0 + 14 * DAY_S
TICK_S = 120
LEAD_S = 240
ON_DEMAND_USD = {"c4.large": "0.105"}
TICK, RENEW, TRAIN = "allocation-tick/default", "renew-hour/default", "train/train"
#: What a tick of ours may buy: one allocation of one machine at a time.
SPEC: dict[str, Any] = {
    "job_id": JOB,
    "training": {
        "data": "digits",
        "app": "slow_apps:Paced",
        "code": str(Path(paced.__file__)),
        "partitions": 2,
        "shards": 2,
        "hours": 1.0,
    },
    "reliable": {"count": 1, "instance_type": "c4.large", "zone": "us-east-1a"},
    # `best` would wait some seconds after an eviction, and a tick here is to buy at once
    "transient": {
        "markets": [str(MARKET)],
        "allocation_vcpus": 2,
        "max_vcpus": 2,
        "policy": "proteus",
        "billing": "hourly-refund",
    },
}


def market() -> TraceSet:
    """One market: calm but for an hour a day of the past, so that bids have a price."""
    days = np.arange(14)[:, None] * DAY_S + np.array([0, 12 * HOUR_S, 13 * HOUR_S])[None, :]
    times = np.concatenate([T0 + days.ravel(), [START_S, START_S + DAY_S]])
    return TraceSet({MARKET: Trace(times, np.concatenate([np.tile([20_000, 600_000, 20_000], 14), [20_000, 21_000]]))})


@dataclass
class Story:
    """What one chapter leaves to the next."""

    deployed: Deployed
    runs: dict[str, str] = field(default_factory=dict)

    def status(self) -> dict[str, Any]:
        """What the job's controller tells of itself."""
        return ControllerClient(rendezvous(self.deployed.blob_url, JOB)["control"], 10.0).status()

    def tick(self, **more: str) -> str:
        """Start a tick of the job."""
        return self.deployed.start(TICK, {"job_id": JOB}, **more)

    def done(self, run_id: str) -> str:
        """Wait for a tick, or a renewal, to have done its work; return what it said."""
        self.deployed.await_state(run_id, "COMPLETED", 60)

        def said() -> list[str]:
            return [
                line for line in self.deployed.logs(run_id).splitlines() if line.startswith((f"{JOB}: ", "skipped: "))
            ]

        wait_until(lambda: bool(said()), "the last line of the run's log")  # it may come after the run's end
        return "\n".join(said())

    def journal(self, kind: str) -> list[dict[str, Any]]:
        """The journal's records of a kind."""
        return [dict(e.record) for e in self.deployed.store.journals.entries(JOB) if e.record["kind"] == kind]

    def claimed(self) -> bool:
        """Whether a tick of the job is at its work."""
        with closing(sqlite3.connect(self.deployed.directory / "state.db")) as database:
            rows = database.execute("SELECT count(*) FROM claims WHERE name = ?", (f"tick/{JOB}",))
            return bool(rows.fetchone()[0])

    def let_claim_end(self) -> None:
        """Let the claim of a tick that is dead be as old as claims get, by the clock of the database."""
        with closing(sqlite3.connect(self.deployed.directory / "state.db")) as database, database:
            database.execute("UPDATE claims SET expires_at_s = 0 WHERE name = ?", (f"tick/{JOB}",))

    def spot(self) -> list[AllocationRecord]:
        """The spot allocations that are in the book, oldest first."""
        return [r for r in self.deployed.store.purchases.allocations(JOB) if r.allocation.bid_micros is not None]

    def sold(self) -> list[dict[str, Any]]:
        """The spot machines that the market has sold, by its own record."""
        return [one for one in self.deployed.market_log() if one["bid_micros"] is not None]


@contextmanager
def told(directory: Path, auth: str | None = None) -> Iterator[Story]:
    """A server with its worker and an empty database; ticks run only on request, and nothing is left after it.

    `auth` is the user and the password that the server wants, as in ``user:password``.
    """
    with pytest.MonkeyPatch.context() as patch:
        without_settings(patch)
        deployed = Deployed(directory, market(), START_S, auth)
        with deployed:
            for name in (TICK, "reap/default", "ingest-prices/default"):
                deployed.post(f"/deployments/{deployed.deployment_id(name)}/pause_deployment")
            yield Story(deployed)
        left = [process.cmdline() for process in deployed.processes()]
        assert not left, f"still running: {left}"
