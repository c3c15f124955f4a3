"""Fields that jobs and sweeps have in common: checked the same way in a file, a Prefect form and a recorded run."""

import inspect
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from proteus_spot.bidding.billing import BillingModel
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.request_files import Place
from proteus_spot.infra.urls import at_home
from proteus_spot.studies.billing_options import billing_model
from proteus_spot.studies.times import parse_deadline

F = TypeVar("F", bound=Callable[..., Any])

#: Order ids are EC2 client tokens (at most 64 characters), and they begin with the job's id.
JOB_ID_PATTERN = r"^[a-z0-9][a-z0-9-]{0,39}$"
#: What stands for the day (UTC) on which a run was due, in ids and data of runs that a schedule begins.
DATE = "{date}"
#: Ids in forms: an id is checked in full when `DATE` has become a day.
DATED_ID_PATTERN = r"^(?!-)([a-z0-9-]|\{date\}){1,40}$"

#: Maximum of clocks and seeds: more than any training needs, and within the integers of databases and arrays.
MOST_COUNT = 2**62
#: More dollars than any job is given.
_MOST_USD = 1e9
#: The same checks as patterns, for the Prefect form.
_MARKET_PATTERN = r"^[^/\s]+/[^/\s]+$"

#: Context in which a job is validated that was recorded before: what it was accepted with is not refused any more.
RECORDED = MappingProxyType({"recorded": True})
#: What makes a URL a secret: a signature or a token of S3, CloudFront, Azure or Google in its query, or a password.
_CREDENTIAL = re.compile(
    r"[?&](X-Amz-(Signature|Credential|Security-Token)|X-Goog-(Signature|Credential)|AWSAccessKeyId|Signature|sig|"
    r"Key-Pair-Id|token|access_token|api_key)=|://[^/@\s]*:[^/@\s]*@"
)
#: Hours, minutes and, perhaps, seconds.
_SEXAGESIMAL = re.compile(r"([0-9]+):([0-5]?[0-9])(?::([0-5]?[0-9]))?")


def check_market(text: str) -> str:
    """Return `text` if it is a market, TYPE/ZONE; `ValueError` that says what to write if it is not."""
    Market.parse(text)
    if any(letter.isspace() or not letter.isprintable() for letter in text):
        raise ValueError(f"not a market: {text!r} (want TYPE/ZONE, as in c4.large/us-east-1a)")
    return text


def _has_no_credential(url: str, info: ValidationInfo) -> str:
    """Refuse a URL with a credential: a run's parameters are stored and shown in the clear."""
    if _CREDENTIAL.search(url) and not (info.context or {}).get("recorded"):
        raise ValueError(
            "is a URL with a credential in it, and a job's parameters are stored and shown in the clear; name a URL "
            "that the machines may read by their own rights, as in s3://bucket/file, or a path"
        )
    return url


def check_id(job_id: str) -> str:
    """Return `job_id` if it is one, `{date}` in it or not; `ValueError` that says what to write if it is not."""
    if not re.fullmatch(JOB_ID_PATTERN, dated(job_id, "2026-01-01")):
        raise ValueError(
            f"must be 1 to 40 lower-case letters, digits and dashes, and not begin with a dash (is {job_id!r})"
        )
    return job_id


def dated(text: str, day: str) -> str:
    """Return a text with `day`, as in 2026-01-31, where it says ``{date}``."""
    return text.replace(DATE, day)


def _can_be_paid(budget_usd: float | None) -> float | None:
    if budget_usd is not None and to_micros(budget_usd) < 1:
        raise ValueError(f"is {budget_usd:g}, less than a micro-dollar; give dollars, as in 2.50")
    return budget_usd


def _is_a_time(deadline: str | None) -> str | None:
    if deadline is not None:
        parse_deadline(deadline)  # raises an error that says what to write
    return deadline


def _is_charged_somehow(flat_price: str | None, info: ValidationInfo) -> str | None:
    if {"billing", "reprice"} <= info.data.keys():  # else those are wrong themselves
        try:
            spot_billing(info.data["billing"], flat_price, info.data["reprice"])
        except InputError as error:
            raise ValueError(str(error)) from None
    return flat_price


