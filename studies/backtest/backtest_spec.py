"""The request of a backtest. The Prefect form is drawn from this model; the verb fills it from its options."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from proteus_spot.bidding.backtest.clairvoyant.bound import CLAIRVOYANT
from proteus_spot.bidding.backtest.reference_cluster import TOO_SMALL
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES, Scheme, scheme, schemes
from proteus_spot.bidding.billing import BillingModel
from proteus_spot.bidding.economics.elasticity import (
    AgileML,
    Checkpointing,
    Elasticity,
    elasticity_record,
    load_elasticity,
)
from proteus_spot.bidding.economics.reliable_tier import load_tier
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.structured_text import read_json
from proteus_spot.infra.validation import first_fault
from proteus_spot.studies.billing_options import billing_model
from proteus_spot.studies.form_fields import in_this_order

#: Schemes compared by default: every scheme, and the lower bound of all costs.
NAMES = (*SCHEMES, CLAIRVOYANT)
#: Key that marks the figures of a training job; no elasticity has it.
_MEASURED = "seconds_by_clock"
#: Maximum minutes between two checkpoints.
_MOST_MINUTES = 24 * 60
#: The scheme whose cluster the bound is of.
_BOUND_OF = "proteus"

#: Names in the list of zones for each zone alone, and for all of them together.
EACH, ALL = "each", "all"
#: The interval of checkpoints that follows the mean time to eviction.
MEAN_TIME = "mean-time"

_Name = Annotated[str, Field(min_length=1)]
_EXAMPLE = '{"model": "checkpointing", "restart_s": 120}'
_TIER_EXAMPLE = '{"model_bytes": 2e9, "clocks_per_s": 0.1, "link_bytes_per_s": 9e7}'
_TIME = "A UTC day (2016-05-01) or time (2016-05-01T12:00)."


class BacktestSpec(BaseModel):
    """Schemes on recorded prices: everything that decides the figures. The defaults are the paper's."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=in_this_order)

    prices: str | None = Field(None, title="Price file", description="Path or URL. Empty: a generated market.")
    product: str | None = Field(None, title="Product", description="Of a file with several products, this one.")
    catalog: str | None = Field(None, title="Catalogue", description="CSV of instance types. Empty: the shipped one.")
    region: str | None = Field(None, title="Region", description="Only the markets of this region.")
    markets: list[_Name] = Field(default_factory=list, title="Markets", description="TYPE/ZONE each. Empty: all.")
    left_out: list[_Name] = Field(
        default_factory=lambda: list(TOO_SMALL), title="Types left out", description="Too small for a job by default."
    )
    fit_from: str | None = Field(None, title="Fit from", description=f"{_TIME} Empty: the file's beginning.")
    fit_to: str | None = Field(None, title="Fit to", description=f"{_TIME} A day is included. Empty: two thirds.")
    evaluate_from: str | None = Field(None, title="Evaluate from", description=f"{_TIME} Empty: where the fit ends.")
    evaluate_to: str | None = Field(
        None, title="Evaluate to", description=f"{_TIME} A day is included. Empty: the file's end."
    )
    evictions: str | None = Field(
        None, title="Eviction model", description="As `proteus evictions fit` made it. Empty: the paper's, of the fit."
    )
    availability: list[_Name] = Field(
        default_factory=list,
        title="Availability traces",
        description="TYPE/ZONE=FILE each: what can be had, whatever is bid. Empty: all, at all times.",
    )
    begins: str = Field("1970-01-01", title="Availability from", description="They carry no date.")
    allow_overlap: bool = Field(False, title="Fit on what is evaluated", description="The result is not honest then.")
    allow_gaps: bool = Field(False, title="Hold prices over gaps of the file")
    schemes: list[_Name] = Field(
        default_factory=list,
        title="Schemes",
        description="Empty: all.",
        json_schema_extra={"examples": [list(NAMES)]},
    )
    zones: list[_Name] = Field(
        default_factory=lambda: [EACH, ALL], min_length=1, title="Zones", description="each, all, or names of zones."
    )
    hours: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=lambda: [2, 20], min_length=1, title="Hours of the job on the reference cluster"
    )
    starts: int = Field(1000, ge=1, le=1_000_000, title="Starts", description="Jobs of each scheme, zone and length.")
    seed: int = Field(0, ge=0, title="Seed", description="Of the starts, and of a generated market.")
    billing: Literal["hourly-refund", "per-second-first-hour-free", "flat"] = Field(
        "hourly-refund", title="Billing model"
    )
    reprice: Literal["hour", "change"] | None = Field(
        None, title="When a new price counts", description="Of per-second-first-hour-free. Empty: at the next hour."
    )
    flat_price: str | None = Field(
        None, coerce_numbers_to_str=True, title="Flat price", description="Of flat: dollars per instance-hour."
    )
    max_life: str | None = Field(
        None, coerce_numbers_to_str=True, title="Longest life", description="Of flat: hours. Empty: forever."
    )
    elasticity: list[dict[str, Any]] = Field(
        default_factory=list,
        title="Elasticities",
        description=f"Numbers that replace the defaults, as in {_EXAMPLE}.",
    )
    checkpoint_interval: str | None = Field(
        None,
        coerce_numbers_to_str=True,
        title="Time from one checkpoint to the next",
        description=f"Minutes, or {MEAN_TIME}: by the mean time to eviction in the fit. Empty: the elasticity's.",
    )
    eviction_overhead_s: int = Field(60, ge=0, title="λ: seconds lost to an eviction")
    resize_overhead_s: int = Field(20, ge=0, title="σ: seconds lost to a change of the footprint")
    machines: int = Field(64, ge=1, title="Machines of the reference cluster")
    machine_vcpus: int = Field(8, ge=1, title="vCPUs of one")
    reference_type: str | None = Field(
        None, title="Type of the reference cluster", description="Empty: the one that costs least per vCPU."
    )
    max_spot_vcpus: int = Field(756, ge=1, title="Most spot vCPUs held at once")
    allocation_vcpus: int = Field(128, ge=1, title="vCPUs an allocation")
    reliable_count: int = Field(3, ge=0, title="Reliable machines")
    reliable_vcpus: int = Field(4, ge=1, title="vCPUs of one reliable machine")
    ceiling: bool = Field(True, title="Never bid in a market that stands above its own on-demand price")
    reliable_counts: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=list,
        title="Numbers of reliable machines that are weighed",
        description="Apart from the comparison. Empty: none.",
    )
    reliable_tier: dict[str, Any] = Field(
        default_factory=dict,
        title="What they are weighed by",
        description=f"Numbers that replace the defaults, as in {_TIER_EXAMPLE}.",
    )

    @field_validator("schemes")
    @classmethod
    def _are_known(cls, names: list[str]) -> list[str]:
        for name in names:
            if name != CLAIRVOYANT:
                scheme(name)  # raises an error that lists the schemes
        return list(dict.fromkeys(names))

    @field_validator("elasticity")
    @classmethod
    def _can_be_read(cls, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        models = [type(load_elasticity(record)) for record in records]
        if len(set(models)) < len(models):
            raise ValueError("one model is given twice; give each at most once")
        return records

    @field_validator("checkpoint_interval")
    @classmethod
    def _is_an_interval(cls, text: str | None) -> str | None:
        try:
            if text in (None, MEAN_TIME) or 0 < float(str(text)) <= _MOST_MINUTES:
                return text
        except ValueError:
            pass  # raised below, as for a number out of range
        raise ValueError(f"{text} is neither {MEAN_TIME} nor minutes, from above 0 to {_MOST_MINUTES}")

    @field_validator("reliable_tier")
    @classmethod
    def _is_a_tier(cls, record: dict[str, Any]) -> dict[str, Any]:
        load_tier(record, transient_vcpus=1, vcpus=1)
        return record

    @field_validator("zones", "hours", "left_out", "markets", "reliable_counts")
    @classmethod
    def _once_each(cls, values: list[Any]) -> list[Any]:
        return list(dict.fromkeys(values))

    @model_validator(mode="after")
    def _is_charged_somehow(self) -> "BacktestSpec":
        if not self.has_bound and CLAIRVOYANT in self.schemes:
            raise InputError(f"--scheme {CLAIRVOYANT}: knows hourly-refund alone, not {self.billing}; leave it out")
        _ = self.billing_model  # raises an error that names the wrong option
        return self

    @property
    def billing_model(self) -> BillingModel:
        """How spot machines are charged; `InputError` names the option that is wrong."""
        return billing_model(self.billing, flat_price=self.flat_price, max_life=self.max_life, reprice=self.reprice)

    @property
    def has_bound(self) -> bool:
        """Whether the clairvoyant supports the billing model."""
        return self.billing == "hourly-refund"

    @property
    def compared(self) -> tuple[str, ...]:
        """The schemes' names."""
        return tuple(self.schemes or (name for name in NAMES if name != CLAIRVOYANT or self.has_bound))

    @property
    def elasticities(self) -> tuple[AgileML, Checkpointing]:
        """Both with their numbers, without `checkpoint_interval` (`studies.backtest.backtest_inputs.at_interval`)."""
        agileml, checkpointing = AgileML(), Checkpointing()
        for record in self.elasticity:
            found = load_elasticity(record)
            if isinstance(found, AgileML):
                agileml = found
            else:
                checkpointing = found
        return agileml, checkpointing

    def scheme(self, name: str) -> Scheme:
        """Return a scheme, on the requested elasticities; for `CLAIRVOYANT` the scheme whose cluster it has."""
        return scheme(_BOUND_OF if name == CLAIRVOYANT else name, schemes(*self.elasticities))

    def bids(self, name: str) -> bool:
        """Return whether a scheme buys on the spot market; the bound is only computed."""
        return name != CLAIRVOYANT and self.scheme(name).rule is not SchemeId.NONE


def read_elasticity(source: str) -> dict[str, Any]:
    """Return the numbers of an elasticity in a JSON file, or those measured in the figures of a training job.

    Raises
    ------
    InputError
        One line that names the file and the fault.
    """
    record = _read_numbers(source, _elasticity, f"an elasticity, as in {_EXAMPLE}, or what proteus train --json writes")
    return record if "model" in record else elasticity_record(_elasticity(record))


def _elasticity(record: Any) -> Elasticity:
    measured = isinstance(record, dict) and _MEASURED in record
    return AgileML.from_measured(record) if measured else load_elasticity(record)


def read_reliable_tier(source: str) -> dict[str, Any]:
    """Return the numbers of a reliable tier in a JSON file; `InputError` names the fault."""
    check = partial(load_tier, transient_vcpus=1, vcpus=1)
    return _read_numbers(source, check, f"a reliable tier, as in {_TIER_EXAMPLE}")


def _read_numbers(source: str, check: Callable[[Any], object], wanted: str) -> dict[str, Any]:
    try:
        record = read_json(source)
        check(record)
    except (ValueError, AttributeError) as error:
        what = "is not a JSON object" if isinstance(error, AttributeError) else str(error)
        raise InputError(f"{source}: {what}; write numbers of {wanted}") from None
    found: dict[str, Any] = record
    return found


#: Fields whose option has another name than the field.
_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "markets": "--market",
        "left_out": "--leave-out",
        "evaluate_from": "--from",
        "evaluate_to": "--to",
        "schemes": "--scheme",
        "eviction_overhead_s": "--lambda",
        "resize_overhead_s": "--sigma",
        "reference_type": "--reference",
        "max_spot_vcpus": "--max-vcpus",
        "allocation_vcpus": "--allocation",
        "reliable_count": "--reliable",
    }
)


def option(field: str) -> str:
    """Return the option of the verb that a field is filled from."""
    return _OPTIONS.get(field, f"--{field.replace('_', '-')}")


def backtest_spec(**fields: Any) -> BacktestSpec:
    """Return the request; `InputError` names the first option that is wrong."""
    try:
        return BacktestSpec(**fields)
    except ValidationError as error:
        raise InputError(first_fault(error, lambda place: option(place.partition(".")[0]))) from None
