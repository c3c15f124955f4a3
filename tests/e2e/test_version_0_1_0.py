"""Files of version 0.1.0 can be read: a journal, a ledger, a checkpoint, a saved model, a price store.

The files of tests/data/version_0_1_0 were written by that version: `train mlr` on points.csv (three clusters of 20
points, six clocks), `PriceStore.add`, and the state database of a `proteus run` as SQL, with long lists of its result
cut. DATA and BLOBS stand for the original locations. running.sql is the database of a job after its first three ticks;
INSTANCE_0 to INSTANCE_2 stand for the ids of its machines.
"""

import csv
import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.engine.journal import from_record, replay, to_record
from proteus_spot.bidding.market.model import LaunchRequest, Market
from proteus_spot.infra.applications.trained_models import load_model
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.state.upgrades import derived_owner_id
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.checkpoints import read_shard
from proteus_spot.infra.storage.price_store import PriceStore
from tests.support.cli_process import proteus
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, spec

WRITTEN = Path(__file__).parents[1] / "data" / "version_0_1_0"
OPTIONS = ("--nodes", "r=1,t=1", "--partitions", "2", "--shards", "2", "--param", "features=0", "--seed", "3")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of the training, as if it had been in this test's directory."""
    directory = tmp_path / "runs" / "old"
    shutil.copytree(WRITTEN / "blobs", directory / "blobs")
    shutil.copy(WRITTEN / "points.csv", tmp_path)
    for path in directory.rglob("*.json"):
        text = path.read_text().replace("DATA", str(tmp_path / "points.csv"))
        path.write_text(text.replace("BLOBS", f"file://{directory}/blobs"))
    return directory


@pytest.fixture
def database(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.executescript((WRITTEN / "state.sql").read_text())
    connection.close()
    return f"sqlite:///{tmp_path}/state.db"


def test_a_journal_replays_and_would_be_written_alike(database: str) -> None:
    with Store.open(database) as store:
        (job,) = store.jobs()
        records = [entry.record for entry in store.journal("old")]
        spent = sum(line.amount_micros for line in store.ledger("old"))
    assert (job.job_id, job.state.value) == ("old", "finished")
    assert len(records) == 74
    assert spent == 384_200
    engine = replay(records)
    assert (engine.job_id, engine.closed) == ("old", True)
    for record in records:
        assert to_record(from_record(record)).items() >= record.items(), record["kind"]


def test_a_running_job_goes_on_with_its_next_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its three machines are those that it has; the hour of its spot machines is decided once, when it ends."""
    runtime = TaskRuntime(tmp_path, monkeypatch, database=running_job)
    store, market, running = runtime.store, runtime.market, spec("running")
    assert store.job("running").state is JobState.RUNNING
    before = [entry.record["kind"] for entry in store.journal("running")]
    machines = [fact.instance_id for fact in market.log()]
    lead_s = runtime.runtime.settings.renewal_lead_s
    for after_s, orders in ((360, []), (3600 - lead_s, ["Renew"]), (3600, [])):
        runtime.clock.at_s = float(BEGIN_S + after_s)
        done = [type(order).__name__ for order in runtime.tick(running)]
        assert [kind for kind in done if kind != "Wait"] == orders
    assert [fact.instance_id for fact in market.log() if fact.alive] == machines, "none was bought, none was let go"
    assert {record.allocation_id: record.allocation.count for record in store.allocations("running", alive=True)} == {
        "running-reliable-0": 1,
        "running-buy-0": 2,
    }
    after = [entry.record["kind"] for entry in store.journal("running")]
    assert after[: len(before)] == before
    assert after[len(before) :].count("TickDue") == 3
    assert store.spent("running") > 0
    runtime.close()


def running_job(path: Path, market: SimSpotMarket) -> None:
    """Write the database of the running job, and have the market hold its machines, with the tags of version 0.1.0."""
    text = (WRITTEN / "running.sql").read_text()
    owner = derived_owner_id(f"sqlite:///{path}")
    number = 0
    purchases = (("reliable", "running-reliable-0", 1, None), ("transient", "running-buy-0", 2, 20_100))
    for tier, order, count, bid in purchases:
        tags = {"proteus:owner": owner, "proteus:job": "running", "proteus:tier": tier, "proteus:order": order}
        tags |= {"proteus:expires": str(BEGIN_S + 7 * 86_400), "Name": f"proteus running {tier}"}
        for fact in market.launch(LaunchRequest(order, MARKET, count, bid, tags=tags)):
            text = text.replace(f"INSTANCE_{number}", fact.instance_id)
            number += 1
    with sqlite3.connect(path) as connection:
        connection.executescript(text)
    connection.close()


def test_its_jobs_and_costs_are_shown(database: str, tmp_path: Path) -> None:
    shown = {
        verb: proteus(verb, "--json", "-", cwd=tmp_path, home=tmp_path / "home", PROTEUS_DATABASE_URL=database)
        for verb in ("jobs", "cost")
    }
    assert {verb: (done.code, done.err) for verb, done in shown.items()} == {"jobs": (0, ""), "cost": (0, "")}
    assert [job["job_id"] for job in json.loads(shown["jobs"].out)["jobs"]] == ["old"]
    assert json.loads(shown["cost"].out)["spent_usd"] == 0.3842


def test_a_model_predicts(run: Path, tmp_path: Path) -> None:
    _, tables, about = load_model(str(run / "blobs" / "jobs" / "old" / "model"))
    assert (about.app, {name: table.shape for name, table in tables.items()}) == ("mlr", {"weights": (4, 3)})
    done = proteus(
        *("predict", "runs/old/blobs/jobs/old/model", "--data", "points.csv", "--out", "said.csv"),
        cwd=tmp_path,
        home=tmp_path / "home",
    )
    said = "data: the model does not know the names of its inputs: columns are taken by their places\n"
    assert (done.code, done.err) == (0, said)
    with (tmp_path / "said.csv").open() as file:
        classes = [row["class"] for row in csv.DictReader(file)]
    assert len(classes) == 60
    assert set(classes) <= {"x", "y", "z"}


def test_a_checkpoint_is_read_and_a_job_goes_on_from_it(run: Path, tmp_path: Path) -> None:
    blobs = Blobs(f"file://{run}/blobs")
    model = np.load(run / "blobs/jobs/old/model/model.npz")
    shards = [read_shard(blobs, "jobs/old/checkpoints/clock-000000006", shard) for shard in (0, 1)]
    assert np.concatenate([shard["weights"] for shard in shards]).tobytes() == model["weights"].tobytes()

    shutil.rmtree(run / "blobs/jobs/old/model")  # as when it is killed before its end
    begun = run / "blobs/jobs/old/begun.json"
    begun.write_text(begun.read_text().replace('"--clocks": 6', '"--clocks": 8'))
    done = proteus(
        *("train", "mlr", "--data", "points.csv", "--job", "old", "--clocks", "8", "--json", "-", *OPTIONS),
        cwd=tmp_path,
        home=tmp_path / "home",
    )
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["clocks"], result["repeated_micro_tasks"]) == (8, 0)
    assert [clock for clock, _ in result["losses"]] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_price_store_is_read_and_added_to(tmp_path: Path) -> None:
    shutil.copytree(WRITTEN / "price_store", tmp_path / "store")
    store = PriceStore(Blobs(f"file://{tmp_path}/store"))
    a, b = Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b")
    traces = store.read([a, b], 0, 40)
    assert [traces[a].price_at(15), traces[a].price_at(25), traces[b].price_at(15)] == [32400, 32100, 100]
    assert store.observed_until_s(b) == 30
