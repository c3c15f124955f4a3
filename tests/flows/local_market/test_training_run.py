"""`proteus run` as a user runs it: its bill is the market's, its JSON is whole, and nothing is left.

The bill is recomputed from the market's own record and the price file by `tests.support.cli_process.bill_micros`.
"""

import json
import re
import shlex
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from proteus_spot.infra.state.store import Store
from tests.support.cli_process import (
    ODD_NAME,
    PROTEUS,
    Outcome,
    bill_micros,
    environment,
    market_log,
    processes_of,
    proteus,
)
from tests.support.local_runs import CALM, PACED, STEADY
from tests.support.market_servers import wait_for
from tests.support.run_markets import CHEAP, ON_DEMAND, SECOND, THIRD, write_changes

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
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
    command += ["slow_apps:SlowMlr", "--code", PACED[-1]]
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
        assert store.purchases.spent("eventful") == bill
        assert not store.purchases.allocations("eventful", alive=True)


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
    assert re.findall(r"^(\d/4) ", outcome.out, re.MULTILINE) == ["1/4", "2/4", "3/4", "4/4"], "no long silence"
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
    assert [(Path(words[0]).name, words[1]) for words in (predicts, costs, logs)] == [
        ("proteus", verb) for verb in ("predict", "cost", "logs")
    ]
    done = [proteus(*words[1:], cwd=tmp_path, home=tmp_path / "home") for words in (predicts, costs, logs)]
    assert [outcome.code for outcome in done] == [0, 0, 0], done
    assert f"${figures['ledger_usd']:.4f}" in done[1].out
    page = Path(figures["report"]).read_text()
    assert f'<a href="file://{escape(figures["model"])}">' in page
    assert re.search(r"<dt>repeat</dt><dd><code>\S*proteus run slow_apps:SlowMlr --job eventful --dir", page)


def test_nothing_is_left_of_a_run(eventful: tuple[Path, Path, Outcome], figures: dict[str, Any]) -> None:
    assert processes_of(eventful[0] / "run") == []


def test_nothing_is_written_but_in_its_directory(
    eventful: tuple[Path, Path, Outcome], figures: dict[str, Any], home: Path
) -> None:
    assert sorted(path.name for path in eventful[0].iterdir()) == ["out.json", "prices.csv", "run"]
    assert [path.name for path in eventful[0].parent.iterdir()] == [ODD_NAME]
    assert (eventful[0] / "run" / "blobs" / "jobs" / "eventful" / "model" / "manifest.json").is_file()
    assert not [path.name for path in home.iterdir() if "proteus" in path.name.lower() or path.name == ".prefect"]


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
