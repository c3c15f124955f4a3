"""`proteus sweep run` as a user runs it: real machines' processes, evictions, the bill, the JSON, nothing left."""

import json
import signal
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from proteus_spot.benchmarks.papers.sweeps.simulation.real_sweep import simulate_real
from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.tuning.sweep_journal import from_record, replay, to_record
from proteus_spot.infra.simulated_ec2.server import KEY_HEADER
from proteus_spot.infra.state.store import Store
from tests.support import tiny_trial
from tests.support.cli_process import Running, bill_micros, market_log, processes_of, running
from tests.support.market_servers import wait_for
from tests.support.run_markets import CHEAP, ON_DEMAND, SECOND, THIRD, write_changes
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STEPS = 150
#: Rates of eight trials, of which four run at a time.
RATES = tuple(rate / 1000 for rate in range(1, 9))
FIGURES = {
    *("sweep_id", "state", "why", "trials", "best", "ledger_usd", "refunded_usd", "evictions", "market_seconds"),
    *("checkpoint_share", "metric", "direction"),
    *("directory", "real_seconds"),
}
OF_TRIAL = {
    *("params", "state", "why", "steps", "repeated_steps", "value", "predicted", "usd", "refunded_usd", "evictions"),
    "curve",
}


@dataclass
class Begun:
    """A sweep that may be begun in a directory, over a market of flat prices."""

    directory: Path
    rates: tuple[float, ...]

    @property
    def run(self) -> Path:
        """The directory of the run."""
        return self.directory / "run"

    @property
    def hurry(self) -> Path:
        """The file whose existence ends the patience of the trials."""
        return self.directory / "hurry"

    def options(self, **fields: Any) -> tuple[str, ...]:
        """Write the files; return the words that follow `proteus sweep run`."""
        prices = write_changes(
            self.directory / "prices.csv", {CHEAP: [(0, 10_000)], SECOND: [(0, 12_345)], THIRD: [(0, 20_777)]}
        )
        record = {
            "trial": "tiny_trial:train",
            "code": str(Path(tiny_trial.__file__)),
            "space": {"rate": {"choice": list(self.rates)}, "hurry": {"choice": [str(self.hurry)]}},
            "metric": {"name": "loss"},
            "max_trial_steps": STEPS,
            "stop": "none",
            "markets": [str(market) for market in (CHEAP, SECOND, THIRD)],
            "billing": "hourly-refund",
            **fields,
        }
        (self.directory / "tiny.yaml").write_text(json.dumps(record))  # JSON is YAML
        command = (str(self.directory / "tiny.yaml"), "--prices", str(prices), "--sweep-id", "eventful")
        return (*command, "--json", str(self.directory / "out.json"))

    def trained(self, machines: int) -> list[str]:
        """Return the machines of trials that have reported some steps, if they are so many."""
        reports = [
            json.loads(path.read_text()) for path in self.run.glob("blobs/jobs/eventful/trials/*/*/*/report.json")
        ]
        enough = sum(len(report["values"]) >= 3 for report in reports) >= machines
        return self.alive() if enough else []

    def alive(self) -> list[str]:
        """Return the machines that live, by the market's own record."""
        return [machine["instance_id"] for machine in self.market("log").json() if machine["ended_at_s"] is None]

    def market(self, path: str, **fault: Any) -> httpx.Response:
        """Get a record of the market, or have it make a trouble."""
        announced = json.loads((self.run / "endpoint.json").read_text())
        headers = {KEY_HEADER: announced["access_key_id"]}
        url = f"{announced['url']}/_market/{path}"
        answer = httpx.post(url, json=fault, headers=headers) if fault else httpx.get(url, headers=headers)
        return answer.raise_for_status()

    def evict(self, run: Running, machines: int) -> None:
        """Have the market take the machines, once so many have trained a little; it has taken them on return.

        No trial ends meanwhile: the notice is a fraction of the time of its steps.
        """
        found: list[str] = []

        def trains() -> bool:
            assert run.process.poll() is None, run.text()
            found[:] = self.trained(machines) if (self.run / "endpoint.json").exists() else []
            return bool(found)

        wait_for(trains, f"{machines} machines at work", 120)
        for instance_id in found:
            self.market("fault", kind="mark", instance_id=instance_id)
        wait_for(lambda: not set(found) & set(self.alive()), "the evictions", 60)


