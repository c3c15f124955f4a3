from dataclasses import asdict

import pytest
from hypothesis import given

from proteus_spot.bidding.economics.job_model import JobModel, reference_micros
from proteus_spot.bidding.market.model import InstanceType
from tests.support.markets import PROPERTY, jobs


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scaling_efficiency", 0.0),
        ("scaling_efficiency", 1.1),
        ("scaling_efficiency", float("nan")),
        ("resize_overhead_s", -1.0),
        ("resize_overhead_s", float("nan")),
        ("eviction_overhead_s", float("inf")),
        ("eviction_overhead_s", -0.1),
        ("cooldown_s", -1),
        ("max_spot_vcpus", -1),
        ("allocation_vcpus", 0),
        ("tasks", -1),
        ("task_vcpus", 0),
        ("renewal_lead_s", 0),
        ("renewal_lead_s", 3600),
        ("unit", "core"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(field, value):
    with pytest.raises(ValueError) as said:
        JobModel(**{field: value})
    assert "\n" not in str(said.value)


def test_the_ends_of_the_ranges_are_allowed():
    JobModel(1.0, 0.0, 0.0, 1, 0, 1, 0)
    JobModel(renewal_lead_s=3599)


@PROPERTY
@given(jobs())
def test_a_record_gives_the_same_job(job):
    assert JobModel.from_record(asdict(job)) == job


def test_an_unknown_parameter_is_refused():
    with pytest.raises(TypeError, match="colour"):
        JobModel.from_record(asdict(JobModel()) | {"colour": 1})


def test_what_more_machines_add_to_tasks_that_cannot_be_divided():
    job = JobModel(tasks=8)
    assert [job.useful_vcpus(vcpus) for vcpus in range(11)] == [0, 1, 2, 3, 4, 4, 4, 4, 8, 8, 8]
    wide = JobModel(tasks=3, task_vcpus=4)
    assert [wide.useful_vcpus(vcpus) for vcpus in (3, 4, 7, 8, 11, 12, 99)] == [3, 4, 4, 8, 8, 12, 12]
    assert JobModel().useful_vcpus(99) == 99


FOUR, ONE, NONE = (InstanceType(f"g{gpus}", 16, 64.0, 1_000_000 + 500_000 * gpus, gpus) for gpus in (4, 1, 0))


def test_a_size_counts_what_the_job_counts():
    assert [JobModel().size(kind) for kind in (FOUR, ONE, NONE)] == [16, 16, 16]
    assert [JobModel(unit="gpu").size(kind) for kind in (FOUR, ONE, NONE)] == [4, 1, 0]


def test_the_same_on_demand_costs_what_the_cheapest_unit_does():
    assert reference_micros("vcpu", [FOUR, ONE, NONE]) == dict.fromkeys(("g4", "g1", "g0"), 1_000_000)
    assert reference_micros("gpu", [FOUR, ONE, NONE]) == {"g4": 3_000_000, "g1": 750_000, "g0": 1_000_000}
    assert reference_micros("gpu", [NONE]) == {"g0": 1_000_000}
