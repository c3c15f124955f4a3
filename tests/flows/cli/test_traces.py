"""`proteus traces`: what it prints, what it writes for machines, and how it refuses."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from matplotlib.image import imread

from proteus_spot.bidding.market.trace_statistics import TraceStatistics
from proteus_spot.flows.cli.commands.market_data.traces import traces
from proteus_spot.infra.errors import InputError


def run(*arguments: str | Path) -> Result:
    """Run the group in this process; what it raises is raised here."""
    return CliRunner().invoke(traces, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def market(tmp_path: Path) -> Path:
    path = tmp_path / "market.csv.gz"
    done = run("generate", path, "--days", "3", "--seed", "7", "--zones", "us-east-1a, us-east-1b,us-east-1a")
    assert done.exit_code == 0, done.output
    assert "8 markets" in done.stdout
    assert "2016-06-01 to 2016-06-0" in done.stdout
    return path


def test_a_file_is_described_as_a_table_and_as_a_picture(market: Path) -> None:
    picture = market.with_name("p.png")
    done = run("describe", market, "--picture", picture)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    row, likeness = (line.split() for line in lines if line.startswith("c4.xlarge/us-east-1b"))
    assert len(row) == 12, row
    assert row[7] == "0.2090"
    assert len(likeness) == 13, likeness
    assert "changes/h" in done.stdout
    assert imread(picture).std() > 0.05


def test_figures_for_machines_go_alone_to_standard_output(market: Path) -> None:
    done = run("describe", market, market, "--market", "m4.large/us-east-1a", "--json", "-")
    found = json.loads(done.stdout)
    assert [file["file"] for file in found["files"]] == [str(market)] * 2
    (held,) = found["files"][0]["markets"]
    assert held["market"] == "m4.large/us-east-1a"
    assert held["min_usd"] <= held["mean_usd"] <= held["max_usd"]
    assert set(held["statistics"]) == {field.name for field in fields(TraceStatistics)}
    assert 0 < held["statistics"]["level"] < 1


def test_every_form_is_converted_and_described_the_same(market: Path) -> None:
    figures: list[Any] = []
    for before, name in (("market.csv.gz", "a.json"), ("a.json", "b.parquet"), ("b.parquet", "c.csv")):
        done = run("convert", market.with_name(before), market.with_name(name), "--json", market.with_name("out.json"))
        assert done.exit_code == 0
        assert json.loads(market.with_name("out.json").read_text())["markets"] == 8
        said = json.loads(run("describe", market.with_name(name), "--json", "-").stdout)["files"][0]
        figures.append({key: value for key, value in said.items() if key != "file"})
    assert figures[0] == figures[1] == figures[2]


def test_a_price_list_becomes_a_catalogue_that_describe_takes(market: Path) -> None:
    columns = "TermType,Unit,PricePerUnit,Currency,Instance Type,vCPU,Memory,Location,Operating System,Tenancy"
    head = f"a\nb\nc\nd\ne\n{columns}\n"
    rows = [
        f"OnDemand,Hrs,0.5,USD,{name},2,4 GiB,US East (N. Virginia),Linux,Shared\n"
        for name in ("c4.large", "c4.xlarge", "m4.large", "r3.large")
    ]
    rows += ["OnDemand,Hrs,0.5,USD,a,2,4 GiB,x,Linux,Shared\n", "OnDemand,Hrs,0.6,USD,a,2,4 GiB,x,Linux,Shared\n"]
    (market.parent / "index.csv").write_text(head + "".join(rows))
    done = run("convert", "--price-list", market.parent / "index.csv", market.parent / "c.csv")
    assert "4 instance types" in done.stdout
    assert "several prices: a/x" in done.stdout
    found = json.loads(run("describe", market, "--catalog", market.parent / "c.csv", "--json", "-").stdout)
    assert {held["on_demand_usd"] for held in found["files"][0]["markets"]} == {0.5}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe", "none.csv"], "none.csv: there is no such file"),
        (["describe", "{market}", "{market}", "--picture", "{folder}/p.png"], "one picture shows one file"),
        (["describe", "{market}", "--picture", "{folder}/p.txt"], "end it with .png"),
        (["describe", "{market}", "--product", "Windows"], "no rows of product 'Windows'"),
        (["describe", "{market}", "--json", "{folder}/none/x"], "--json .*none/x: there is no directory"),
        (["convert", "{market}"], "want IN and OUT, not 1 name$"),
        (["convert", "a", "b", "c"], "want IN and OUT, not 3 names"),
        (["convert", "{market}", "{folder}/x.csv", "--region", "x"], "--region: is for --price-list"),
        (["convert", "a", "b", "--price-list", "c"], "want OUT alone"),
        (["convert", "{market}", "{folder}/x.xls"], "x.xls: the name's ending"),
        (["generate", "{folder}/x.csv", "--days", "-1"], "--days -1"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(market: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        run(*(argument.format(market=market, folder=market.parent) for argument in arguments))
    assert caught.value.exit_code == 2
    assert [path.name for path in market.parent.iterdir()] == [market.name]


@pytest.mark.parametrize("verb", ["describe", "generate", "convert"])
def test_help_has_an_example(verb: str) -> None:
    done = run(verb, "--help")
    assert done.exit_code == 0
    assert "Example" in done.output
    assert f"\n    proteus traces {verb} " in done.output, "on a line of its own"
