"""The tables of every verb at 80 and 60 columns, and piped: no line is too wide, and no market, id or figure is cut."""

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import proteus_spot.flows.terminal.tables
from proteus_spot.flows.cli.commands.inspection.logs import logs
from proteus_spot.flows.cli.commands.market_data.evictions import evictions
from proteus_spot.flows.cli.commands.market_data.traces import traces
from proteus_spot.flows.cli.commands.planning.backtest import backtest
from proteus_spot.flows.cli.commands.planning.bill import bill
from proteus_spot.flows.cli.commands.planning.plan import plan
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.node_logs import Incarnation, log_name
from tests.support.backtests import small_file

NODE = "i-0123456789abcdef0"
PRICES = ("--prices", "small.csv")
#: Verb -> how it is typed, what its table always has, and what it has while there is room.
VERBS: dict[str, tuple[click.Command, tuple[str, ...], str, str]] = {
    "backtest": (
        backtest,
        (*PRICES, "--hours", "1", "--starts", "4", "--threads", "1", "--reliable-counts", "1,2"),
        r"us-east-1b",
        r"\d\.\d{4}",
    ),
    "plan": (plan, (*PRICES, "--vcpu-hours", "500", "--starts", "4"), r"m4\.xlarge/us-east-1b", r"\$\d+\.\d\d"),
    "traces describe": (traces, ("describe", "small.csv"), r"m4\.xlarge/us-east-1b", r"\d\.\d{4}"),
    "evictions show": (evictions, ("show", "model.npz"), r"m4\.xlarge/us-east-1b", r"[\d.]+/[\d.]+/[\d.]+"),
    "evictions check": (
        evictions,
        ("check", "model.npz", *PRICES, "--allow-overlap"),
        r"model\.npz \(survival\)",
        r"0\.\d{4} ± 0\.\d{4}",
    ),
    "bill": (bill, (*PRICES, "--requests", "requests.csv"), r"m4\.xlarge/us-east-1a", r"\$\d+\.\d{4}"),
    "bill of one": (
        bill,
        (*PRICES, "--market", "m4.xlarge/us-east-1a", "--count", "3", "--bid", "9", "--at", "2016-06-02T00:00:00Z",
         "--hours", "3"),
        r"2016-06-02T02:00:00Z",
        r"\$\d+\.\d{6}",
    ),
    "logs": (logs, ("job-1", "--dir", "run"), NODE, r"20260601T120000\.250Z"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("widths")
    small_file(folder / "small.csv")
    (folder / "requests.csv").write_text(
        "type,zone,count,bid,at,until,hours\nm4.xlarge,us-east-1a,3,0.05,2016-06-02T00:00:00Z,,20\n"
    )
    fitted = CliRunner().invoke(
        evictions, ["fit", "--prices", str(folder / "small.csv"), "--out", str(folder / "model.npz")]
    )
    assert fitted.exit_code == 0, fitted.output
    run = folder / "run"
    run.mkdir()
    with Store.open(f"sqlite:///{run}/state.db") as store:
        store.jobs.create_job("job-1", {}, 1000.0)
    log = log_name("job-1", NODE, Incarnation("20260601T120000.250", "controller", 7))
    Blobs((run / "blobs").as_uri()).write_bytes(log, b"met\n" + b"w " * 400 + b"\n")
    return folder


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("width", [None, 80, 60])
@pytest.mark.parametrize("verb", VERBS)
def test_no_line_is_too_wide_and_nothing_is_cut(
    here: Path, monkeypatch: pytest.MonkeyPatch, verb: str, width: int | None
) -> None:
    monkeypatch.setattr(proteus_spot.flows.terminal.tables, "terminal_width", lambda: width)
    command, arguments, always, figure = VERBS[verb]
    done = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    text = done.stdout
    assert re.search(rf"(?<!\S){always}(?!\S)", text), text
    assert re.search(figure, text), text
    assert "…" not in re.sub(r"(?m)^.*w w w.*$", "", text), "only what a program wrote is shortened"
    lines = [line.rstrip() for line in text.splitlines()]
    table = [line for line in lines if "  " in line.strip()]  # a sentence has single blanks; the terminal breaks it
    if width is None:
        assert "left out, as" not in text
    else:
        assert max(map(len, table)) <= width, table


def test_the_figures_that_are_shown_are_those_of_the_json(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proteus_spot.flows.terminal.tables, "terminal_width", lambda: 80)
    _, arguments, _, _ = VERBS["backtest"]
    done = CliRunner().invoke(backtest, [*arguments, "--json", "out.json"], catch_exceptions=False)
    for row in json.loads((here / "out.json").read_text())["runs"]:
        assert re.search(
            rf"(?m)^{re.escape(row['scheme'])} +{row['zone']} +1 +{row['relative_cost']['mean']:.4f} ", done.stdout
        ), row
    (here / "out.json").unlink()