def _check(directory: Path, trials: int) -> dict[str, Any]:
    """Check what holds of every sweep that was run to its end; return its figures."""
    figures: dict[str, Any] = json.loads((directory / "out.json").read_text())
    assert set(figures) == FIGURES
    assert all(set(trial) == OF_TRIAL for trial in figures["trials"])
    assert (figures["sweep_id"], figures["state"], figures["why"]) == ("eventful", "finished", "")
    assert [(trial["state"], trial["steps"]) for trial in figures["trials"]] == [("finished", STEPS)] * trials
    log = market_log(directory / "run")
    assert all(instance["ended_at_s"] is not None for instance in log)
    assert figures["evictions"] == sum(instance["end_cause"] == "evicted" for instance in log) >= 1
    assert figures["refunded_usd"] > 0
    assert 0 < figures["checkpoint_share"] < 1
    bill = bill_micros(log, directory / "prices.csv", ON_DEMAND, until_s=0)
    assert round(figures["ledger_usd"] * 1_000_000) == bill
    assert round(sum(trial["usd"] for trial in figures["trials"]) * 1_000_000) == bill
    with closing(Store.open(f"sqlite:///{directory / 'run' / 'state.db'}")) as store:
        assert not store.purchases.allocations("eventful", alive=True)
        entries = store.journals.entries("eventful")
    engine, ordered, events = replay([]), [], []
    for entry in entries:
        if entry.direction == "event":
            event = from_record(entry.record)
            assert isinstance(event, BidEvent)
            events.append(event)
            ordered += [to_record(order) for order in engine.handle(event)]
    assert ordered == [entry.record for entry in entries if entry.direction == "order"], "replayed"
    simulated = simulate_real(events)
    assert [trial.state for trial in simulated.trials] == [trial["state"] for trial in figures["trials"]]
    assert simulated.best_trial is not None
    assert simulated.trials[simulated.best_trial].params == figures["best"]["params"]
    best = directory / "run" / "blobs" / "jobs" / "eventful" / "best" / "manifest.json"
    assert json.loads(best.read_text())["about"]["params"] == figures["best"]["params"]
    assert processes_of(directory / "run") == []
    return figures


def test_a_sweep_survives_evictions_and_its_ledger_is_the_bill(tmp_path: Path) -> None:
    begun = Begun(tmp_path, RATES)
    with running(begun.run, *begun.options(parallel=4), verb="sweep run") as run:
        begun.evict(run, 4)
        begun.hurry.touch()
        assert run.process.wait(120 * PATIENCE) == 0, run.text()
    figures = _check(tmp_path, 8)
    assert figures["evictions"] == 4
    assert figures["best"]["params"]["rate"] == RATES[-1]
    for trial in figures["trials"]:
        assert trial["value"] == pytest.approx(tiny_trial.loss(trial["params"]["rate"], STEPS))
    assert "eventful: finished" in run.text()
    assert "Warning" not in run.text()


@pytest.mark.storm  # some minutes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_survives_evictions_and_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    begun = Begun(tmp_path, RATES)
    with running(begun.run, *begun.options(parallel=4), verb="sweep run") as run:
        begun.evict(run, 4)
        assert run.signal(number, 30) == (130 if number is signal.SIGINT else -signal.SIGKILL)
    said = run.text().splitlines()[-1]
    is_told = "sweep eventful is paused, each trial at its newest uploaded state" in said
    assert is_told is (number is signal.SIGINT)
    begun.hurry.touch()
    with running(begun.run, *begun.options(parallel=4), verb="sweep run") as run:
        assert run.process.wait(200 * PATIENCE) == 0, run.text()
    _check(tmp_path, 8)
