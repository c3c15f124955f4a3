"""`proteus jobs`, `cost` and `stop`, as typed: the jobs of the state database, and of the local runs in runs/."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import proteus_spot.flows.terminal.tables
from proteus_spot.flows.cli.commands.inspection.cost import cost
from proteus_spot.flows.cli.commands.jobs.jobs import jobs
from proteus_spot.flows.cli.commands.jobs.stop import stop
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.environment import clock_file, own_directory
from proteus_spot.infra.runtime import forget_runtime
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.infra.state.store import Store
from tests.support.job_states import JOB, START_S, record_job


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory; the database of the settings is below it, and is not there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROTEUS_DATABASE_URL", f"sqlite:///{tmp_path}/shared/state.db")
    forget_runtime()
    yield tmp_path
    forget_runtime()


def local_run(here: Path, job: str) -> Path:
    """Make the directory of a local run with a job that has just begun."""
    directory = here / "runs" / job
    directory.mkdir(parents=True)
    ScaledClock.create(clock_file(directory), START_S + 500.0, 1e-6)
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        store.jobs.create_job(job, {}, START_S)
        store.jobs.observe(
            job, START_S + 90, ObservationKind.PROGRESS, {"clock": 7, "loss": 0.5, "ready": 1, "stage": 1}
        )
    return directory


def run(verb: click.Command, *arguments: Any) -> Result:
    return CliRunner().invoke(verb, [str(argument) for argument in arguments])


def listed(*arguments: Any) -> dict[str, Any]:
    done = run(jobs, "--json", "-", *arguments)
    assert done.exit_code == 0, done.output
    return {line["job_id"]: line for line in json.loads(done.stdout)["jobs"]}


def test_without_a_database_there_are_no_jobs_and_none_is_made(here: Path) -> None:
    assert run(jobs).output == "no jobs\n"
    assert run(cost).output == "nothing was spent\n"
    for verb in (cost, stop):
        done = run(verb, "job")
        assert isinstance(done.exception, InputError)
        assert str(done.exception).startswith("job job: is in no state database here; `proteus jobs` lists")
    assert list(here.iterdir()) == []


def test_local_runs_are_listed_beside_the_shared_database(here: Path) -> None:
    directory = local_run(here, "mine")
    with Store.open(f"sqlite:///{here}/shared/state.db") as store:
        record_job(store, hours=1)
    found = listed()
    assert list(found) == [JOB, "mine"]
    assert found[JOB]["directory"] is None
    assert found[JOB]["ended_s"] > found[JOB]["begun_s"] == START_S + 0.5
    mine = found["mine"]
    assert (mine["directory"], mine["begun_s"], mine["ended_s"]) == (str(directory), START_S, None)
    assert (mine["state"], mine["clock"], mine["market_s"]) == ("starting", 7, 90)
    assert (mine["spent_micros"], mine["spent_is_known"]) == (0, False)
    done = run(jobs).output
    assert "2016-06-15 00:00" in done
    row = next(line for line in done.splitlines() if line.startswith("mine"))
    assert "not known yet" in row
    assert "$0.0000" not in row
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        store.jobs.move_job("mine", JobState.FAILED, START_S + 100, failure="app.py:3: broke")
    assert listed()["mine"]["why"] == "app.py:3: broke"
    assert "$0.0000" in run(jobs).output


def test_dir_and_database_name_the_only_one(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    local_run(here, "mine")
    elsewhere = local_run(tmp_path_factory.mktemp("elsewhere"), "other")
    assert list(listed("--dir", elsewhere)) == ["other"]
    assert listed("--database", f"sqlite:///{elsewhere}/state.db")["other"]["market_s"] == 90, "it keeps its own time"
    assert list(listed()) == ["mine"]
    for options, says in (
        (("--dir", here / "none"), "none: is not a directory; --dir names where the run kept its state"),
        (("--dir", here), f"state database {here}/state.db: is not there; name it"),
        (("--database", f"sqlite:///{here}/no.db"), "no.db: is not there; name it with --database, or the run's --dir"),
    ):
        for verb, job in ((jobs, ()), (cost, ("other",)), (stop, ("other",))):
            done = run(verb, *job, *options)
            assert isinstance(done.exception, InputError)
            assert says in str(done.exception)
    assert not (here / "state.db").exists()


def test_a_database_that_cannot_be_read_hides_no_other(here: Path) -> None:
    local_run(here, "mine")
    broken = here / "runs" / "broken"
    broken.mkdir()
    (broken / "state.db").write_text("this is not a database, and it is longer than a header\n" * 40)
    done = run(jobs)
    assert done.exit_code == 0
    assert "mine" in done.stdout
    assert done.stderr.startswith("note: state database")
    assert "broken/state.db" in done.stderr
    assert done.stderr.rstrip().endswith("left out")


def test_the_settings_may_name_a_run_of_this_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = local_run(here, "mine")
    monkeypatch.setenv("PROTEUS_DATABASE_URL", f"sqlite:///{directory}/state.db")
    forget_runtime()
    done = run(jobs, "--json", "-")
    assert len(json.loads(done.stdout)["jobs"]) == 1


@pytest.mark.parametrize("width", [None, 80, 60])
def test_what_a_local_run_cost_is_found_by_its_name(
    here: Path, monkeypatch: pytest.MonkeyPatch, width: int | None
) -> None:
    monkeypatch.setattr(proteus_spot.flows.terminal.tables, "terminal_width", lambda: width)
    directory = here / "runs" / JOB
    directory.mkdir(parents=True)
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        record_job(store, hours=1)
        spent = store.purchases.spent(JOB)
        markets = {str(record.allocation.market) for record in store.purchases.allocations(JOB)}
    told = json.loads(run(cost, JOB, "--json", "-").stdout)
    assert round(told["spent_usd"] * 1e6) == spent > 0
    assert json.loads(run(cost, "--json", "-").stdout) == told
    assert json.loads(run(cost, JOB, "--dir", directory, "--json", "-").stdout) == told
    done = run(cost, JOB).stdout
    assert {row["market"] for row in told["rows"]} <= markets & set(done.split())
    assert f"${spent / 1e6:.4f}" in done.split()
    assert max(map(len, done.splitlines())) <= (width or 1000)


def test_stopping_a_local_run_that_was_interrupted_says_what_ends_it(here: Path) -> None:
    directory = local_run(here, "mine")
    done = run(stop, "mine", "--reason", "enough")
    assert done.exit_code == 0, done.output
    assert "was interrupted: nothing of it runs or costs" in done.output
    assert f"proteus run --job mine --dir {directory}" in done.output
    assert (listed()["mine"]["state"], listed()["mine"]["why"]) == ("stopping", "enough")
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        store.jobs.observe("mine", START_S, ObservationKind.COMMAND, {"command": "proteus run --as before"})
    assert "`proteus run --as before` ends it" in run(stop, "mine").output


@pytest.mark.parametrize("place", ["--dir", "--database"])
def test_a_local_run_that_is_under_way_is_stopped_without_a_controller(here: Path, place: str) -> None:
    directory = local_run(here, "mine")
    where = directory if place == "--dir" else f"sqlite:///{directory}/state.db"
    with own_directory(directory):
        done = run(stop, "mine", "--reason", "enough", place, where)
    assert done.exit_code == 0, done.output
    assert "job mine is stopping (enough)" in done.output
    mine = listed()["mine"]
    assert (mine["state"], mine["why"]) == ("stopping", "enough")


def test_stopping_a_local_run_at_once_waits_for_its_process(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = local_run(here, "mine")
    monkeypatch.setattr("proteus_spot.tasks.supervision.stop_answer._LOCAL_S", 0.5)
    with own_directory(directory):
        done = run(stop, "mine", "--now", "--json", "-")  # no process carries it out
    assert json.loads(done.stdout)["failed"]
    assert done.exit_code == 1
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        assert store.jobs.job("mine").stop_now


def test_a_stop_of_a_job_that_has_ended_says_so(here: Path) -> None:
    directory = local_run(here, "mine")
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        store.jobs.move_job("mine", JobState.FAILED, 2000.0, failure="as it goes")
    for arguments in ((), ("--now",), ("--dir", directory)):
        done = run(stop, "mine", *arguments)
        assert (done.exit_code, done.output) == (0, "job mine is failed (as it goes)\nno machine of it is left\n")


def test_cost_lists_what_the_ledger_does_not_count_and_estimates_bytes_between_zones(here: Path) -> None:
    directory = here / "runs" / JOB
    directory.mkdir(parents=True)
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        record_job(store, hours=1)
        assert json.loads(run(cost, JOB, "--json", "-").stdout)["estimates"] == []
        pair = {"us-east-1a/us-east-1a": 5, "us-east-1a/us-east-1b": 1_500_000_000}
        store.jobs.observe(JOB, START_S, ObservationKind.TRAFFIC, {"bytes_by_zones": pair, "model_bytes": 1})
    told = json.loads(run(cost, JOB, "--json", "-").stdout)
    assert told["estimates"] == [{"job": JOB, "bytes_by_zones": pair, "crossed_usd": pytest.approx(0.03)}]
    assert "public IPv4 addresses" in told["not_counted"]
    shown = run(cost, JOB).stdout
    assert f"{JOB}: 1.500 GB between zones, about $0.0300 at $0.02 a GB (an estimate, not in the ledger)" in shown
    assert "not in the ledger: volumes, the bucket and its requests; public IPv4 addresses" in shown


def test_a_page_is_shown_while_its_server_runs(here: Path) -> None:
    directory = local_run(here, "mine")
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        store.jobs.observe("mine", START_S, ObservationKind.PAGE, {"url": "http://127.0.0.1:9/artifacts/artifact/1"})
    assert listed()["mine"]["page"] is None, "the server of an interrupted run has ended"
    with own_directory(directory):
        assert listed()["mine"]["page"] == "http://127.0.0.1:9/artifacts/artifact/1"


def test_eighty_columns_keep_how_far_a_job_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_run(here, "mine")
    monkeypatch.setattr(proteus_spot.flows.terminal.tables, "terminal_width", lambda: 80)
    head, row = run(jobs).output.splitlines()[:2]
    for column in ("job", "state", "clock", "loss", "machines", "spent"):
        assert f"{column} " in head
    assert "began" not in head
    assert "0.5000" in row


def test_a_job_of_a_run_that_is_not_under_way_is_paused(here: Path) -> None:
    directory = local_run(here, "mine")
    assert (listed()["mine"]["state"], listed()["mine"]["paused"]) == ("starting", True)
    assert "paused" in run(jobs).output
    with own_directory(directory):
        assert not listed()["mine"]["paused"]
        assert "paused" not in run(jobs).output
