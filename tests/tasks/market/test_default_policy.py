"""A job that names no policy has that of its market's rules; it may exclude markets."""

import pytest

from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import job_model, policy_of
from tests.support.task_runtime import MARKET, OTHER, TaskRuntime, spec


@pytest.mark.parametrize(
    ("rules", "policy", "opened"),
    [("today", None, "deadline"), ("2016", None, "best"), (None, None, "best"), ("today", "standard", "standard")],
)
def test_by_the_rules(here: TaskRuntime, rules: str | None, policy: str | None, opened: str) -> None:
    job = spec(rules=rules, policy=policy, billing="per-second-first-hour-free")
    here.begin(job)
    assert JobEngine("job").cached().holdings.opened.policy == opened


def test_on_ec2_it_is_deadline(here: TaskRuntime) -> None:
    here.use(ec2_endpoint_url=None)
    assert here.runtime.settings.is_aws
    assert policy_of(spec(policy=None)) == "deadline"


@pytest.mark.parametrize("excluded", [["c4.large"], ["us-east-1b"], ["m4.large/us-east-1b", "m4.large"]])
def test_markets_are_excluded_by_name_type_or_zone(excluded: list[str]) -> None:
    job = spec(markets=[str(MARKET), str(OTHER)], exclude_markets=excluded, on_demand_usd=0.5)
    assert job_model(job, 240).exclude_markets == tuple(excluded)
    assert job.transient.on_demand_micros == 500_000


@pytest.mark.parametrize(
    ("excluded", "says"),
    [
        (["c5.large"], "exclude_markets: 'c5.large' is no market of the job, nor a type or zone of one"),
        (["c4.large", "us-east-1b"], "exclude_markets: leaves no market to buy in"),
    ],
)
def test_what_excludes_nothing_or_all_is_refused(excluded: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        spec(markets=[str(MARKET), str(OTHER)], exclude_markets=excluded)
