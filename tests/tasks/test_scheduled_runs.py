"""Runs that a schedule begins: the examples in prefect.yaml, and the day in ids and data.

tests/tasks/supervision/test_cancelled_runs.py has such runs on a server; in tests/e2e/test_deployments.py a schedule
begins a job for real.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.cli.deploy._schedules import _schedule_config_to_deployment_schedule
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate
from pydantic import ValidationError

from proteus_spot.flows.sweep import sweep
from proteus_spot.flows.train import train
from proteus_spot.infra.clock import SystemClock
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.times import day
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec, parse_sweep
from proteus_spot.tasks.training.submission import read_job
from tests.support.schedules import examples
from tests.support.task_runtime import spec

REPOSITORY = Path(__file__).parents[2]


# The examples


def test_the_examples_of_prefect_yaml_are_taken_by_their_forms_and_models() -> None:
    found = examples()
    assert set(found) == {"train", "sweep"}
    for name, flow_of in (("train", train), ("sweep", sweep)):
        (schedule,) = found[name]
        assert _schedule_config_to_deployment_schedule(schedule)["parameters"] == schedule["parameters"]
        form = parameter_schema(flow_of).model_dump()
        validate(schedule["parameters"], form, raise_on_error=True)
    job = JobSpec.model_validate(found["train"][0]["parameters"]["spec"]).on("2026-01-31")
    assert (job.job_id, job.training.data) == ("nightly-2026-01-31", "s3://bucket/days/2026-01-31.csv.gz")
    trials = SweepSpec.model_validate(found["sweep"][0]["parameters"]["spec"]).on("2026-01-31")
    assert (trials.job_id, trials.data) == ("weekly-2026-01-31", "s3://bucket/days/2026-01-31.csv.gz")


def test_the_example_of_the_manual_is_that_of_prefect_yaml() -> None:
    manual = (REPOSITORY / "docs" / "deploy.md").read_text()
    block = re.search(r"```yaml\n(  schedules:\n.*?)```", manual, re.DOTALL)
    assert block is not None
    assert yaml.safe_load(block[1])["schedules"] == examples()["train"]


# The day


def described(**fields: Any) -> dict[str, Any]:
    return spec().model_dump(mode="json") | fields


@pytest.mark.parametrize("job_id", ["{date}", "a-{date}", "{date}-a", "a" * 29 + "-{date}"])
def test_an_id_may_hold_the_day(job_id: str) -> None:
    made = JobSpec.model_validate(described(job_id=job_id))
    assert made.on("2026-01-31").job_id == job_id.replace("{date}", "2026-01-31")
    validate({"spec": described(job_id=job_id)}, parameter_schema(train).model_dump(), raise_on_error=True)


@pytest.mark.parametrize("job_id", ["a" * 30 + "-{date}", "-{date}", "{day}", "{date", "A-{date}", "{ date }"])
def test_an_id_that_would_be_none_with_the_day_is_refused(job_id: str) -> None:
    with pytest.raises(ValidationError, match="must be 1 to 40 lower-case letters"):
        JobSpec.model_validate(described(job_id=job_id))


def test_what_holds_no_day_stays_as_it_is() -> None:
    job = spec()
    assert job.on("2026-01-31") == job
    assert job.on("2026-01-31").model_dump(exclude_unset=True) == job.model_dump(exclude_unset=True)


def test_in_a_file_that_is_submitted_the_day_is_today(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(described(job_id="nightly-{date}")))
    before = day(SystemClock().now_s())
    assert read_job(tmp_path / "job.yaml").job_id in (f"nightly-{before}", f"nightly-{day(SystemClock().now_s())}")


def test_a_sweep_may_have_the_day_in_its_name_or_its_id() -> None:
    least = {"trial": "mlr", "space": {"step": {"choice": [1]}}, "metric": {"name": "loss"}, "max_trial_steps": 5}
    named = parse_sweep({**least, "sweep": "nightly-{date}"}).on("2026-01-31")
    assert named.for_run("0123456789ab").job_id == "nightly-2026-01-31-0123456789ab"
    assert parse_sweep({**least, "sweep_id": "at-{date}"}).on("2026-01-31").job_id == "at-2026-01-31"
