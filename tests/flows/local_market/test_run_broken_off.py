"""`proteus run` is broken off, stopped from another terminal, and goes on from where it was."""

import json
import re
import shlex
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from tests.support.cli_process import (
    Outcome,
    Running,
    bill_micros,
    market_log,
    processes_of,
    proteus,
    running,
    wait_gone,
)
from tests.support.local_runs import CALM, FAST, PACED
from tests.support.market_servers import wait_for
from tests.support.run_markets import ON_DEMAND
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def begun(tmp_path: Path, flat: Path) -> Iterator[Running]:
    with running(
        tmp_path / "run", "--prices", str(flat), "--hours", "5", "--job", "begun", *PACED, *FAST, **CALM
    ) as run:
        yield run
    wait_gone(run.directory)


def _begun(run: Running) -> tuple[int, int]:
    """How often a node has joined and the training has begun or gone on, in all lives of the run so far."""
    logs = {log.parent.name: log.read_text(errors="replace") for log in run.directory.glob("machines/*/console.log")}
    joined = sum(text.count(f"node {name} joined ") for name, text in logs.items())
    return joined, sum(text.count("job is running\n") for text in logs.values())


def _trains(run: Running, before: tuple[int, int] = (0, 0)) -> None:
    """Wait until a spot machine works for the run, beside the reliable one; so much had happened in lives before."""

    def trains() -> bool:
        assert run.process.poll() is None, run.text()
        joined, begun = _begun(run)
        return joined >= before[0] + 2 and begun > before[1]

    wait_for(trains, "a second node at work", 60)


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("starting a Prefect API", signal.SIGINT),
        pytest.param("UI at", signal.SIGTERM, marks=pytest.mark.storm),  # its moment is a second signal's, too
    ],
)
def test_broken_off_at_start_up(begun: Running, said: str, number: signal.Signals) -> None:
    begun.wait_said(said)
    assert begun.signal(number) == 128 + number
    wait_gone(begun.directory)
    last = begun.text().splitlines()[-1]
    assert re.fullmatch(r"proteus: interrupted: .*(nothing was bought|\$0\.0000 spent).*--job .*", last), begun.text()


def _ended_well(run: Running, outcome: Outcome, prices: Path) -> dict[str, Any]:
    """Check that the job was run to its end, and that its money is the market's bill; return its figures."""
    assert outcome.code == 0, outcome
    result: dict[str, Any] = json.loads(outcome.out)
    assert (result["state"], result["lost_micro_tasks"]) == ("finished", 0)
    log = market_log(run.directory)
    assert all(instance["ended_at_s"] is not None for instance in log)
    assert round(result["ledger_usd"] * 1_000_000) == bill_micros(log, prices, ON_DEMAND, until_s=0)
    assert processes_of(run.directory) == []
    return result


@pytest.mark.storm  # half a minute of processors; `proteus up` is stopped so in test_up.py
def test_it_is_seen_and_stopped_from_another_terminal(tmp_path: Path, home: Path, flat: Path) -> None:
    options = ("--prices", str(flat), "--hours", "20", "--job", "begun", *PACED, *FAST)
    where = ("--dir", str(tmp_path / "run"))
    with running(tmp_path / "run", *options, **CALM) as run:
        _trains(run, (0, 0))
        listed = proteus("jobs", *where, "--json", "-", cwd=tmp_path, home=home)
        (job,) = json.loads(listed.out)["jobs"]
        assert (job["job_id"], job["state"], job["directory"]) == ("begun", "running", str(run.directory))
        assert 0 < job["market_s"] < 20 * 3600
        done = proteus("stop", "begun", *where, "--reason", "enough", cwd=tmp_path, home=home)
        assert done.code == 0, done
        first, *machines, last = done.out.splitlines()
        assert (first, last) == (
            "job begun is stopping (enough)",
            "its process saves the model, ends the machines, and ends",
        )
        assert sum("the training runs on it until the model is saved" in line for line in machines) == 1, machines
        assert run.process.wait(60 * PATIENCE) == 0, run.text()
    with closing(Store.open(f"sqlite:///{run.directory / 'state.db'}")) as store:
        ended = store.jobs.job("begun")
        assert ended.state is JobState.STOPPED
        assert (ended.result or {})["stopped"] == "enough"
    assert "begun: stopped" in run.text()
    assert "\nnext:\n" in run.text()


