"""A price file of several regions: each verb prices a market by its own region, or refuses in one line."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.commands.market_data.evictions import evictions
from proteus_spot.flows.cli.commands.market_data.traces import traces
from proteus_spot.flows.cli.commands.planning.backtest import backtest
from proteus_spot.flows.cli.commands.planning.plan import plan
from proteus_spot.flows.cli.commands.training.run import run
from proteus_spot.infra.errors import InputError

HEAD = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h\n"
EAST, WEST = ("m4.large/us-east-1a", "m4.large/eu-west-1b")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two regions with the same prices for three days, and catalogues in which they differ and do not."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"2016-04-{1 + hour // 24:02}T{hour % 24:02}:00:00Z,m4.large,{zone},Linux/UNIX,0.0{2 + hour % 3}"
        for hour in range(72)
        for zone in ("us-east-1a", "eu-west-1b")
    ]
    (tmp_path / "p.csv").write_text("\n".join(["timestamp,instance_type,az,product,price", *rows]) + "\n")
    (tmp_path / "c.csv").write_text(HEAD + "m4.large,us-east-1,2,8,0.12\nm4.large,eu-west-1,2,8,0.132\n")
    (tmp_path / "same.csv").write_text(HEAD + "m4.large,us-east-1,2,8,0.12\nm4.large,eu-west-1,2,8,0.12\n")
    return tmp_path


def called(command: click.Command, line: str) -> Any:
    """Return what the command prints as JSON."""
    done = CliRunner().invoke(command, line.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


PLAN = "--prices p.csv --hours 1 --starts 2 --json -"
BACKTEST = "--prices p.csv --hours 1 --starts 2 --scheme on-demand --zones all --json -"
VERBS = {"plan": (plan, PLAN), "backtest": (backtest, BACKTEST)}


def test_describe_shows_each_market_beside_its_own_region(folder: Path) -> None:
    found = called(traces, "describe p.csv --catalog c.csv --json -")["files"][0]["markets"]
    assert {each["market"]: each["on_demand_usd"] for each in found} == {EAST: 0.12, WEST: 0.132}


def test_describe_says_which_zone_the_shipped_catalogue_lacks(folder: Path) -> None:
    done = CliRunner().invoke(traces, ["describe", "p.csv"], catch_exceptions=False)
    assert "note: zone eu-west-1b lies in no region of the catalogue (us-east-1): no on-demand price" in done.stdout


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--catalog c.csv",
            r"p\.csv: instance type m4\.large costs differently on demand in eu-west-1 and us-east-1; ch",
        ),
        ("", r"p\.csv: zone eu-west-1b lies in no region of the shipped catalogue \(us-east-1\); give a --catalog"),
        (
            "--catalog c.csv --region us-west-2",
            r"c\.csv: has no rows of region 'us-west-2'; it has us-east-1, eu-west-1",
        ),
    ],
)
def test_one_price_for_several_regions_is_refused(folder: Path, verb: str, options: str, said: str) -> None:
    command, line = VERBS[verb]
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(command, [*line.split(), *options.split()], catch_exceptions=False)
    assert caught.value.exit_code == 2
    assert re.match(said, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "options", ["--catalog c.csv --region eu-west-1", f"--catalog c.csv --market {EAST}", "--catalog same.csv"]
)
def test_a_region_or_a_market_chooses_and_equal_prices_need_none(folder: Path, verb: str, options: str) -> None:
    command, line = VERBS[verb]
    assert called(command, f"{line} {options}")


def test_plan_compares_with_the_region_that_was_chosen(folder: Path) -> None:
    chosen = {
        region: called(plan, f"{PLAN} --catalog c.csv --region {region}") for region in ("us-east-1", "eu-west-1")
    }
    prices = {region: {each["on_demand_usd"] for each in found["candidates"]} for region, found in chosen.items()}
    assert prices == {"us-east-1": {0.12}, "eu-west-1": {0.132}}


def test_run_refuses_markets_of_two_regions(folder: Path) -> None:
    line = "--prices p.csv --catalog c.csv mlr --hours 1 --dir out"
    with pytest.raises(InputError, match=r"costs differently on demand in eu-west-1 and us-east-1; .* by --market"):
        CliRunner().invoke(run, line.split(), catch_exceptions=False)


def test_an_eviction_model_that_reads_on_demand_prices_asks_for_the_region(folder: Path) -> None:
    with pytest.raises(InputError, match=r"p\.csv: zone eu-west-1b lies in no region of the catalogue \(us-east-1\)"):
        CliRunner().invoke(
            evictions, ["fit", "--prices", "p.csv", "--model", "conditioned", "--out", "m.npz"], catch_exceptions=False
        )
    assert not (folder / "m.npz").exists()
