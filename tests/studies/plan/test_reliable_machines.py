"""What a plan says of the number of reliable machines."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.commands.planning.plan import plan
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.plan.plan_files import plan_json
from proteus_spot.studies.plan.plan_spec import plan_spec
from proteus_spot.studies.plan.planner import JobPlan, make_plan
from tests.support.backtests import quiet, small_file

KNOWN = {"model_bytes": 1e9, "clocks_per_s": 0.01, "link_bytes_per_s": 1e8}


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_file(tmp_path_factory.mktemp("prices") / "small.csv")


def made(prices: Path, **fields: Any) -> JobPlan:
    asked = {"hours": 1.0, "starts": 6, "schemes": ["on-demand", "proteus"], "markets": ["m4.xlarge/us-east-1b"]}
    return make_plan(plan_spec(prices=str(prices), **{**asked, **fields}), quiet)


@pytest.fixture(scope="module")
def paper(prices: Path) -> JobPlan:
    return made(prices)


def test_the_recommended_scheme_is_tried_with_one_to_four(prices: Path, paper: JobPlan) -> None:
    advice = paper.reliable
    assert advice is not None
    assert (advice.scheme, advice.own) == ("proteus", 3)
    assert [each.weighed.count for each in advice.tried] == [1, 2, 3, 4]
    assert [bool(each.weighed.why_not) for each in advice.tried] == [True, True, False, False]
    assert advice.tried[2].outlook is paper.outlooks[1], "the job's own number is not run again"
    fewer = made(prices, reliable="2xm4.xlarge")
    assert fewer.job.reliable_micros == paper.job.reliable_micros
    assert list(advice.tried[1].outlook.cost_usd) == list(fewer.outlooks[1].cost_usd)


def test_what_would_be_saved_is_said_with_what_stands_against_it(paper: JobPlan) -> None:
    assert paper.reliable is not None
    costs = [each.weighed.cost for each in paper.reliable.tried]
    said = (
        f"1 reliable machine would save ${costs[2] - costs[0]:,.2f} a job, but 189 transient vCPUs to 1 are more than"
    )
    assert paper.reliable.text.startswith(said)


def test_where_fewer_will_do_they_are_advised(prices: Path) -> None:
    advice = made(prices, reliable_tier=KNOWN).reliable
    assert advice is not None
    costs = [each.weighed.cost for each in advice.tried]
    assert advice.text == f"1 reliable machine instead of 3 would save ${costs[2] - costs[0]:,.2f} a job."


def test_where_the_jobs_own_will_not_do_it_is_said(prices: Path) -> None:
    advice = made(prices, reliable="1xc4.xlarge").reliable
    assert advice is not None
    assert advice.text.startswith("1 reliable machine will not do: 189 transient vCPUs")
    assert advice.text.endswith("3 reliable machines would.")


def test_where_none_will_do_it_is_said(prices: Path) -> None:
    advice = made(prices, reliable_tier={"most_ratio": 2}).reliable
    assert advice is not None
    assert advice.text.startswith("No number of reliable machines up to 4 suffices: 47.2 transient vCPUs")


def test_who_holds_none_gets_no_advice(prices: Path) -> None:
    assert made(prices, schemes=["on-demand"]).reliable is None
    assert made(prices, reliable="0").reliable is None


def test_for_machines_and_readers(prices: Path, paper: JobPlan) -> None:
    told = plan_json(paper, 1.0)["reliable_machines"]
    assert (told["scheme"], told["machines"], told["cheapest"]) == ("proteus", 3, 3)
    assert [each["count"] for each in told["numbers"]] == [1, 2, 3, 4]
    asked = [
        "--prices", str(prices), "--hours", "1", "--starts", "6", "--scheme", "on-demand,proteus", "--market",
        "m4.xlarge/us-east-1b",
    ]  # fmt: skip
    shown = CliRunner().invoke(plan, asked, catch_exceptions=False).stdout
    assert told["text"] in shown
    assert "Numbers of reliable machines, under proteus" in shown
    for each in told["numbers"]:
        assert f"${each['cost_with_failures_usd']:,.2f}" in shown


def test_a_tier_is_read_from_a_file(prices: Path, tmp_path: Path) -> None:
    (tmp_path / "tier.json").write_text(json.dumps(KNOWN))
    asked = ["--prices", str(prices), "--hours", "1", "--starts", "2", "--scheme", "proteus", "--json", "-"]
    done = CliRunner().invoke(plan, [*asked, "--reliable-tier", str(tmp_path / "tier.json")], catch_exceptions=False)
    assert json.loads(done.stdout)["reliable_machines"]["cheapest"] == 1
    (tmp_path / "tier.json").write_text('{"model_bytes": 1}')
    with pytest.raises(InputError, match=r"tier\.json: model_bytes, clocks_per_s and link_bytes_per_s: say all three"):
        CliRunner().invoke(plan, [*asked, "--reliable-tier", str(tmp_path / "tier.json")], catch_exceptions=False)
