"""The description of a training job. The Prefect UI draws its form from this model."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bidding.billing import BillingModel
from bidding.market.model import Market
from bidding.market.money import Micros, to_micros
from bidding.policies import AT_ONCE, POLICIES, policy
from bidding.policies.fixed_delta import FIXED_DELTA
from infra.errors import InputError
from infra.market_data.request_files import Place
from tasks.billing_options import billing_model
from tasks.times import parse_deadline

#: Order ids are EC2 client tokens (at most 64 characters), and they begin with the job's id.
JOB_ID_PATTERN = r"^[a-z0-9][a-z0-9-]{0,39}$"


#: Maximum of clocks and seeds: more than any training needs, and within the integers of databases and arrays.
_MOST = 2**62
#: vCPUs of more machines than any region has.
_MOST_VCPUS = 10_000_000
_DAY_S = 86_400
#: More dollars than any job is given.
_MOST_USD = 1e9
#: The same checks as patterns, for the Prefect form.
_MARKET_PATTERN = r"^[^/\s]+/[^/\s]+$"
_POLICY_PATTERN = f"^({'|'.join(sorted(POLICIES))}|{FIXED_DELTA}:.+)$"

#: Context in which a job is validated that was recorded before: what it was accepted with is not refused any more.
RECORDED = MappingProxyType({"recorded": True})
#: What makes a URL a secret: a signature or a token of S3, CloudFront, Azure or Google in its query, or a password.
_CREDENTIAL = re.compile(
    r"[?&](X-Amz-(Signature|Credential|Security-Token)|X-Goog-(Signature|Credential)|AWSAccessKeyId|Signature|sig|"
    r"Key-Pair-Id|token|access_token|api_key)=|://[^/@\s]*:[^/@\s]*@"
)
#: Hours, minutes and, perhaps, seconds.
_SEXAGESIMAL = re.compile(r"([0-9]+):([0-5]?[0-9])(?::([0-5]?[0-9]))?")


def _is_market(text: str) -> str:
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


#: A path or URL of a file of the user's; the same check as a pattern, for the Prefect form.
_Location = Annotated[
    str, AfterValidator(_has_no_credential), Field(json_schema_extra={"pattern": f"^(?!.*({_CREDENTIAL.pattern}))"})
]


class _Asked(BaseModel):
    """Fields that a user writes: no truth value counts as a number, no number is infinite, no field is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

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


class Training(_Asked):
    """The application, its data, and when it is done."""

    app: str = Field("mlr", title="Application", description="A built-in one, or module:Class.")
    code: _Location = Field(
        "",
        title="Code of the application",
        description="Path or URL of the .py file or wheel that holds module:Class. Empty: it is on every machine.",
    )
    app_params: dict[str, Any] = Field(default_factory=dict, title="Parameters of the application")
    data: _Location = Field(
        "digits",
        title="Data",
        description="A built-in set, or path or URL of a .csv, .tsv, .svm (svmlight) or .npz file, packed or not.",
    )
    partitions: int = Field(16, ge=1, le=4096, title="Input partitions")
    shards: int = Field(4, ge=1, le=1024, title="Shards", description="Half of the most machines ever held.")
    staleness: int = Field(0, ge=0, le=100, title="Staleness", description="0 is bulk synchronous.")
    stage: Literal[1, 2, 3] | None = Field(
        None, title="Stage", description="Who serves the model (docs/engine.md). Empty: by the ratio of the tiers."
    )
    stage_2_above: float = Field(1.0, ge=0, title="Transient / reliable nodes above which stage 2 holds")
    stage_3_above: float = Field(15.0, ge=0, title="Transient / reliable nodes above which stage 3 holds")
    clocks: int | None = Field(None, ge=1, le=_MOST, title="Stop after this many clocks")
    hours: float | None = Field(None, gt=0, title="Stop after this many market hours")
    checkpoint_minutes: float = Field(10.0, gt=0, title="Minutes between checkpoints", description="Market minutes.")
    evaluate_every: int | None = Field(
        None,
        ge=1,
        le=_MOST,
        title="Clocks between evaluations",
        description="On what is held out. Empty: only at the end.",
    )
    seed: int = Field(0, ge=0, le=_MOST, title="Seed")

    @property
    def standardizes(self) -> bool:
        """Whether the application wants to know the scales of its inputs."""
        return self.app_params.get("standardize") is True

    @model_validator(mode="after")
    def _ends(self) -> "Training":
        if self.clocks is None and self.hours is None:
            raise ValueError("a job needs an end: give clocks, hours, or both")
        if self.stage_3_above < self.stage_2_above:
            raise ValueError("stage_3_above is below stage_2_above: want the second ratio no less than the first")
        return self


