"""`proteus backtest`: what it prints and writes, how it refuses, and that it can be interrupted."""

import json
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from proteus_spot.flows.cli.commands.planning.backtest import backtest
from proteus_spot.studies.backtest.backtest_spec import NAMES
from tests.support.backtests import small_file
from tests.support.cli_process import PROTEUS, environment, proteus, refusal_line, tree
from tests.support.price_rows import HEADER
from tests.support.timeouts import PATIENCE

SMALL = ("--hours", "1", "--starts", "8", "--threads", "1")
CATALOG = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a small price file, in which the verb is called."""
    monkeypatch.chdir(tmp_path)
    small_file(tmp_path / "small.csv")
    return tmp_path


def run(*arguments: str) -> Result:
    """Run the verb in this process; what it raises is raised here."""
    return CliRunner().invoke(backtest, [*arguments], catch_exceptions=False)


def test_the_table_the_json_and_the_csv(here: Path) -> None:
    before = set(tree(here))
    done = run("--prices", "small.csv", *SMALL, "--json", "out.json", "--csv", "out.csv")
    assert done.exit_code == 0
    result = json.loads((here / "out.json").read_text())
    assert [(run["scheme"], run["zone"]) for run in result["runs"]] == [
        (name, zone) for zone in ("us-east-1a", "us-east-1b", "all") for name in NAMES
    ]
    for row in result["runs"]:
        assert f"{row['relative_cost']['mean']:.4f}" in done.stdout
    assert (here / "out.csv").read_text().count("\n") == len(result["runs"]) + 1
    assert "fit on the first two thirds" in done.stderr
    assert set(tree(here)) - before == {"out.json", "out.csv"}


def test_json_on_standard_output_stands_alone(here: Path) -> None:
    done = run("--prices", "small.csv", *SMALL, "--scheme", "proteus,on-demand", "--zones", "all", "--json", "-")
    result = json.loads(done.stdout)
    assert [row["scheme"] for row in result["runs"]] == ["proteus", "on-demand"]
    assert set(result) >= {"fit", "runs", "elapsed_s"}


def test_the_same_request_gives_the_same_figures_another_seed_others(here: Path) -> None:
    def rows(*more: str) -> Any:
        options = ("--prices", "small.csv", *SMALL, "--scheme", "proteus", "--zones", "all", "--json", "-")
        return json.loads(run(*options, *more).stdout)["runs"]

    assert rows() == rows("--threads", "2") == rows("--seed", "0")
    assert rows() != rows("--seed", "1")
    assert rows() != rows("--lambda", "600")


def test_without_a_file_the_market_is_generated(here: Path) -> None:
    done = run(*SMALL, "--scheme", "on-demand", "--zones", "all")
    assert done.exit_code == 0
    assert "no --prices given: the prices are those of the generated market of seed 0" in done.stderr


def test_one_job_is_told(here: Path) -> None:
    done = run("--prices", "small.csv", "--scheme", "proteus", "--explain", "2016-06-08T12:00", "--json", "one.json")
    assert done.exit_code == 0
    told = json.loads((here / "one.json").read_text())
    assert (told["hours"], told["zone"], told["start"]) == (2, "all", "2016-06-08T12:00:00Z")
    for happening in told["happenings"]:
        assert happening["text"] in done.stdout
    assert re.search(r"06-08 12:00:00 \(\+0:00:00\) +\d+ vCPU  buys #1 .*\n +why: .* brings work from", done.stdout)


def test_checkpoints_as_often_as_the_fit_advises(here: Path) -> None:
    asked = ("--prices", "small.csv", "--scheme", "standard+checkpoint", "--zones", "all", "--json", "-")
    table = run(*asked, *SMALL, "--checkpoint-interval", "mean-time")
    story = run(*asked, "--explain", "2016-06-08T12:00", "--checkpoint-interval", "mean-time")
    for told in (table, story):
        assert re.search(r"a checkpoint every \d+ min, .* for a bid at the on-demand price lived", told.stderr)
    assert json.loads(table.stdout)["runs"] != json.loads(run(*asked, *SMALL).stdout)["runs"]


def test_a_window_that_overlaps_where_it_may_is_told(here: Path) -> None:
    options = ("--fit-to", "2016-06-07", "--from", "2016-06-06", "--allow-overlap", "--scheme", "on-demand")
    done = run("--prices", "small.csv", *SMALL, *options, "--json", "out.json")
    assert "not honest" in done.stderr
    assert json.loads((here / "out.json").read_text())["fit"]["overlaps_evaluation"] is True


# What is refused

#: Options behind --prices small.csv, and what the line must say.
BAD: Mapping[str, tuple[str, str]] = {
    "no such file": ("--prices none.csv", r"none\.csv: there is no such file"),
    "unsorted rows": ("--prices unsorted.csv", r"unsorted\.csv: row 4: earlier than the market's row before it"),
    "mixed currencies": ("--prices currencies.csv", r"currencies\.csv: row 3: currencies 'EUR' and 'USD'"),
    "mixed products": ("--prices products.csv", r"products\.csv: row 3: products 'Windows' and 'Linux/UNIX'"),
    "a gap": ("--prices gap.csv", r"the evaluation has a gap: no market has a price in the 144 h .*--allow-gaps"),
    "unknown type": (
        "--catalog catalog.csv",
        r"small\.csv: row \d+: instance type m4\.xlarge is not in the catalogue; give a --cat",
    ),
    "unknown type, shipped catalogue": ("--prices z9.csv", r"z9\.csv: instance type z9\.huge is not in the shipped"),
    "window before the file": ("--fit-from 2015-01-01", r"--fit-from 2015-01-01: begins outside the price file"),
    "window after the file": ("--from 2017-01-01", r"--from 2017-01-01: begins outside the price file, which has"),
    "empty evaluation": ("--from 2016-06-07 --to 2016-06-05", r"--from and --to: the evaluation is empty"),
    "empty fit": ("--fit-from 2016-06-05 --fit-to 2016-06-03", r"--fit-from and --fit-to: the fit is empty"),
    "no day": ("--to tomorrow", r"--to tomorrow: is not a UTC day or time; write 2016-05-01"),
    "overlap": ("--fit-to 2016-06-07 --from 2016-06-06", r"has seen what is evaluated .* or give --allow-overlap"),
    "unknown scheme": ("--scheme greedy", r"--scheme: there is no scheme 'greedy'; there are on-demand, standard\+ch"),
    "unknown zone": ("--zones us-east-1z", r"--zones us-east-1z: is not a zone .*some of us-east-1a, us-east-1b"),
    "no zone": ("--zones ,", r"--zones: "),
    "no hours": ("--hours 0", r"'--hours': 0 is below 1"),
    "hours are no number": ("--hours two", r"'--hours': 'two' is not a list of integers, as in 2,20"),
    "too many hours": ("--hours 400", r"--hours 400: a job of 400 h is given 1402 h; there are .* in the evaluation"),
    "no starts": ("--starts 0", r"'--starts': 0 is not in the range"),
    "no threads": ("--threads 0", r"'--threads': 0 is not in the range"),
    "unknown billing": ("--billing free", r"'--billing': 'free' is not one of 'hourly-refund', "),
    "negative overhead": ("--lambda -1", r"'--lambda': -1 is not in the range"),
    "no cap": ("--max-vcpus 0", r"'--max-vcpus': 0 is not in the range"),
    "unknown reference": ("--reference z9.huge", r"--reference z9\.huge: is not on sale"),
    "unknown market": ("--market m4.large/us-east-1a", r"--market m4\.large/us-east-1a: has no prices in small\.csv"),
    "no elasticity": ("--elasticity unsorted.csv", r"unsorted\.csv: .*write numbers of an elasticity, as in"),
    "elasticity of nothing": ("--elasticity list.json", r"list\.json: is not a JSON object; write numbers"),
    "no interval": ("--checkpoint-interval weekly", r"--checkpoint-interval: weekly is neither mean-time nor minutes"),
    "no time between checkpoints": (
        "--checkpoint-interval 5",
        r"--checkpoint-interval 5: overhead is 1\.02: .*minutes",
    ),
    "JSON in no directory": ("--json none/out.json", r"--json none/out\.json: there is no directory none; make it"),
    "CSV is a directory": ("--csv .", r"--csv \.: is a directory; name a file in it"),
    "report in no directory": ("--report none/out.html", r"--report none/out\.html: there is no directory none"),
    "explain two schemes": ("--explain 2016-06-08", r"--explain 2016-06-08: shows one job; give one --scheme of on-d"),
    "explain the bound": ("--explain 2016-06-08 --scheme clairvoyant", r"--explain 2016-06-08: shows one job"),
    "explain in the fit": (
        "--scheme proteus --explain 2016-06-02",
        r"--explain 2016-06-02 00:00: is not in the evalua",
    ),
    "explain no time": ("--scheme proteus --explain noon", r"--explain noon: is not a UTC day or time"),
    "explain as CSV": ("--scheme proteus --explain 2016-06-08 --csv a.csv", r"--explain: shows one job; --csv and"),
}


def _inputs(here: Path) -> None:
    def rows(name: str, *lines: str, header: str = HEADER) -> None:
        (here / name).write_text("\n".join([header, *lines]) + "\n")

    def row(day: int, price: str = "0.03", product: str = "Linux/UNIX", kind: str = "m4.xlarge") -> str:
        return f"2016-06-{day:02}T00:00:00Z,{kind},us-east-1a,{product},{price}"

    rows("unsorted.csv", row(1), row(3), row(2))
    rows("currencies.csv", row(1) + ",USD", row(2) + ",EUR", header=HEADER + ",currency")
    rows("products.csv", row(1), row(2, product="Windows"))
    rows("gap.csv", *(row(day) for day in (*range(1, 22), 27, 28, 29)))
    rows("z9.csv", *(row(day, kind="z9.huge") for day in range(1, 29)))
    rows("catalog.csv", "c4.xlarge,us-east-1,4,7.5,0.209", header=CATALOG)
    (here / "list.json").write_text("[]")


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_leaves_no_trace(here: Path, name: str) -> None:
    _inputs(here)
    options, says = BAD[name]
    before = tree(here)
    line = refusal_line(backtest, ["--prices", "small.csv", *options.split()])
    assert re.search(says, line), line
    assert tree(here) == before


def test_bad_input_through_the_command(here: Path) -> None:
    outcome = proteus("backtest", "--prices", "small.csv", "--scheme", "greedy", cwd=here, home=here / "home")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("proteus: --scheme: there is no scheme 'greedy'; there are on-demand, ")
    assert outcome.err.count("\n") == 1


# Broken off


def test_interrupted_it_writes_nothing(here: Path) -> None:
    options = ["--prices", "small.csv", "--hours", "1", "--starts", "200000", "--zones", "all", "--scheme", "proteus"]
    with subprocess.Popen(
        [PROTEUS, "backtest", *options, "--json", "out.json"],
        cwd=here,
        env=environment(here / "home"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            process.stderr.readline()  # a note on the fit: the jobs begin
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20 * PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "proteus: interrupted: nothing was written"
    assert not (here / "out.json").exists()


def test_a_set_of_records_is_shown_and_written(here: Path) -> None:
    there = [1, 1, 1, 0, 0, 1] * 150
    for zone in "ab":
        record = {"metadata": {"gap_seconds": 600}, "data": there}
        (here / f"zone-{zone}_kind.json").write_text(json.dumps(record))
    (here / "set").mkdir()
    for path in here.glob("zone-*.json"):
        path.rename(here / "set" / path.name)
    shown = run("--availability-set", "set", "--starts", "3")
    assert shown.exit_code == 0
    assert "set: 6 starts each" in shown.output
    assert "deadlines missed, all jobs of ours" in shown.output
    written = run("--availability-set", "set", "--starts", "3", "--json", "-")
    assert json.loads(written.stdout)["settings"]["starts"] == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--availability-set", "none"), "--availability-set none: is not a folder"),
        (("--availability-set", "none", "--hours", "3"), "--availability-set none: --hours has no effect on records"),
    ],
)
def test_a_set_that_cannot_be_used_is_refused(here: Path, options: tuple[str, ...], says: str) -> None:
    assert says in refusal_line(backtest, options)
