"""`proteus run` as a user runs it: its bill is the market's, its JSON is whole, it can be broken off, nothing is left.

The bill is recomputed from the market's own record and the price file by `tests.support.cli_process.bill_micros`.
"""

import json
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from infra.clock import ScaledClock
from infra.simulated_ec2.faults import Fault, FaultKind
from infra.simulated_ec2.market import SimSpotMarket
from infra.simulated_ec2.server import Endpoint
from infra.state.records import JobState
from infra.state.store import Store
from tests.support import slow_apps as paced
from tests.support.cli_process import (
    ODD_NAME,
    PROTEUS,
    Outcome,
    Running,
    bill_micros,
    environment,
    market_log,
    processes_of,
    proteus,
    running,
    wait_gone,
)
from tests.support.market_servers import SIGNED, TRACES, ManualClock, served, sold, wait_for
from tests.support.run_markets import BEGIN_S, CHEAP, ON_DEMAND, SECOND, THIRD, write_changes
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FAST = ("--scale", "100", "--max-vcpus", "4")
#: Of a run whose every tick counts, also on a computer that has other things to do.
STEADY = ("--scale", "50", "--max-vcpus", "4")
#: Ticks that are kept also where other tests run beside this one.
CALM = {"PROTEUS_TICK_S": "400", "PROTEUS_RENEWAL_LEAD_S": "480"}
#: A job of which only its life matters; its kernels leave the processors to other tests.
PACED = ("--app", "slow_apps:Paced", "--code", str(Path(paced.__file__)))
FIGURES = {
    "job": str,
    "state": str,
    "why": str,
    "late_seconds": type(None),
    "ledger_usd": float,
    "refunded_usd": float,
    "on_demand_usd": float,
    "cost_vs_on_demand": float,
    "market_seconds": float,
    "real_seconds": float,
    "machine_hours": dict,
    "acquisitions": int,
    "hour_end_decisions": int,
    "evictions": int,
    "notices": int,
    "accuracy": float,
    "metrics": dict,
    "clocks": int,
    "repeated_micro_tasks": int,
    "lost_micro_tasks": int,
    "app": str,
    "seed": int,
    "policy": str,
    "directory": str,
    "report": str,
    "model": str,
}
TAKEN = 5_000_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A market in which nobody is ever taken."""
    path = tmp_path_factory.mktemp("flat") / "prices.csv"
    return write_changes(path, {CHEAP: [(0, 10_000)], SECOND: [(0, 12_000)]})


@pytest.fixture
def slow_market(tmp_path: Path) -> Iterator[tuple[SimSpotMarket, Endpoint]]:
    """A market that takes its time, so that a tick takes longer than its period lasts at a scale of 60."""
    clock = ManualClock(float(BEGIN_S))
    market = SimSpotMarket(TRACES, sold, clock.now_s)
    market.add_fault(Fault(FaultKind.DELAY, operation="describe", delay_s=1.0))  # a flow looks once, a tick three times
    with served(market, clock, tmp_path / "machines") as endpoint:
        yield market, endpoint


def test_a_scale_that_flows_here_cannot_keep_is_refused(
    tmp_path: Path, home: Path, slow_market: tuple[SimSpotMarket, Endpoint]
) -> None:
    market, endpoint = slow_market
    options = ("--endpoint", endpoint.url, "--dir", str(tmp_path / "run"), "--scale", "100")
    outcome = proteus("run", *options, cwd=tmp_path, home=home, timeout_s=150, **SIGNED)
    assert outcome.code == 2, outcome
    refused = (
        r"PROTEUS_TICK_S: 120 s pass in 1\.20 s at scale 100, and a flow takes (\d+\.\d\d) s here; use a scale of at .*"
    )
    said = re.search(f"proteus: {refused}\n", outcome.err)
    assert said is not None, outcome
    assert float(said[1]) >= 3.0
    assert market.log() == []
    wait_gone(tmp_path / "run")


@pytest.mark.storm  # most of a minute
def test_a_scale_that_flows_here_can_keep_is_taken(tmp_path: Path, slow_market: tuple[SimSpotMarket, Endpoint]) -> None:
    _, endpoint = slow_market
    with running(tmp_path / "slower", "--endpoint", endpoint.url, "--job", "slower", **SIGNED) as run:
        run.wait_said(r"at a scale of \d+, not 60: a tick takes \d+\.\d\d s here")
        taken = re.search(r"at a scale of (\d+), not 60", run.text())
        assert taken is not None
        assert ScaledClock(run.directory / "clock.json").scale == float(taken[1]) < 60
        run.signal(signal.SIGINT)
    wait_gone(run.directory)


# -- the bill -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory, home: Path) -> tuple[Path, Path, Outcome]:
    """A run over a market that takes the cheapest machines in their first hour and the next ones after a renewal."""
    here = tmp_path_factory.mktemp("eventful") / ODD_NAME
    here.mkdir()
    prices = write_changes(
        here / "prices.csv",
        {
            CHEAP: [(0, 10_000), (25, TAKEN)],
            SECOND: [(0, 12_345), (70, 12_400), (94, TAKEN)],
            THIRD: [(0, 20_777)],
        },
    )
    command = eventful_command(here, prices)
    for _ in range(4):
        outcome = proteus(*command, "--json", "out.json", cwd=here, home=home, timeout_s=250, **CALM)
        if outcome.code != 2 or "use a scale of at most" not in outcome.err:
            break
        shutil.rmtree(here / "run")  # other tests had the processors when the run measured how long a flow takes
    return here, prices, outcome


def eventful_command(here: Path, prices: Path) -> list[str]:
    command = ["run", "--prices", str(prices), "--hours", "1.85", "--job", "eventful", "--dir", str(here / "run")]
    command += ["--policy", "proteus"]  # it bids above the small rise
    command += ["--app", "slow_apps:SlowMlr", "--code", PACED[-1]]
    return [*command, "--param", "features=1024", "--param", "gamma=0.1", "--param", "step=4.0", *STEADY]


@pytest.fixture(scope="module")
def figures(eventful: tuple[Path, Path, Outcome]) -> dict[str, Any]:
    here, _, outcome = eventful
    assert outcome.code == 0, outcome
    result: dict[str, Any] = json.loads((here / "out.json").read_text())
    return result


def test_the_ledger_is_the_bill_to_the_micro_dollar(
    eventful: tuple[Path, Path, Outcome], figures: dict[str, Any]
) -> None:
    here, prices, _ = eventful
    log = market_log(here / "run")
    assert all(instance["ended_at_s"] is not None for instance in log)
    spot = [instance for instance in log if instance["bid_micros"] is not None]
    in_hour = [((i["ended_at_s"] - i["launched_at_s"]) // 3600, i["end_cause"]) for i in spot]
    assert (0, "evicted") in in_hour, "an eviction in the first hour"
    assert (1, "evicted") in in_hour, "an eviction after a renewal"
    assert any(cause == "user" for _, cause in in_hour), "a lapse"
    assert any(instance["bid_micros"] is None for instance in log), "a machine on demand"

    bill = bill_micros(log, prices, ON_DEMAND, until_s=0)
    assert round(figures["ledger_usd"] * 1_000_000) == bill
    with closing(Store.open(f"sqlite:///{here / 'run' / 'state.db'}")) as store:
        assert store.spent("eventful") == bill
        assert not store.allocations("eventful", alive=True)


def test_the_json_says_all_that_happened(eventful: tuple[Path, Path, Outcome], figures: dict[str, Any]) -> None:
    log = market_log(eventful[0] / "run")
    assert {name: type(value) for name, value in figures.items()} == FIGURES
    assert (figures["job"], figures["state"]) == ("eventful", "finished")
    spot = {i["token"]: i["end_cause"] for i in log if i["bid_micros"] is not None}
    assert figures["acquisitions"] == len(spot)
    assert figures["evictions"] == sum(cause == "evicted" for cause in spot.values()) >= 2
    # A machine whose node has not started before its two minutes begin is never asked; on a busy computer that is one.
    assert 1 <= figures["notices"] <= figures["evictions"]
    over = sum((i["ended_at_s"] - i["launched_at_s"]) >= 3540 - 240 for i in log if i["bid_micros"] is not None)
    assert 2 <= figures["hour_end_decisions"] <= over, "each hour's end is decided once"
    assert figures["accuracy"] >= 0.95
    assert figures["clocks"] > 0
    assert figures["lost_micro_tasks"] == 0
    assert figures["repeated_micro_tasks"] >= 0
    assert figures["refunded_usd"] > 0
    assert figures["cost_vs_on_demand"] == pytest.approx(figures["ledger_usd"] / figures["on_demand_usd"])
    assert set(figures["machine_hours"]) == {"on_demand", "paid", "free"}
    lived = sum(i["ended_at_s"] - i["launched_at_s"] for i in log) / 3600
    assert sum(figures["machine_hours"].values()) == pytest.approx(lived)


def test_the_terminal_is_told_the_same(eventful: tuple[Path, Path, Outcome], figures: dict[str, Any]) -> None:
    outcome = eventful[2]
    assert outcome.err == ""
    assert f"${figures['ledger_usd']:.4f}" in outcome.out
    assert f"{figures['accuracy']:.4f}" in outcome.out
    assert re.search(r"clock +\d+ +loss \d", outcome.out), "progress in plain lines"
    assert "Traceback" not in outcome.out


def test_the_next_commands_can_be_pasted(
    eventful: tuple[Path, Path, Outcome], figures: dict[str, Any], tmp_path: Path
) -> None:
    lines = eventful[2].out.splitlines()
    at = lines.index("next:")
    assert lines[at - 2 : at] == [f"report: {figures['report']}", f"model: {figures['model']}"]
    assert all(Path(figures[name]).exists() for name in ("report", "model", "directory"))
    assert (figures["app"], figures["policy"]) == ("slow_apps:SlowMlr", "proteus")
    predicts, costs, logs = (shlex.split(line) for line in lines[at + 1 :])
    assert [words[:2] for words in (predicts, costs, logs)] == [
        ["proteus", verb] for verb in ("predict", "cost", "logs")
    ]
    done = [proteus(*words[1:], cwd=tmp_path, home=tmp_path / "home") for words in (predicts, costs, logs)]
    assert [outcome.code for outcome in done] == [0, 0, 0], done
    assert f"${figures['ledger_usd']:.4f}" in done[1].out
    page = Path(figures["report"]).read_text()
    assert f'<a href="file://{escape(figures["model"])}">' in page
    assert "<dt>repeat</dt><dd><code>proteus run --job eventful --dir" in page


def test_nothing_is_left_of_a_run(eventful: tuple[Path, Path, Outcome], figures: dict[str, Any]) -> None:
    assert processes_of(eventful[0] / "run") == []


def test_nothing_is_written_but_in_its_directory(
    eventful: tuple[Path, Path, Outcome], figures: dict[str, Any], home: Path
) -> None:
    assert sorted(path.name for path in eventful[0].iterdir()) == ["out.json", "prices.csv", "run"]
    assert [path.name for path in eventful[0].parent.iterdir()] == [ODD_NAME]
    assert (eventful[0] / "run" / "blobs" / "jobs" / "eventful" / "model" / "manifest.json").is_file()
    assert not [path.name for path in home.iterdir() if "proteus" in path.name.lower() or path.name == ".prefect"]


# -- run again ------------------------------------------------------------------------------------------------------


def test_the_same_job_again_is_told_again_as_json_alone_and_another_is_refused(
    eventful: tuple[Path, Path, Outcome], figures: dict[str, Any], home: Path
) -> None:
    here, prices, _ = eventful
    command = eventful_command(here, prices)
    log = market_log(here / "run")
    again = proteus(*command, "--json", "-", cwd=here, home=home, **CALM)
    assert again.code == 0, again
    assert json.loads(again.out) | {"real_seconds": 0} == figures | {"real_seconds": 0}
    assert "was run to its end before" in again.err
    assert market_log(here / "run") == log, "nothing was bought"

    other = proteus(*command, "--seed", "1", cwd=here, home=home, **CALM)
    assert other.code == 2
    assert "was begun before with other options" in other.err


# -- broken off -----------------------------------------------------------------------------------------------------


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
        ended = store.job("begun")
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
            r"to go on: proteus run --job begun --dir (\S+) (.*)",
            last,
        )
        assert said, last
        assert said[2] == str(run.directory)
        assert sorted(shlex.split(said[3])) == sorted(word for word in options if word not in ("--job", "begun"))
        clocks.append(int(said[1]))
        with closing(Store.open(f"sqlite:///{run.directory / 'state.db'}")) as store:
            assert not store.job("begun").state.terminal
            until_s = json.loads((run.directory / "market.json").read_text())["now_s"]
            assert store.spent("begun") == bill_micros(market_log(run.directory), flat, ON_DEMAND, until_s)
    assert clocks == sorted(clocks)

    other = proteus("run", *options, "--dir", "run", "--seed", "1", cwd=tmp_path, home=home, **CALM)
    assert (other.code, "was begun before with other options" in other.err) == (2, True), other
    other = proteus("run", *options, "--dir", "run", "--scale", "60", cwd=tmp_path, home=home, **CALM)
    assert other.err == "proteus: --scale 60: job begun was begun at 100; give that\n"

    again = proteus("run", *options, "--dir", "run", "--json", "-", cwd=tmp_path, home=home, **CALM)
    assert "job begun: goes on after " in again.err
    result = _ended_well(run, again, flat)
    with closing(Store.open(f"sqlite:///{run.directory / 'state.db'}")) as store:
        told = store.job("begun").result
        assert told is not None
        assert [clock for clock, _ in told["losses"]] == list(range(1, result["clocks"] + 1)), "each clock once"
        reliable = [record for record in store.allocations("begun") if record.allocation.bid_micros is None]
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


def test_the_check_sees_a_process_that_is_left(tmp_path: Path) -> None:
    """The check above must be able to fail."""
    process = subprocess.Popen(["sleep", "30"], env=environment(tmp_path / "home"), cwd=tmp_path)
    try:
        wait_for(lambda: bool(processes_of(tmp_path)), "the process")
    finally:
        process.kill()
        process.wait()
    assert processes_of(tmp_path) == []
    assert Path(PROTEUS).exists()