class ReliableTier(_Asked):
    """The reliable tier: machines bought on demand and held while the job runs."""

    count: int = Field(1, ge=1, le=64, title="Machines")
    instance_type: str = Field("", title="Instance type", description="Empty: that of the first market.")
    zone: str = Field("", title="Zone", description="Empty: that of the first market, as bytes between zones cost.")

    @model_validator(mode="after")
    def _is_bought_somewhere(self) -> "ReliableTier":
        if self.instance_type and self.zone:
            _is_market(f"{self.instance_type}/{self.zone}")
        return self


class TransientTier(_Asked):
    """The transient tier: machines that the market may evict; where to bid, and how much to hold."""

    markets: list[Annotated[str, AfterValidator(_is_market), Field(json_schema_extra={"pattern": _MARKET_PATTERN})]] = (
        Field(min_length=1, title="Markets", description="Where to bid: TYPE/ZONE each.")
    )
    allocation_vcpus: int | None = Field(
        None,
        ge=1,
        le=_MOST_VCPUS,
        title="vCPUs an allocation",
        description="Empty: as the policy likes it; all for best and standard, else 4.",
    )
    max_vcpus: int = Field(8, ge=0, le=_MOST_VCPUS, title="Most vCPUs held at once")
    policy: str = Field(
        "best",
        title="Bidding policy",
        description="best, fixed-delta:USD, just-above, on-demand, proteus or standard.",
        json_schema_extra={"pattern": _POLICY_PATTERN},
    )
    evictions: _Location = Field(
        "",
        title="Eviction model",
        description="Path or URL of a model made by `proteus evictions fit`. "
        "Empty: the paper's table, of the price history.",
    )
    billing: Literal["hourly-refund", "per-second-first-hour-free", "flat"] = Field(
        "per-second-first-hour-free",
        title="Billing model",
        description="EC2 pays by the second; hourly-refund was its model until 2017, for simulated markets.",
    )
    reprice: Literal["hour", "change"] | None = Field(
        None, title="When a new price counts", description="Of per-second-first-hour-free. Empty: at the next hour."
    )
    flat_price: str | None = Field(
        None,
        coerce_numbers_to_str=True,
        validate_default=True,
        title="Flat price",
        description="Of flat: dollars per instance-hour.",
    )
    ceiling_on_demand: bool = Field(True, title="Never bid in a market that stands above its on-demand price")
    scaling_efficiency: float = Field(1.0, gt=0, le=1, title="φ: scaling efficiency")
    resize_overhead_s: float = Field(20.0, ge=0, le=_DAY_S, title="σ: seconds lost to a change of the footprint")
    eviction_overhead_s: float = Field(60.0, ge=0, le=_DAY_S, title="λ: seconds lost to an eviction")

    @field_validator("policy")
    @classmethod
    def _is_a_policy(cls, name: str) -> str:
        policy(name)  # raises an error that lists the policies
        return name

    @field_validator("flat_price")
    @classmethod
    def _is_charged_somehow(cls, flat_price: str | None, info: ValidationInfo) -> str | None:
        if {"billing", "reprice"} <= info.data.keys():  # else those are wrong themselves
            try:
                billing_model(info.data["billing"], flat_price=flat_price, reprice=info.data["reprice"], place=Place())
            except InputError as error:
                raise ValueError(str(error)) from None
        return flat_price

    @property
    def billing_model(self) -> BillingModel:
        """How spot machines are charged."""
        return billing_model(self.billing, flat_price=self.flat_price, reprice=self.reprice, place=Place())

    @property
    def vcpus_at_once(self) -> int:
        """The vCPUs of one allocation: as asked for, or as the policy likes it."""
        if self.allocation_vcpus is not None:
            return self.allocation_vcpus
        return max(self.max_vcpus, 1) if self.policy in AT_ONCE else 4


