"""Budget and deadline of a job as they are written: what is taken, and the line for what is not."""

from typing import Any

import pytest
from pydantic import ValidationError

from proteus_spot.infra.validation import first_fault
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.times import parse_deadline
from proteus_spot.tasks.training.submission import with_options

START_S = 1_780_000_000


def job(clocks: int | None = 5, **fields: Any) -> JobSpec:
    training = {"clocks": clocks, "hours": None if clocks else 1.0}
    record = {"job_id": "j", "training": training, "transient": {"markets": ["c4.large/us-east-1a"]}}
    return JobSpec.model_validate(record | fields)


@pytest.mark.parametrize(
    ("text", "after_s"), [("90m", 5400), ("12h", 43_200), ("2d", 172_800), ("0.5h", 1800), (" 1 h ", 3600)]
)
def test_a_duration_counts_from_the_submission(text: str, after_s: int) -> None:
    assert parse_deadline(text).time_s(START_S + 0.7) == START_S + after_s


@pytest.mark.parametrize("text", ["2026-05-28T22:00:00Z", "2026-05-28T22:00:00+00:00", "2026-05-29T00:00:00+02:00"])
def test_a_time_is_that_time_whenever_the_job_starts(text: str) -> None:
    assert parse_deadline(text).time_s(START_S) == parse_deadline(text).time_s(0) == 1_780_005_600


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("90", "write 90m or 12h"),
        ("soon", "write 90m or 12h from the submission"),
        ("-1h", "write 90m or 12h"),
        ("0m", "0m from the submission is not a time"),
        ("2026-05-28T22:00:00", "has no zone"),
        ("2026-05-28", "has no zone"),
        ("1e3h", "write 90m or 12h"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_deadline(text)
    with pytest.raises(ValidationError, match=says):
        job(deadline=text)


def test_a_deadline_needs_clocks() -> None:
    assert job(deadline="12h").deadline_s(START_S) == START_S + 43_200
    with pytest.raises(ValidationError) as fault:
        job(clocks=None, deadline="12h")
    assert first_fault(fault.value) == (
        "deadline: a job that ends by it counts its work in clocks; give training.clocks"
    )
    assert job(clocks=None).deadline_s(START_S) is None


@pytest.mark.parametrize("budget", [0, -1, float("nan"), float("inf"), 1e-7, True, "much"])
def test_a_budget_is_an_amount_of_dollars(budget: Any) -> None:
    with pytest.raises(ValidationError) as fault:
        job(budget_usd=budget)
    assert first_fault(fault.value).startswith("budget_usd: ")
    assert job(budget_usd=2.5).budget_micros == 2_500_000
    assert job().budget_micros is None


def test_options_of_submit_take_the_place_of_the_file_s_limits() -> None:
    own = job(budget_usd=2.5, deadline="12h")
    assert with_options(own, {}) == own
    cheaper = with_options(own, {"budget_usd": 1.0, "deadline": None})
    assert (cheaper.budget_usd, cheaper.deadline) == (1.0, "12h")
    assert with_options(own, {"deadline": "90m"}).deadline == "90m"
    with pytest.raises(ValidationError, match="'x' is not a deadline"):
        with_options(own, {"deadline": "x"})
    with pytest.raises(ValidationError, match="greater than 0"):
        with_options(own, {"budget_usd": -1.0})


def test_the_reliable_tier_is_bought_where_the_first_market_is() -> None:
    assert (job().reliable.instance_type, job().reliable.zone) == ("c4.large", "us-east-1a")
    own = job(reliable={"count": 2, "instance_type": "m7i.large", "zone": ""}).reliable
    assert (own.count, own.instance_type, own.zone) == (2, "m7i.large", "us-east-1a")
    assert JobSpec.model_validate(job().model_dump()) == job()


def test_a_job_pays_by_the_second_unless_it_says_otherwise() -> None:
    assert job().transient.billing == "per-second-first-hour-free"
