"""`proteus plan`: what it prints and writes, and how it refuses."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from matplotlib.image import imread

from proteus_spot.flows.cli.commands.planning.plan import plan
from proteus_spot.infra.errors import InputError
from tests.support.backtests import MARKETS, small_file
from tests.support.cli_process import proteus, refusal_line, tree

WORK = ("--prices", "small.csv", "--vcpu-hours", "500", "--starts", "6")
JOB = """job_id: mine
training: {app: mlr, hours: 2}
reliable: {count: 1, instance_type: m4.large}
transient: {markets: [m4.xlarge/us-east-1a, m4.xlarge/us-east-1b], max_vcpus: 64, allocation_vcpus: 16}
"""


def _readme_job() -> str:
    text = (Path(__file__).parents[3] / "README.md").read_text()
    found = re.search(r"```yaml\n(job_id: .*?)```", text, re.DOTALL)
    assert found, "README.md shows a job"
    return found[1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a small price file and a job, in which the verb is called."""
    monkeypatch.chdir(tmp_path)
    small_file(tmp_path / "small.csv")
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def run(*arguments: str) -> Result:
    """Run the verb in this process; what it raises is raised here."""
    return CliRunner().invoke(plan, [*arguments], catch_exceptions=False)


def result(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json", "-").stdout)


def test_tables_json_and_picture_say_the_same(here: Path) -> None:
    before = set(tree(here))
    done = run(*WORK, "--deadline", "90m", "--budget", "4", "--json", "out.json", "--picture", "out.png")
    found = json.loads((here / "out.json").read_text())
    assert set(tree(here)) - before == {"out.json", "out.png"}
    assert imread(here / "out.png").shape[1] == 1100
    assert (
        "500 vCPU-hours: on demand 128 x c4.xlarge (512 vCPUs, $26.7520/h); else at most 756 spot vCPUs" in done.stdout
    )
    for each in (*found["schemes"], *found["candidates"]):
        name, cost = each.get("scheme") or each["market"], each["cost_usd"]["mean"]
        assert re.search(rf"^{re.escape(name)} .*\${cost:,.2f} .*%", done.stdout, re.MULTILINE), name
    assert {each["market"] for each in found["candidates"]} == set(map(str, MARKETS))
    text = found["recommendation"]["text"]
    assert text[1:] in done.stdout
    assert "deadline of 1.5 h and the budget of $4.00" in text
    assert "learnt from 2016-06-01 00:00 to 2016-06-07 00:00, tried from 2016-06-07 00:00 to 2016-06" in done.stderr


def test_the_same_request_gives_the_same_figures_another_seed_others(here: Path) -> None:
    def figures(*more: str) -> Any:
        found = result(*WORK, "--scheme", "best", "--market", "m4.xlarge/us-east-1b", *more)
        return found["schemes"], found["candidates"]

    first = figures()
    assert figures("--seed", "0") == first
    assert figures("--seed", "1") != first


def test_a_submittable_job_fills_what_options_leave_open(here: Path) -> None:
    short = ("--prices", "small.csv", "--starts", "4", "--scheme", "on-demand")
    found = result("job.yaml", *short)
    assert found["job"]["vcpu_hours"] == 2 * 64
    assert (found["job"]["cluster"]["vcpus"], found["job"]["cap_vcpus"]) == (64, 64)
    assert found["job"]["reliable"] == {"machines": 1, "type": "m4.large", "usd_per_hour": 0.12}
    assert {each["market"] for each in found["candidates"]} == {"m4.xlarge/us-east-1a", "m4.xlarge/us-east-1b"}
    assert found["notes"][0].startswith("job.yaml ends after 2 h")
    other = result("job.yaml", *short, "--vcpu-hours", "50", "--max-vcpus", "32", "--market", "c4.xlarge/us-east-1a")
    assert (other["job"]["vcpu_hours"], other["job"]["cap_vcpus"]) == (50, 32)
    assert [each["market"] for each in other["candidates"]] == ["c4.xlarge/us-east-1a"]
    assert not any("job.yaml" in note for note in other["notes"])


@pytest.mark.parametrize(
    ("job", "work", "cap"),
    [
        pytest.param(
            "job_id: m\ntraining: {hours: 2}\ntransient: {markets: [c4.xlarge/us-east-1a]}\n", 16, 8, id="least"
        ),
        pytest.param(_readme_job(), 50, 16, id="README"),
    ],
)
def test_a_job_without_its_optional_fields_is_planned(here: Path, job: str, work: float, cap: int) -> None:
    (here / "job.yaml").write_text(job)
    short = ("--starts", "3", "--scheme", "on-demand,standard+checkpoint,proteus,best")
    found = result("job.yaml", *short, *(("--vcpu-hours", "50") if "clocks" in job else ()))
    assert (found["job"]["vcpu_hours"], found["job"]["cap_vcpus"]) == (work, cap)
    assert found["settings"]["allocation_vcpus"] == cap  # all that it may hold, as its policy `best` likes it
    assert all(each["unfinished"] == 0 for each in found["schemes"])


@pytest.mark.parametrize("change", [("max_vcpus: 64", "max_vcpus: 0"), ("{markets", "{policy: on-demand, markets")])
def test_a_job_that_buys_no_spot_machine_is_its_reliable_tier(here: Path, change: tuple[str, str]) -> None:
    (here / "job.yaml").write_text(JOB.replace(*change))
    done = run("job.yaml", "--prices", "small.csv", "--starts", "3", "--json", "out.json")
    found = json.loads((here / "out.json").read_text())
    assert found["job"]["cluster"] == {
        "machines": 1, "instance_type": "m4.large", "vcpus": 2, "usd_per_hour": pytest.approx(0.12)
    }  # fmt: skip
    chosen = next(each for each in found["schemes"] if each["scheme"] == found["recommendation"]["scheme"])
    assert (chosen["scheme"], chosen["cannot_run"]) == ("on-demand", None)
    assert (chosen["cost_usd"]["mean"], chosen["hours"]["mean"]) == (pytest.approx(0.24), pytest.approx(2))
    assert "job.yaml buys no spot machine: its reliable tier, 1xm4.large, works for 2 h" in done.stderr
    assert "spot vCPUs and" not in done.stdout or "policy" in change[1]


def test_a_scheme_of_spot_machines_for_a_job_without_any_wants_a_cap(here: Path) -> None:
    (here / "job.yaml").write_text(JOB.replace("max_vcpus: 64", "max_vcpus: 0"))
    asked = ("job.yaml", "--prices", "small.csv", "--starts", "3")
    with pytest.raises(InputError, match=r"^--scheme best: buys spot .* of job\.yaml is 0; give --max-vcpus$"):
        run(*asked, "--scheme", "best")
    found = result(*asked, "--max-vcpus", "16")
    assert found["recommendation"]["scheme"] == "on-demand"
    assert {each["scheme"] for each in found["schemes"] if each["cannot_run"]} == {
        "standard+checkpoint", "proteus", "best"
    }  # fmt: skip


#: Parts of the job, its options, and the schemes that it can run under of those that are compared.
CAN_RUN: Mapping[str, tuple[str, str, set[str]]] = {
    "policy left open": ("", "", {"proteus", "best"}),
    "policy": ("policy: proteus, ", "", {"proteus"}),
    "standard": ("policy: standard, ", "", {"standard+agileml"}),
    "bid delta": ("policy: 'fixed-delta:0.01', ", "", {"fixed-delta:0.01"}),
    "just above": ("policy: just-above, ", "--scheme best,fixed-delta:0.0001", {"fixed-delta:0.0001"}),
    "nothing that it can": ("policy: proteus, ", "--scheme best,standard+checkpoint", set()),
    "no reliable tier": ("", "--reliable 0", set()),
    "its tier on demand": ("", "--machines 1 --type m4.large", {"on-demand", "proteus", "best"}),
}


@pytest.mark.parametrize("name", CAN_RUN)
def test_a_plan_recommends_only_what_its_job_can_run_under(here: Path, name: str) -> None:
    policy, options, possible = CAN_RUN[name]
    (here / "job.yaml").write_text(JOB.replace("{markets", "{" + policy + "markets"))
    asked = ("job.yaml", "--prices", "small.csv", "--starts", "4", "--vcpu-hours", "8", *options.split())
    done = run(*asked, "--json", "out.json")
    found = json.loads((here / "out.json").read_text())
    assert {each["scheme"] for each in found["schemes"] if not each["cannot_run"]} == possible
    chosen = found["recommendation"]["scheme"]
    assert (chosen in possible) if possible else chosen is None
    for each in found["schemes"]:
        starred = re.search(rf"^{re.escape(each['scheme'])} \* .*\$", done.stdout, re.MULTILINE)
        assert bool(starred) == bool(each["cannot_run"]), each["scheme"]
        if each["cannot_run"]:
            assert f"* {each['scheme']}: for comparison, cannot be run by this job: {each['cannot_run']}" in done.stdout


def test_a_small_job_hears_what_would_be_cheaper(here: Path) -> None:
    """Its reliable machine is most of the cost: without one, or on demand alone, it would cost less."""
    done = run("job.yaml", "--prices", "small.csv", "--starts", "4", "--vcpu-hours", "8", "--max-vcpus", "4",
               "--reliable", "1xc4.xlarge", "--machines", "2", "--type", "m4.xlarge")  # fmt: skip
    assert re.search(r"^(Best|Proteus) costs \$", done.stdout, re.MULTILINE)
    assert "Standard+checkpoint would cost $" in done.stdout
    assert "but cannot be run by this job: it holds no reliable machine, and a job holds at least 1." in done.stdout
    assert re.search(r"The reliable tier is \$\d\.\d\d of the \$\d\.\d\d of (best|proteus)\.", done.stdout)


def _dear_since(here: Path, time: str) -> None:
    """Write prices far above on demand since `time` into dear.csv."""
    header, *rows = (line.split(",") for line in (here / "small.csv").read_text().splitlines())
    price = header.index("price")
    dear = [[*row[:price], "9.9", *row[price + 1 :]] if row[0] >= time else row for row in rows]
    (here / "dear.csv").write_text("".join(",".join(row) + "\n" for row in [header, *dear]))


def test_where_spot_stood_above_on_demand_at_all_times_there_is_nothing_to_learn(here: Path) -> None:
    _dear_since(here, "2016-06-01")
    with pytest.raises(InputError, match=r"^--from: no hour of 2016-06-01 .* at or below the on-demand price, so best"):
        run("job.yaml", "--prices", "dear.csv", "--starts", "3")


def test_where_spot_stands_above_on_demand_the_plan_says_so(here: Path) -> None:
    """No job under `best` buys there, and on demand, which would be done, is not this job's as it is."""
    _dear_since(here, "2016-06-07")
    asked = ("job.yaml", "--prices", "dear.csv", "--starts", "3", "--machines", "2", "--type", "m4.xlarge")
    found = result(*asked, "--scheme", "on-demand,best")["recommendation"]
    assert (found["scheme"], found["keeps_enough"]) == ("best", False)
    assert found["text"].startswith("no scheme that this job can run under is done in 90% of the starts; the nearest")
    assert "it wants policy: on-demand and reliable: {count: 2, instance_type: m4.xlarge}." in found["cheaper"]
    assert "One m4.xlarge on demand does it for the same money in 32.0 h." in found["cheaper"]


def test_without_a_file_the_market_is_generated(here: Path) -> None:
    done = run("--hours", "1", "--starts", "2", "--scheme", "on-demand", "--market", "c4.large/us-east-1a")
    assert "no --prices given: the prices are those of the generated market of seed 0" in done.stderr
    assert "Each market alone" in done.stdout


# What is refused

#: Options behind --prices small.csv, and what the line must say.
BAD: Mapping[str, tuple[str, str]] = {
    "no work": ("", r"how much work is it\? Give --vcpu-hours W, or --hours H"),
    "work twice": ("--vcpu-hours 5 --hours 1", r"how much work is it\?"),
    "work below nothing": ("--vcpu-hours -1", r"'--vcpu-hours': -1(\.0)? is not in the range"),
    "work is not a number": ("--vcpu-hours nan", r"--vcpu-hours: .*finite number"),
    "endless work": ("--vcpu-hours inf", r"--vcpu-hours: "),
    "work beyond the history": ("--hours 400", r"--hours 400: takes .* the history has .*; give less work"),
    "no deadline": ("--hours 1 --deadline 0", r"--deadline 0: is not a number of hours above 0; write 12, 90m"),
    "endless deadline": ("--hours 1 --deadline nan", r"--deadline nan: is not a number of hours"),
    "deadline that is not a time": (
        "--hours 1 --deadline soon",
        r"--deadline: 'soon' is not a deadline; write 90m or 12h",
    ),
    "deadline without a zone": ("--hours 1 --deadline 2036-01-01T00:00", r"--deadline: .* has no zone"),
    "deadline that has passed": ("--hours 1 --deadline 2016-01-01T00:00:00Z", r"--deadline .*: has passed"),
    "no budget": ("--hours 1 --budget nan", r"--budget: "),
    "no cap": ("--hours 1 --max-vcpus 0", r"'--max-vcpus': 0 is not in the range"),
    "cap below a machine": ("--hours 1 --max-vcpus 3", r"--max-vcpus 3: the smallest machine on sale has 4 vCPUs"),
    "reliable what": ("--hours 1 --reliable 3", r"--reliable: '3' is not a COUNTxTYPE, as in 3xc4\.xlarge, or 0"),
    "unknown reliable": ("--hours 1 --reliable 1xz9.huge", r"--reliable 1xz9\.huge: z9\.huge is not on sale on"),
    "unknown type": ("--hours 1 --type z9.huge", r"--type z9\.huge: is not on sale"),
    "unknown scheme": ("--hours 1 --scheme greedy", r"--scheme: there is no scheme 'greedy'; there are on-demand, "),
    "no scheme": ("--hours 1 --scheme ,", r"--scheme: names none; want some of on-demand, "),
    "unknown market": ("--hours 1 --market m4.large/us-east-1a", r"--market m4\.large/us-east-1a: has no prices in"),
    "window after the file": ("--hours 1 --from 2017-01-01", r"--from 2017-01-01: begins outside the price file"),
    "nothing to learn from": ("--hours 1 --from 2016-06-01", r"--from: the fit is empty"),
    "no such file": ("--hours 1 --prices none.csv", r"none\.csv: there is no such file"),
    "no such job": ("none.yaml", r"none\.yaml: there is no such file"),
    "JSON in no directory": ("--hours 1 --json none/a.json", r"--json none/a\.json: there is no directory none"),
    "picture in no directory": ("--hours 1 --picture none/a.png", r"--picture none/a\.png: there is no directory none"),
    "picture of what kind": (
        "--hours 1 --prices none.csv --picture a.gif",
        r"a\.gif: the name's ending says the kind of picture",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_leaves_no_trace(here: Path, name: str) -> None:
    options, says = BAD[name]
    before = tree(here)
    line = refusal_line(plan, ["--prices", "small.csv", *options.split()])
    assert re.search(says, line), line
    assert tree(here) == before


def test_bad_input_through_the_command(here: Path) -> None:
    outcome = proteus("plan", "--prices", "small.csv", cwd=here, home=here / "home")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("proteus: how much work is it?")
    assert outcome.err.count("\n") == 1
