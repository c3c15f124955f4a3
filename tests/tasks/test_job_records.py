"""A job that is submitted again: what the user wrote counts, not what was filled in for what was left out."""

from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.state.records import StoreError
from proteus_spot.infra.structured_text import read_yaml
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_records import record_job, resolve_spec
from proteus_spot.tasks.training.submission import read_job, with_options
from tests.support.task_runtime import BEGIN_S, TaskRuntime, plain

YAML = """
job_id: old
training: {app: mlr, data: digits, clocks: 3}
transient: {markets: [m4.large/us-east-1b], max_vcpus: 4}
"""
#: The job as it was begun: what the file leaves out was filled in otherwise.
BEGUN = """
job_id: old
training: {app: mlr, data: digits, clocks: 3}
reliable: {instance_type: c4.large, zone: us-east-1a}
transient: {markets: [m4.large/us-east-1b], max_vcpus: 4, billing: hourly-refund}
"""


@pytest.fixture
def old(here: TaskRuntime, tmp_path: Path) -> TaskRuntime:
    """A world in which the job was begun, under other defaults than those of now."""
    plain(record_job)(submitted(tmp_path, BEGUN))
    return here


def submitted(directory: Path, text: str) -> JobSpec:
    """The job as a run of `train` gets it, of a file that a user has written."""
    (directory / "job.yaml").write_text(text)
    parameters = with_options(read_job(directory / "job.yaml"), {}).model_dump(mode="json", exclude_unset=True)
    return JobSpec.model_validate(parameters)


@pytest.mark.parametrize("reliable", ["", "reliable: {count: 1}", "reliable: {zone: '', instance_type: c4.large}"])
def test_the_file_of_a_job_that_was_begun_under_other_defaults_attaches_to_it(
    old: TaskRuntime, tmp_path: Path, reliable: str
) -> None:
    spec = submitted(tmp_path, f"{YAML}{reliable}\n")
    assert plain(record_job)(spec).created_at_s == BEGIN_S
    begun = resolve_spec(spec)
    assert begun.transient.billing == "hourly-refund"
    assert (begun.reliable.instance_type, begun.reliable.zone) == ("c4.large", "us-east-1a")
    assert resolve_spec(begun) == begun


@pytest.mark.parametrize(
    ("written", "instead", "changes"),
    [
        ("max_vcpus: 4", "max_vcpus: 8", "transient.max_vcpus: 8, was 4"),
        (
            "max_vcpus: 4",
            "billing: flat, flat_price: 1",
            "transient.billing: flat, was hourly-refund; tr",
        ),
        ("clocks: 3", "clocks: 3, app_params: {features: 2}", r"training.app_params: \{'features': 2\}, was \{\}"),
        ("job_id: old", "job_id: old\nreliable: {zone: us-east-1b}", "reliable.zone: us-east-1b, was us-east-1a"),
        ("job_id: old", "job_id: old\nbudget_usd: 3", "budget_usd: 3.0, was None"),
    ],
)
def test_what_is_written_otherwise_is_refused_by_name(
    old: TaskRuntime, tmp_path: Path, written: str, instead: str, changes: str
) -> None:
    spec = submitted(tmp_path, YAML.replace(written, instead))
    with pytest.raises(StoreError, match=rf"^job old: was submitted before with another spec \({changes}"):
        plain(record_job)(spec)


def test_a_new_job_is_recorded_whole(here: TaskRuntime, tmp_path: Path) -> None:
    spec = submitted(tmp_path, YAML)
    assert resolve_spec(spec) is spec
    recorded = plain(record_job)(spec).spec
    assert recorded["transient"]["billing"] == "per-second-first-hour-free"
    assert recorded["reliable"] == {"count": 1, "instance_type": "m4.large", "zone": "us-east-1b"}


def form(written: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """What the form of "Custom run" sends: every field of its schema, also those that were left at their default."""
    filled = {}
    for name, field in schema["properties"].items():
        nested = root["$defs"].get(str(field.get("$ref", "")).rpartition("/")[2])
        if nested is not None and "properties" in nested:
            filled[name] = form(written.get(name, {}), nested, root)
        elif name in written or "default" in field:
            filled[name] = written.get(name, field.get("default"))
    return filled


def test_the_form_of_a_custom_run_attaches_to_the_job_of_a_file(here: TaskRuntime, tmp_path: Path) -> None:
    plain(record_job)(submitted(tmp_path, YAML))
    schema = JobSpec.model_json_schema()
    sent = form(dict(read_yaml(tmp_path / "job.yaml")), schema, schema)
    assert sent["reliable"] == {"count": 1, "instance_type": "", "zone": ""}
    assert sent["transient"]["billing"] == "per-second-first-hour-free"
    custom = JobSpec.model_validate(sent)
    assert resolve_spec(custom) == custom
    with pytest.raises(StoreError, match=r"transient\.max_vcpus: 8, was 4"):
        resolve_spec(JobSpec.model_validate(sent | {"transient": sent["transient"] | {"max_vcpus": 8}}))
