"""The job of `make run`, interrupted at ten seeded moments: nothing is left, it resumes, its bill is the market's."""

import gzip
import json
import random
import signal
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from tests.support.cli_process import bill_micros, market_log, proteus, running, wait_gone

pytestmark = [pytest.mark.storm, pytest.mark.timeout(1800)]

MOMENTS = 10
#: Real seconds of a run after which it is broken off; it needs some twelve to be up.
EARLIEST_S, LATEST_S = 1.0, 45.0
OPTIONS = ("--seed", "0", "--job", "storm")


@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_broken_off_ten_times(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    home, directory = tmp_path / "home", tmp_path / "run"
    clock = SystemClock()
    for number in range(MOMENTS):
        after_s = dice.uniform(EARLIEST_S, LATEST_S)
        how = dice.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        print(f"seed {seed}, moment {number}: {how.name} after {after_s:.1f} s")
        with running(directory, *OPTIONS) as run:
            until_s = clock.now_s() + after_s
            while run.process.poll() is None and clock.now_s() < until_s:
                clock.wait_until(min(until_s, clock.now_s() + 0.1))
            if run.process.poll() is not None:
                assert run.process.returncode == 0, run.text()  # it was quicker than the moments
            else:
                code = run.signal(how)
                assert code == (-how if how is signal.SIGKILL else 128 + how), run.text()
        wait_gone(directory)
        assert "Traceback" not in run.text()

    done = proteus("run", *OPTIONS, "--dir", str(directory), "--json", "-", cwd=tmp_path, home=home, timeout_s=400)
    assert done.code == 0, done
    wait_gone(directory)
    result = json.loads(done.out)
    assert (result["state"], result["lost_micro_tasks"]) == ("finished", 0)
    assert result["accuracy"] >= 0.95

    log = market_log(directory)
    assert all(instance["ended_at_s"] is not None for instance in log)
    prices = directory / "prices.csv"
    prices.write_bytes(gzip.decompress((directory / "prices.csv.gz").read_bytes()))
    on_sale = read_catalog(None).at(datetime.fromtimestamp(log[0]["launched_at_s"], UTC).date(), "us-east-1")
    on_demand = {name: str(Decimal(kind.on_demand_micros) / 1_000_000) for name, kind in on_sale.items()}
    assert round(result["ledger_usd"] * 1_000_000) == bill_micros(log, prices, on_demand, until_s=0)
    with closing(Store.open(f"sqlite:///{directory / 'state.db'}")) as store:
        assert store.jobs.job("storm").state is JobState.FINISHED
        assert not store.purchases.allocations("storm", alive=True)
        told = store.jobs.job("storm").result
        assert told is not None
        assert [at for at, _ in told["losses"]] == list(range(1, result["clocks"] + 1)), "each clock once"
