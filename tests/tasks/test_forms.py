"""The forms that the Prefect UI draws from the parameters of flows: their order, and what they let a user choose."""

from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import is_valid

from proteus_spot.flows.train import train
from proteus_spot.psengine.apps.registry import BUILT_IN
from tests.support.task_runtime import spec

FORM = parameter_schema(train).model_dump()


def places(model: str) -> dict[str, int]:
    return {name: field["position"] for name, field in FORM["definitions"][model]["properties"].items()}


def test_what_a_user_fills_in_stands_before_what_stays_as_it_is() -> None:
    job, training, tier = places("JobSpec"), places("Training"), places("TransientTier")
    assert job["job_id"] < job["transient"] < job["training"], "markets stand before shards and stages"
    assert max(training[name] for name in ("app", "data", "clocks")) < min(
        training[name] for name in ("shards", "stage")
    )
    assert tier["markets"] == 0


@pytest.mark.parametrize(
    ("policy", "taken"),
    [("best", True), ("on-demand", True), ("fixed-delta:0.01", True), ("greedy", False), ("", False), ("Best", False)],
)
def test_a_policy_is_chosen(policy: str, taken: bool) -> None:
    described: dict[str, Any] = spec().model_dump(mode="json")
    described["transient"]["policy"] = policy
    assert is_valid({"spec": described}, FORM) is taken


def test_the_form_names_the_built_in_applications() -> None:
    text = FORM["definitions"]["Training"]["properties"]["app"]["description"]
    assert all(name in text for name in BUILT_IN)
