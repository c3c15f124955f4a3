"""The request of a plan: the job, its limits, and the price files it is simulated on."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from proteus_spot.bidding.backtest.reference_cluster import TOO_SMALL
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES, scheme
from proteus_spot.bidding.economics.reliable_tier import load_tier
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.clock import open_clock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.validation import first_fault
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.times import parse_deadline

#: Schemes compared by default: those in use without BidBrain, and ours.
COMPARED = ("on-demand", "standard+checkpoint", "proteus", "best")
#: Policy of a job that buys no spot machine: its reliable tier does the work.
ON_DEMAND = "on-demand"

_Name = Annotated[str, Field(min_length=1)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
#: More work than a simulation counts without error, by a wide margin.
_MOST_VCPU_HOURS = 1e8
_COUNT_OF_TYPE = re.compile(r"(\d{1,4})x(\S+)")


class PlanSpec(BaseModel):
    """A job that might be run, and the data on the markets: everything that decides the figures.

    Exactly one of `vcpu_hours` and `hours` gives the work; `hours` are those of the cluster.

    Attributes
    ----------
    max_spot_vcpus : with 0 no spot machine is bought: `on-demand` is the only scheme.
    job_file, policy : name of the job's file, and the policy that it runs under; None where the file leaves that open.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    prices: str | None = None
    catalog: str | None = None
    region: str | None = None
    product: str | None = None
    markets: list[_Name] = Field(default_factory=list)
    left_out: list[_Name] = Field(default_factory=lambda: list(TOO_SMALL))
    evaluate_from: str | None = None
    evictions: str | None = None
    allow_gaps: bool = False
    vcpu_hours: _Positive | None = Field(None, le=_MOST_VCPU_HOURS)
    machines: int | None = Field(None, ge=1, le=100_000)
    instance_type: _Name | None = None
    hours: _Positive | None = Field(None, le=_MOST_VCPU_HOURS)
    deadline_h: _Positive | None = Field(None, le=_MOST_VCPU_HOURS)
    budget_usd: _Positive | None = Field(None, le=1e12)
    max_spot_vcpus: int | None = Field(None, ge=0, le=10_000_000)
    allocation_vcpus: int = Field(128, ge=1)
    reliable: _Name | None = None
    eviction_overhead_s: int = Field(60, ge=0, le=86_400)
    resize_overhead_s: int = Field(20, ge=0, le=86_400)
    scaling_efficiency: float = Field(1.0, gt=0, le=1)
    ceiling: bool = True
    reliable_tier: dict[str, Any] = Field(default_factory=dict)
    job_file: str | None = None
    policy: str | None = None
    schemes: list[_Name] = Field(default_factory=lambda data: _compared(data))
    starts: int = Field(500, ge=1, le=100_000)
    seed: int = Field(0, ge=0)
    notes: list[str] = Field(default_factory=list)

    @field_validator("schemes")
    @classmethod
    def _are_known(cls, names: list[str]) -> list[str]:
        if not names:
            raise ValueError(f"names none; want some of {', '.join(SCHEMES)}")
        for name in names:
            scheme(name)  # raises an error that lists the schemes
        return list(dict.fromkeys(names))

    @field_validator("reliable_tier")
    @classmethod
    def _is_a_tier(cls, record: dict[str, Any]) -> dict[str, Any]:
        load_tier(record, transient_vcpus=1, vcpus=1)
        return record

    @field_validator("reliable")
    @classmethod
    def _can_be_read(cls, text: str | None) -> str | None:
        if text is not None:
            reliable_machines(text)
        return text

    @model_validator(mode="after")
    def _has_spot_machines_to_buy(self) -> "PlanSpec":
        spot = [name for name in self.schemes if name != ON_DEMAND]
        if self.max_spot_vcpus == 0 and spot:
            raise ValueError(
                f"--scheme {spot[0]}: buys spot machines, and transient.max_vcpus of {self.job_file} is 0; "
                "give --max-vcpus"
            )
        return self

    @model_validator(mode="after")
    def _says_how_much_work(self) -> "PlanSpec":
        if (self.vcpu_hours is None) == (self.hours is None):
            raise ValueError(
                "how much work is it? Give --vcpu-hours W, or --hours H of the cluster that --machines and --type "
                "name; one of the two"
            )
        return self


def scheme_of_policy(policy: str) -> str:
    """Return the scheme that simulates a job of that policy."""
    return "standard+agileml" if policy == "standard" else policy


def _compared(fields: Mapping[str, Any]) -> list[str]:
    """Return the schemes that are compared where none are named: the job's own is among them."""
    if fields.get("max_spot_vcpus") == 0:
        return [ON_DEMAND]
    own = fields.get("policy")
    return list(dict.fromkeys((*COMPARED, *([] if own is None else [scheme_of_policy(own)]))))