def spot_billing(billing: str, flat_price: str | None, reprice: str | None) -> BillingModel:
    """Return how spot machines are charged by the fields of a file or form; `InputError` where they do not fit."""
    return billing_model(billing, flat_price=flat_price, reprice=reprice, place=Place())


#: A path or URL of a file of the user's; the same check as a pattern, for the Prefect form.
Location = Annotated[
    str,
    AfterValidator(at_home),
    AfterValidator(_has_no_credential),
    Field(json_schema_extra={"pattern": f"^(?!.*({_CREDENTIAL.pattern}))"}),
]
MarketName = Annotated[str, AfterValidator(check_market), Field(json_schema_extra={"pattern": _MARKET_PATTERN})]
JobId = Annotated[str, AfterValidator(check_id), Field(json_schema_extra={"pattern": DATED_ID_PATTERN})]
QueueName = Annotated[str | None, Field(pattern=JOB_ID_PATTERN)]
BudgetUsd = Annotated[float | None, Field(gt=0, le=_MOST_USD), AfterValidator(_can_be_paid)]
OnDemandUsd = Annotated[float | None, Field(ge=0, le=_MOST_USD)]
DeadlineText = Annotated[str | None, AfterValidator(_is_a_time)]
BillingName = Annotated[
    Literal["hourly-refund", "per-second-first-hour-free", "flat"],
    Field(
        title="Billing model",
        description="EC2 pays by the second; hourly-refund was its model until 2017, for simulated markets.",
    ),
]
RepriceName = Annotated[
    Literal["hour", "change"] | None,
    Field(title="When a new price counts", description="Of per-second-first-hour-free. Empty: at the next hour."),
]
#: It stands after `billing` and `reprice`, with which it is checked.
FlatPrice = Annotated[
    str | None,
    Field(
        coerce_numbers_to_str=True,
        validate_default=True,
        title="Flat price",
        description="Of flat: dollars per instance-hour.",
    ),
    AfterValidator(_is_charged_somehow),
]


def meaning(field: FieldInfo) -> str:
    """Return what a field means, in one line."""
    return " ".join(". ".join(filter(None, (field.title, field.description))).split())


def in_this_order(schema: dict[str, Any]) -> None:
    """Have the form show the fields in the order of their definition, not of the alphabet."""
    for position, field in enumerate(schema["properties"].values()):
        field["position"] = position


def _is_given(value: Any) -> Any:
    if value is None:
        raise ValueError(
            "this run was given no parameters; a schedule has them under `parameters:`, as the examples in prefect.yaml"
        )
    return value


#: Type of the parameter of a flow, `spec: Annotated[Model, GIVEN] = NOT_GIVEN`: a schedule may begin a run without it,
#: which then fails with a line of ours. Without the default Prefect would end it with a traceback.
GIVEN = BeforeValidator(_is_given)
NOT_GIVEN: Any = None


def required_in_form(flow: F) -> F:
    """Have the form of a flow require its parameters: Prefect makes a form by the signature of the flow object."""
    signature = inspect.signature(flow)
    parameters = [each.replace(default=each.empty) for each in signature.parameters.values()]
    vars(flow)["__signature__"] = signature.replace(parameters=parameters)
    return flow


class FormModel(BaseModel):
    """Fields that a user writes: no truth value counts as a number, no number is infinite, no field is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, json_schema_extra=in_this_order)

    @field_validator("*", mode="before")
    @classmethod
    def _is_what_it_looks_like(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        kind = cls.model_fields[name].annotation
        kinds = {kind, *get_args(kind)}
        if isinstance(value, bool) and bool not in kinds:
            raise ValueError(
                f"is {str(value).lower()}, a truth value; write a {'number' if kinds & {int, float} else 'text'}"
            )
        if isinstance(value, str) and kinds & {int, float} and (parts := _SEXAGESIMAL.fullmatch(value.strip())):
            whole, minutes, seconds = (int(part or 0) for part in parts.groups())
            decimal = f"{name.replace('_', ' ')} as {whole + minutes / 60 + seconds / 3600:.6g}"
            raise ValueError(f"is {value}, no number; write {decimal if float in kinds else 'a whole number'}")
        return value