class JobSpec(_Asked):
    """A training job. The same `job_id` never runs twice: a second run attaches to it."""

    job_id: str = Field(
        title="Job",
        description="Lower-case letters, digits and dashes.",
        json_schema_extra={"pattern": JOB_ID_PATTERN},
    )
    training: Training = Field(title="Training")
    reliable: ReliableTier = Field(default_factory=ReliableTier, title="Reliable tier")
    transient: TransientTier = Field(title="Transient tier")
    budget_usd: float | None = Field(
        None,
        gt=0,
        le=_MOST_USD,
        title="Budget",
        description="Dollars that the job spends at most; when they are reached it saves its model and stops. "
        "Empty: no limit.",
    )
    deadline: str | None = Field(
        None,
        title="Deadline",
        description="90m or 12h from the start, or a time with its zone, by the market's clock. When the time gets "
        "short, on-demand machines finish the job. Needs clocks. Empty: none.",
    )

    @model_validator(mode="before")
    @classmethod
    def _reliable_tier_is_near(cls, record: Any) -> Any:
        """Fill in the reliable tier's type and zone: those of the first market, where they are not given."""
        if not isinstance(record, Mapping):
            return record
        tier, reliable = record.get("transient"), record.get("reliable", {})
        markets = tier.get("markets") if isinstance(tier, Mapping) else getattr(tier, "markets", None)
        if not (isinstance(reliable, Mapping) and isinstance(markets, Sequence) and markets):
            return record
        try:
            first = Market.parse(_is_market(str(markets[0])))
        except ValueError:
            return record  # the markets' own error says so
        given = {name: value for name, value in reliable.items() if value not in ("", None)}
        return {**record, "reliable": {"instance_type": first.instance_type, "zone": first.zone, **given}}

    @field_validator("job_id")
    @classmethod
    def _is_an_id(cls, job_id: str) -> str:
        if not re.fullmatch(JOB_ID_PATTERN, job_id):
            raise ValueError(
                f"must be 1 to 40 lower-case letters, digits and dashes, and not begin with a dash (is {job_id!r})"
            )
        return job_id

    @field_validator("budget_usd")
    @classmethod
    def _can_be_paid(cls, budget_usd: float | None) -> float | None:
        if budget_usd is not None and to_micros(budget_usd) < 1:
            raise ValueError(f"is {budget_usd:g}, less than a micro-dollar; give dollars, as in 2.50")
        return budget_usd

    @field_validator("deadline")
    @classmethod
    def _is_a_time(cls, deadline: str | None) -> str | None:
        if deadline is not None:
            parse_deadline(deadline)  # raises an error that says what to write
        return deadline

    @model_validator(mode="after")
    def _deadline_counts_clocks(self) -> "JobSpec":
        if self.deadline is not None and self.training.clocks is None:
            raise ValueError("deadline: a job that ends by it counts its work in clocks; give training.clocks")
        return self

    @property
    def budget_micros(self) -> Micros | None:
        """The budget in micro-dollars; None: no limit."""
        return None if self.budget_usd is None else to_micros(self.budget_usd)

    def deadline_s(self, start_s: float) -> int | None:
        """Return the deadline of the job if it starts at `start_s`, seconds since the epoch; None: no deadline."""
        return None if self.deadline is None else parse_deadline(self.deadline).time_s(start_s)