def reliable_machines(text: str) -> tuple[int, str]:
    """Return (count, instance type) of machines written ``COUNTxTYPE``; ``0`` is none.

    Raises
    ------
    ValueError
        If it is not of that form.
    """
    if text == "0":
        return 0, ""
    found = _COUNT_OF_TYPE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a COUNTxTYPE, as in 3xc4.xlarge, or 0")
    return int(found[1]), found[2]


def spec_of_job(job: JobSpec, file: str, *, works: bool) -> dict[str, Any]:
    """Return the fields that a job's own description fills.

    Parameters
    ----------
    file : name of the description.
    works : whether the work is given elsewhere. Otherwise the work of a job is that of all vCPUs that it may hold, in
        its hours.

    Raises
    ------
    InputError
        If the work of the job is not given, or it counts GPUs.

    Notes
    -----
    A job that buys no spot machine is its reliable tier: the cluster on demand.
    """
    training, tier, reliable = job.training, job.transient, job.reliable
    if tier.unit != "vcpu":
        raise InputError(f"{file}: transient.unit is {tier.unit}, and a plan over prices counts vCPUs; give --live")
    fields: dict[str, Any] = {
        "job_file": file,
        "policy": tier.policy if tier.max_vcpus else ON_DEMAND,
        "markets": list(tier.markets),
        "max_spot_vcpus": tier.max_vcpus,
        "allocation_vcpus": tier.vcpus_at_once,
        "reliable": f"{reliable.count}x{reliable.instance_type}",
        "eviction_overhead_s": round(tier.eviction_overhead_s),
        "resize_overhead_s": round(tier.resize_overhead_s),
        "scaling_efficiency": tier.scaling_efficiency,
        "ceiling": tier.ceiling_on_demand,
    }
    is_on_demand = fields["policy"] == ON_DEMAND
    if is_on_demand:
        fields |= {"machines": reliable.count, "instance_type": reliable.instance_type}
    if tier.evictions:
        fields["evictions"] = tier.evictions
    if job.budget_usd is not None:
        fields["budget_usd"] = job.budget_usd
    if job.deadline is not None:
        fields["deadline_h"] = hours_to_deadline(f"{file}: deadline", job.deadline)
    if works:
        return fields
    if training.hours is None:
        raise InputError(f"{file}: counts its work in clocks; say what they take by --vcpu-hours W")
    if is_on_demand:
        fields["hours"] = training.hours
        note = f"{file} buys no spot machine: its reliable tier, {fields['reliable']}, works for {training.hours:g} h"
    else:
        fields["vcpu_hours"] = training.hours * tier.max_vcpus * tier.scaling_efficiency
        note = (
            f"{file} ends after {training.hours:g} h: taken as the work of all its {tier.max_vcpus} vCPUs in that time"
        )
    fields["notes"] = [f"{note}; --vcpu-hours W says otherwise"]
    return fields


def hours_to_deadline(name: str, text: str) -> float:
    """Return the hours to a deadline: a bare number of hours, a duration from the start, or a time with its zone.

    The start is now, by the market's clock.

    Raises
    ------
    InputError
        If it is none of these, or has passed.
    """
    try:
        hours = float(text)
    except ValueError:
        now_s = int(open_clock(load_settings().clock).now_s())
        try:
            hours = (parse_deadline(text).time_s(now_s) - now_s) / HOUR_S
        except ValueError as error:
            raise InputError(f"{name}: {error}") from None
        if hours <= 0:
            raise InputError(f"{name} {text}: has passed; give a later time") from None
    if not 0 < hours <= _MOST_VCPU_HOURS:
        raise InputError(f"{name} {text}: is not a number of hours above 0; write 12, 90m, or a time with its zone")
    return hours


#: Fields whose option has another name than the field.
_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "markets": "--market",
        "left_out": "--leave-out",
        "evaluate_from": "--from",
        "instance_type": "--type",
        "deadline_h": "--deadline",
        "budget_usd": "--budget",
        "max_spot_vcpus": "--max-vcpus",
        "eviction_overhead_s": "--lambda",
        "resize_overhead_s": "--sigma",
        "schemes": "--scheme",
    }
)


def plan_spec(**fields: Any) -> PlanSpec:
    """Return the request; `InputError` names the first option that is wrong."""
    try:
        return PlanSpec(**fields)
    except ValidationError as error:
        raise InputError(first_fault(error, _option)) from None


def _option(place: str) -> str:
    field = place.partition(".")[0]
    return _OPTIONS.get(field, f"--{field.replace('_', '-')}")
