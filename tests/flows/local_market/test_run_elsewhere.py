"""`proteus run --endpoint URL`: in a market of somebody else's, which goes on while the job is paused.

Its clock is the run's, so that both speak of the same time; what else it is, the run learns by EC2's API alone.
"""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.state.store import Store
from tests.support import slow_apps as paced
from tests.support.cli_process import Running, bill_micros, processes_of, proteus, running, wait_gone
from tests.support.market_servers import EndpointProcess, credentials, wait_for

pytestmark = [pytest.mark.storm, pytest.mark.timeout(600)]  # two minutes: with the other interruptions

#: When the run begins: half of the file's four days have passed (2016-03-03T00:00:00Z).
BEGIN_S = 1456963200
MARKET = Market("c4.large", "us-east-1a")
FLAT = TraceSet({MARKET: Trace(np.array([BEGIN_S - 2 * 86400, BEGIN_S + 2 * 86400]), np.array([10_000, 10_000]))})
ON_DEMAND = {"c4.large": "0.105"}
#: More than are done before the test says so, see `paced`.
CLOCKS = 60
OPTIONS = (
    *("--job", "begun", "--hours", "5", "--clocks", str(CLOCKS), "--scale", "100", "--max-vcpus", "4"),
    *("slow_apps:Slow", "--code", str(Path(paced.__file__))),
)
#: Ticks that are kept also where other tests run beside this one.
CALM = {"PROTEUS_TICK_S": "400", "PROTEUS_RENEWAL_LEAD_S": "480"}
#: Market seconds that pass while the job is paused.
PAUSE_S = 5000


class Elsewhere:
    """The endpoint of a market beside the directory of a run, and not in it."""

    def __init__(self, directory: Path) -> None:
        self.run = directory / "run"
        self.run.mkdir()
        self.clock = ScaledClock.create(self.run / "clock.json", BEGIN_S, 1e-6)
        market = directory / "market"
        market.mkdir()
        (market / "clock.json").symlink_to(self.run / "clock.json")  # the endpoint is none of the run's processes
        self.endpoint = EndpointProcess(market, str(market / "clock.json"), traces=FLAT)
        self.prices = market / "prices.csv"
        self.options = ("--endpoint", self.endpoint.url, "--prices", str(self.prices), *OPTIONS)

    def log(self) -> list[dict[str, Any]]:
        """Every machine that was ever sold."""
        return self.endpoint.log()

    def bill(self) -> int:
        """What they cost up to now."""
        return bill_micros(self.log(), self.prices, ON_DEMAND, int(self.clock.now_s()))

    def joined(self) -> int:
        """How many machines have joined the job's controller."""
        logs = {log.parent.name: log.read_text() for log in self.endpoint.work_dir.glob("*/console.log")}
        return sum(any(f"node {name} joined " in text for text in logs.values()) for name in logs)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    credentials(monkeypatch)
    made = Elsewhere(tmp_path)
    yield made
    made.endpoint.close()


def trains(run: Running, elsewhere: Elsewhere) -> bool:
    """Whether a spot machine works for the run, beside the one that lasts."""
    assert run.process.poll() is None, run.text()
    return elsewhere.joined() >= 2


def test_a_job_that_is_paused_lets_its_machines_go_and_buys_others_when_it_goes_on(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    with running(elsewhere.run, *elsewhere.options, **CALM, **elsewhere.endpoint.credentials) as run:
        wait_for(lambda: trains(run, elsewhere), "a second node at work", 60)
        run.wait_said(r"clock +[1-9]\d* +loss \d", 60)
        code = run.signal(signal.SIGINT)
        wait_gone(run.directory)
    assert code == 130
    said = (
        r"proteus: interrupted: job begun is paused at clock (\d+) \(\$\d\.\d+ spent\) and leaves nothing running; .*"
    )
    paused = re.fullmatch(said, run.text().splitlines()[-1])
    assert paused is not None, run.text()
    log = elsewhere.log()
    assert len(log) >= 2
    assert {machine["end_cause"] for machine in log} == {"user"}
    with closing(Store.open(f"sqlite:///{elsewhere.run / 'state.db'}")) as store:
        assert not store.purchases.allocations("begun", alive=True)
        assert store.purchases.spent("begun") == elsewhere.bill()

    (elsewhere.run / "blobs" / paced.HURRY).touch()
    elsewhere.clock.jump_to(elsewhere.clock.now_s() + PAUSE_S)
    arguments = ("--dir", str(elsewhere.run), "--json", "-")
    again = proteus(
        "run",
        *elsewhere.options,
        *arguments,
        cwd=tmp_path,
        home=tmp_path / "home",
        **CALM,
        **elsewhere.endpoint.credentials,
    )
    assert again.code == 0, again
    result = json.loads(again.out)
    assert (result["state"], result["lost_micro_tasks"]) == ("finished", 0)
    assert processes_of(elsewhere.run) == []
    machines = elsewhere.log()
    assert machines[: len(log)] == log, "what was let go stays gone"
    assert all(machine["ended_at_s"] is not None for machine in machines)
    left_s = max(machine["ended_at_s"] for machine in log)
    assert min(machine["launched_at_s"] for machine in machines[len(log) :]) >= left_s + PAUSE_S
    assert all(machine["ended_at_s"] > machine["launched_at_s"] for machine in machines), "their time costs"
    lasting = [(m["token"], m["end_cause"]) for m in machines if m["bid_micros"] is None]
    assert lasting == [("begun-reliable-0", "user"), ("begun-reliable-0-again-1", "user")]
    assert round(result["ledger_usd"] * 1_000_000) == elsewhere.bill()
    with closing(Store.open(f"sqlite:///{elsewhere.run / 'state.db'}")) as store:
        told = store.jobs.job("begun").result
        assert told is not None
        assert [clock for clock, _ in told["losses"]] == list(range(1, result["clocks"] + 1)), "each clock once"
        assert result["clocks"] == CLOCKS > int(paused[1]) > 0
        assert store.purchases.spent("begun") == elsewhere.bill()
        assert not store.purchases.allocations("begun", alive=True)
