"""What pydantic finds is told in words: what is wanted, where, and what was given."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from proteus_spot.infra.validation import first_fault
from proteus_spot.studies.form_fields import DATED_ID_PATTERN
from proteus_spot.studies.job_spec import JobSpec


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = Field(1, ge=1, le=64)
    share: float = Field(0.5, gt=0, lt=1, allow_inf_nan=False)
    names: list[str] = Field(default_factory=list, max_length=1)
    table: dict[str, int] = Field(default_factory=dict)
    kind: Literal["a", "b"] = "a"
    sure: bool = True
    word: str = Field("x", pattern="^x*$", min_length=1, max_length=3)

    @field_validator("kind")
    @classmethod
    def _check(cls, kind: str) -> str:
        if kind == "b":
            raise ValueError("kind b: is no more; give a, or leave it out")
        return kind


class Outer(BaseModel):
    inner: Inner


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"count": 0}, "inner.count: must be at least 1 (is 0)"),
        ({"count": 65}, "inner.count: must be at most 64 (is 65)"),
        ({"count": "many"}, "inner.count: must be a whole number (is 'many')"),
        ({"count": 1.5}, "inner.count: must be a whole number (is 1.5)"),
        ({"share": 0}, "inner.share: must be above 0 (is 0)"),
        ({"share": 1}, "inner.share: must be below 1 (is 1)"),
        ({"share": "half"}, "inner.share: must be a number (is 'half')"),
        ({"share": float("nan")}, "inner.share: must be a finite number (is nan)"),
        ({"names": "a"}, "inner.names: must be a list (is 'a')"),
        ({"names": ["a", "b"]}, "inner.names: must have at most 1 entries (is ['a', 'b'])"),
        ({"names": [1]}, "inner.names.0: must be text (is 1)"),
        ({"table": 3}, "inner.table: must be a mapping of names to values (is 3)"),
        ({"kind": "c"}, "inner.kind: must be 'a' or 'b' (is 'c')"),
        ({"kind": "b"}, "inner.kind: kind b: is no more; give a, or leave it out"),
        ({"sure": "perhaps"}, "inner.sure: must be true or false (is 'perhaps')"),
        ({"word": "y"}, "inner.word: must match the pattern ^x*$ (is 'y')"),
        ({"word": ""}, "inner.word: must have at least 1 characters (is '')"),
        ({"word": "xxxx"}, "inner.word: must have at most 3 characters (is 'xxxx')"),
        ({"colour": "red"}, "inner.colour: is not known; fix its name, or leave it out"),
    ],
)
def test_each_fault_in_words(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"inner": fields})
    assert first_fault(caught.value) == says
    place, _, words = says.partition(": ")
    assert first_fault(caught.value, lambda dotted: f"--{dotted[6:]}") == f"--{place[6:]}: {words}"


def test_what_is_missing_and_a_fault_of_the_whole() -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({})
    assert first_fault(caught.value) == "inner: is missing; give it"
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"inner": 7})
    assert first_fault(caught.value) == "inner: must be a mapping of names to values (is 7)"
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(7)
    assert first_fault(caught.value) == "must be a mapping of names to values (is 7)"


def test_a_job_id_is_told_in_words_and_the_form_has_its_pattern() -> None:
    record = {"job_id": "Job_1", "training": {"clocks": 1}, "transient": {"markets": ["c4.large/us-east-1a"]}}
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(record)
    assert first_fault(caught.value) == (
        "job_id: must be 1 to 40 lower-case letters, digits and dashes, and not begin with a dash (is 'Job_1')"
    )
    for job_id in ("a" * 41, "-a", "", "a\n"):
        with pytest.raises(ValidationError):
            JobSpec.model_validate(record | {"job_id": job_id})
    assert JobSpec.model_validate(record | {"job_id": "a" * 40}).job_id == "a" * 40
    assert JobSpec.model_json_schema()["properties"]["job_id"]["pattern"] == DATED_ID_PATTERN
