"""A rebalance recommendation from the simulated EC2 by node and controller into the facts, decisions and lists."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from aiohttp import web

from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.bidding.facts.records import Rebalance, Source
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.metadata_service import Metadata
from proteus_spot.infra.simulated_ec2.rules.capacity import foretold_s, taken
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.facts.observing import known_to_decide_on
from proteus_spot.tasks.market.facts.rebalances import record_rebalances
from proteus_spot.tasks.market.facts.showing import list_markets
from proteus_spot.tasks.training.running_controller import note
from tests.support.local_cluster import LocalCluster
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, spec
from tests.support.timeouts import PATIENCE

TODAY = spec(rules="today", policy="deadline", billing="per-second-first-hour-free", allocation_vcpus=None, max_vcpus=8)
#: Seconds from the job's begin to the first foretold drop, and from its recommendation to the drop.
DROP_S = next(s for s in range(3600, 9000, 60) if foretold_s(MARKET, BEGIN_S + s))
AHEAD_S = 600 + 120


@contextmanager
def metadata_of(market: SimSpotMarket) -> Iterator[str]:
    """Serve the metadata of the machines of a market."""
    loop, up, url = asyncio.new_event_loop(), threading.Event(), []

    async def serve() -> None:
        app = web.Application()
        Metadata(market, "us-east-1", lambda: None, time.monotonic).add_routes(app, "/machines")
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url.append("http://{}:{}/machines".format(*runner.addresses[0][:2]))
        up.set()
        await stop.wait()
        await runner.cleanup()

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert up.wait(20 * PATIENCE)
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.mark.e2e
def test_a_recommendation_ahead_of_an_interruption_becomes_a_fact_of_its_market(
    here: TaskRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScaledClock.create(clock_file(tmp_path), BEGIN_S, 1.0)
    here.market.capacity.traces = {MARKET: capacity_trace([4, 1], DROP_S, BEGIN_S)}
    here.begin(TODAY)
    here.tick(TODAY)
    (record,) = (each for each in here.store.purchases.allocations("job") if each.allocation.bid_micros is not None)
    name = taken(record.instance_ids, 3, BEGIN_S + DROP_S)[0]
    monkeypatch.setenv("PROTEUS_ALLOCATION", record.allocation_id)
    with metadata_of(here.market) as url, LocalCluster(tmp_path / "nodes") as cluster:
        cluster.start_node(name, metadata_url=f"{url}/{name}")
        assert cluster.wait(lambda s: len(s["nodes"]) == 1, "the node to join")["rebalances"] == []
        here.clock.at_s = BEGIN_S + DROP_S - AHEAD_S
        here.market.advance()
        status = cluster.wait(lambda s: len(s["rebalances"]) == 1, "the recommendation")
        assert status["notices"] == []
    here.clock.at_s += 30
    for _ in range(2):
        note("job", status)
    at_s = BEGIN_S + DROP_S - AHEAD_S
    assert here.store.markets.rebalances([MARKET], 0) == [Rebalance(at_s, MARKET, name, Source.METADATA)]
    (line,), _ = list_markets([], here.runtime.settings.database_url)
    assert line.to_record()["rebalances"] == {"value": 1, "source": "instance metadata", "at_s": at_s, "age_s": 30}
    here.clock.at_s = BEGIN_S + DROP_S + 1
    here.tick(TODAY)
    known = known_to_decide_on(JobEngine("job"), {})[MARKET]
    assert asdict(known.rebalances) == {"value": 1, "source": Source.METADATA, "at_s": at_s}
    assert known.taken_after.value == 1
    assert known.survival_now.lives(HOUR_S) < known.survival.lives(HOUR_S) - 0.2
    here.clock.at_s += 1200
    here.market.capacity.traces = {}
    (order,) = here.tick(TODAY)
    assert "rebalance recommended to 1 within the hour" in order.decision.reason


def test_only_spot_machines_of_the_book_count_each_once_at_a_time_that_can_be(here: TaskRuntime) -> None:
    here.begin(TODAY)
    here.tick(TODAY)
    here.clock.at_s += 600
    book = here.store.purchases.allocations("job")
    spot, early = (name for each in book if each.allocation.bid_micros is not None for name in each.instance_ids[:2])
    reliable = next(each.instance_ids[0] for each in book if each.allocation.bid_micros is None)
    told = {spot: BEGIN_S + 99_999, early: BEGIN_S - 5, reliable: BEGIN_S, "i-strange": BEGIN_S}
    for source in (Source.METADATA, Source.OWN):
        record_rebalances(book, told, source)
        here.clock.at_s += 60
    assert here.store.markets.rebalances([MARKET], 0) == [
        Rebalance(BEGIN_S, MARKET, early),
        Rebalance(BEGIN_S + 600, MARKET, spot),
    ]