@pytest.mark.storm  # a minute and a half; tests/storms breaks a job off at ten moments
def test_broken_off_again_and_again_it_goes_on_from_where_it_was(tmp_path: Path, home: Path, flat: Path) -> None:
    options = ("--prices", str(flat), "--hours", "0.7", "--job", "begun", *PACED, *FAST)
    clocks, before = [], (0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        with running(tmp_path / "run", *options, **CALM) as run:
            _trains(run, before)
            code = run.signal(number)
        wait_gone(run.directory)
        before = _begun(run)
        assert "Traceback" not in run.text()
        if number is signal.SIGKILL:
            assert code == -number
            continue
        assert code == 128 + number
        last = run.text().splitlines()[-1]
        said = re.fullmatch(
            r"proteus: interrupted: job begun is paused at clock (\d+) \(\$\d\.\d+ spent\) and leaves nothing running; "
            r"to go on: \S*proteus run --job begun --dir (\S+) (.*)",
            last,
        )
        assert said, last
        assert said[2] == str(run.directory)
        assert sorted(shlex.split(said[3])) == sorted(word for word in options if word not in ("--job", "begun"))
        clocks.append(int(said[1]))
        with closing(Store.open(f"sqlite:///{run.directory / 'state.db'}")) as store:
            assert not store.jobs.job("begun").state.terminal
            until_s = json.loads((run.directory / "market.json").read_text())["now_s"]
            assert store.purchases.spent("begun") == bill_micros(market_log(run.directory), flat, ON_DEMAND, until_s)
    assert clocks == sorted(clocks)

    other = proteus("run", *options, "--dir", "run", "--seed", "1", cwd=tmp_path, home=home, **CALM)
    assert (other.code, "was begun before with other options" in other.err) == (2, True), other
    other = proteus("run", *options, "--dir", "run", "--scale", "60", cwd=tmp_path, home=home, **CALM)
    assert other.err == "proteus: --scale 60: job begun was begun at 100; give that\n"

    again = proteus("run", *options, "--dir", "run", "--json", "-", cwd=tmp_path, home=home, **CALM)
    assert "job begun: goes on after " in again.err
    result = _ended_well(run, again, flat)
    with closing(Store.open(f"sqlite:///{run.directory / 'state.db'}")) as store:
        told = store.jobs.job("begun").result
        assert told is not None
        assert [clock for clock, _ in told["losses"]] == list(range(1, result["clocks"] + 1)), "each clock once"
        reliable = [record for record in store.purchases.allocations("begun") if record.allocation.bid_micros is None]
        assert len(reliable) == 1, "no machine was bought twice"
    with closing(sqlite3.connect(run.directory / "prefect" / "prefect.db")) as prefect:
        query = "select s.type, count(*) from flow_run r join flow_run_state s on r.state_id = s.id group by s.type"
        states = dict(prefect.execute(query).fetchall())
    assert set(states) == {"COMPLETED", "CRASHED"}, "what was cut off does not run on in the UI"
    assert states["CRASHED"] >= 1


@pytest.mark.storm  # most of a minute
def test_broken_off_while_the_last_hours_run_out(tmp_path: Path, home: Path, flat: Path) -> None:
    options = ("--prices", str(flat), "--hours", "5", "--clocks", "20", "--job", "begun", *PACED, *FAST)
    with running(tmp_path / "run", *options, **CALM) as run:
        run.wait_said("the market's clock jumps")
        assert run.signal(signal.SIGINT) == 130
        wait_gone(run.directory)
        last = run.text().splitlines()[-1]
        assert re.fullmatch(r"proteus: interrupted: job begun is trained \(\$.*; to see its end: .*--dir .*", last)
    again = proteus("run", *options, "--dir", "run", "--json", "-", cwd=tmp_path, home=home, **CALM)
    assert _ended_well(run, again, flat)["clocks"] == 20


def test_a_second_signal_ends_it_at_once(begun: Running) -> None:
    begun.wait_said("UI at")
    begun.process.send_signal(signal.SIGINT)
    begun.process.send_signal(signal.SIGTERM)
    assert begun.process.wait(5 * PATIENCE) in (130, 143)
    wait_gone(begun.directory)
