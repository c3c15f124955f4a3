"""`proteus doctor` on this machine and what it reaches: every check is seen good and seen wrong."""

import os
import re
import sqlite3
from importlib import metadata
from pathlib import Path

import boto3
import pytest
from prefect import __version__
from prefect.settings import PREFECT_API_URL, temporary_settings

from proteus_spot.infra.settings import Settings
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.urls import sqlite_url
from proteus_spot.tasks.doctor import machine
from proteus_spot.tasks.doctor.checks import BOOT_STEP, CHECKS
from proteus_spot.tasks.doctor.setup import Setup
from tests.support.buckets import served_bucket
from tests.support.canned_api import canned_api
from tests.tasks.doctor.test_account import job, wrong

CATALOG = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h\nc4.large,us-east-1,2,3.75,0.1\n"


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "all packages fit" in machine.check_versions(Setup(Settings()))
    found = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "1.0" if name == "distributed" else found(name))
    what, fix = wrong(machine.check_versions, Setup(Settings()))
    assert what.startswith("distributed is 1.0, not >=")
    assert "make .venv" in fix


def test_database(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    setup = Setup(Settings(database_url=sqlite_url(path)))
    assert machine.check_database(setup).startswith("is new")
    assert not path.exists(), "a check makes no database"
    Store.open(sqlite_url(path)).close()
    assert machine.check_database(setup).startswith("has schema")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE schema_revision SET version_num = '9999'")
    what, fix = wrong(machine.check_database, setup)
    assert "schema 9999" in what
    assert "PROTEUS_DATABASE_URL" in fix
    path.write_text("no database")
    assert "not a database" in wrong(machine.check_database, setup)[0]


def test_bucket() -> None:
    with served_bucket() as url:
        setup = Setup(Settings(blob_url=url))
        assert "wrote, read back and deleted" in machine.check_bucket(setup)
        store = boto3.client("s3", region_name="us-east-1", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
        assert not store.list_objects_v2(Bucket="bucket").get("Contents")
        what, fix = wrong(machine.check_bucket, Setup(Settings(blob_url="s3://absent")))
        assert "absent" in what
        assert "PROTEUS_BLOB_URL" in fix


def test_catalogue(tmp_path: Path) -> None:
    file = tmp_path / "catalog.csv"
    file.write_text(CATALOG)
    setup = Setup(Settings(catalog=file), job())
    assert machine.check_catalog(setup) == "1 types of us-east-1, 0 days old"
    os.utime(file, (1.7e9, 1.7e9))
    assert "days old" in wrong(machine.check_catalog, Setup(setup.settings, job()))[0]
    what, fix = wrong(machine.check_catalog, Setup(setup.settings, job("g4dn.xlarge")))
    assert "g4dn.xlarge is not in" in what
    assert "proteus catalog fetch" in fix


def test_server() -> None:
    deployments = [{"name": name} for name in sorted(machine._deployments())]
    workers = [{"name": "one", "status": "ONLINE"}]
    good = {
        "/api/admin/version": __version__,
        "/api/deployments/filter": deployments,
        "/api/work_pools/proteus/workers/filter": workers,
    }
    bad = {
        "refuses the login": {"/api/admin/version": 401},
        "is Prefect 2.20.1": {"/api/admin/version": "2.20.1"},
        "deployments are missing: ": {"/api/deployments/filter": deployments[1:]},
        "the work pool proteus is missing": {"/api/work_pools/proteus/workers/filter": 404},
        "no worker is online": {"/api/work_pools/proteus/workers/filter": []},
        "with 500": {"/api/deployments/filter": 500},
    }
    answers = dict(good)
    with canned_api(answers) as url, temporary_settings({PREFECT_API_URL: f"{url}/api"}):
        assert "1 workers online" in machine.check_server(Setup(Settings()))
        for what, change in bad.items():
            answers.update({**good, **change})
            assert what in wrong(machine.check_server, Setup(Settings()))[0]
    with temporary_settings({PREFECT_API_URL: f"{url}/api"}):
        assert "no server answers" in wrong(machine.check_server, Setup(Settings()))[0]


def test_every_step_of_the_walk_has_its_check() -> None:
    page = (Path(__file__).parents[3] / "docs" / "aws.md").read_text()
    steps = [int(step) for step in re.findall(r"^## (\d)\.", page, re.MULTILINE)]
    assert steps == list(range(1, 8))
    checked = {int(step) for step in re.findall(r"^    \S*proteus doctor --step (\d)", page, re.MULTILINE)}
    assert checked == {check.step for check in CHECKS} | {BOOT_STEP} == set(steps[:-1])
